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
#include "store/reading/chunk_reader.hpp"
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

 private:
  struct LeasedSlot;
  struct FirmPin;

  std::shared_ptr<const void> pin_in_place(Of which);

  // The tensor's mutex is held.
  RecordedChunks records(StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                         Of which) const;
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
  ChunkReader chunks_{state_};
};

}  // namespace tensorshelf
