// Bytes out of slots, checked. A read holds its tensor's `mutex` and nothing else, so it is of one
// moment; what it returns was compared with the checksum that the manifest, or the stage, has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <tensorshelf/lease.hpp>
#include <tensorshelf/report.hpp>

#include "base/huge_pages.hpp"
#include "store/io/untrusted.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Reader {
 public:
  explicit Reader(State& state) : state_(state) {}

  void read(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset, Of which);
  // Some bytes of a tensor in parts of any size, which together are of one moment: `body` is called
  // once, with what reads one. Nobody assigns the tensor until it returns.
  struct Range {
    std::uint64_t offset = 0;
    std::uint64_t size_bytes = 0;
    Of which = Of::staged();
  };
  using ReadPart = std::function<void(std::span<std::byte> bytes, std::uint64_t offset)>;
  void read_parts(StoredTensor& tensor, const Range& range,
                  const std::function<void(const ReadPart&)>& body);
  Lease lease(const std::shared_ptr<StoredTensor>& tensor, Of which);
  VerifyReport verify(const Progress& progress, const OnDamage& on_damage = {});

  // Some whole chunks, from byte `offset` on, where one begins, in `room`, which has one chunk at
  // least; those of a version for who holds it (version_hold.hpp). Always checked, whatever the
  // shelf was opened with. No bytes where they are zeros.
  struct Piece {
    std::uint64_t size = 0;
    std::span<const std::byte> bytes = {};
  };
  Piece piece(StoredTensor& tensor, Of which, std::uint64_t offset, std::span<std::byte> room);
  // As long as a drive reads in several requests at once, and aligned, so that it reads straight
  // into it.
  using PieceRoom = HugeRoom<16 * kChunkBytes>;

  // The next four are for who holds the tensor's mutex. A chunk as its record says that it lies,
  // unchecked: in place where it may be, else in `scratch`.
  UntrustedBytes fetch(const RecordedChunk& recorded, std::span<std::byte> scratch);
  // The same of a part of it, from byte `within` on, copied.
  void copy_out(const RecordedChunk& recorded, std::span<std::byte> target, std::uint64_t within);
  // A whole chunk, copied and compared with its checksum; from the mirror where that alone has it.
  void read_sound(const RecordedChunk& recorded, std::span<std::byte> target);
  // Throws where the bytes of a chunk that was not looked at since the shelf was opened are
  // damaged.
  void check_unread(const RecordedChunk& recorded, const UntrustedBytes& bytes);  // verify.cpp

  void throw_if_given_up(std::uint64_t version);  // by the writer of a reader: Errc::stale
  [[noreturn]] void throw_damaged(const RecordedChunk& recorded,
                                  const std::string& how = "fails its XXH3 checksum",
                                  int os_error = 0);

 private:
  struct LeasedSlot;
  struct FirmPin;

  std::string called(const StoredTensor& tensor, std::uint64_t version) const;  // or now
  void throw_if_overtaken(std::uint64_t version);  // the same, unless the writer lets it be
  bool is_let_be(std::uint64_t version) const;
  bool no_one_else_writes() const;

  std::shared_ptr<const void> pin_in_place(Of which);

  // The tensor's mutex is held.
  RecordedChunks records(StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                         Of which) const;
  void read_out(const RecordedChunk& recorded, std::span<std::byte> target);
  UntrustedBytes compared(const RecordedChunk& recorded, std::span<std::byte> scratch);
  void check_sum(const RecordedChunk& recorded, std::uint64_t checksum);
  std::uint64_t run_length(const RecordedChunks& records, std::uint64_t first,
                           std::uint64_t size) const;
  bool read_run(const RecordedChunks& records, std::uint64_t first, std::span<std::byte> target);
  std::uint64_t read_next(const RecordedChunks& records, std::uint64_t offset,
                          std::span<std::byte> bytes);
  void read_locked(const RecordedChunks& records, std::uint64_t offset, std::span<std::byte> bytes);

  void check_all(const RecordedChunks& records, std::uint64_t first,
                 std::span<const std::byte> bytes);
  std::optional<std::uint64_t> verify_chunk(StoredTensor& tensor, std::uint64_t chunk,
                                            VerifyReport& report);  // takes it

  State& state_;
};

}  // namespace tensorshelf
