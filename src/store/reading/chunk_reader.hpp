// One chunk out of the slot that its record says, and why it cannot be had. All for who holds the
// tensor's mutex, so that what is read is of one moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "store/io/untrusted.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class ChunkReader {
 public:
  explicit ChunkReader(State& state) : state_(state) {}

  // Unchecked: in place where it may be, else in `scratch`.
  UntrustedBytes fetch(const RecordedChunk& recorded, std::span<std::byte> scratch);
  // The same of a part of it, from byte `within` on, copied.
  void copy_out(const RecordedChunk& recorded, std::span<std::byte> target, std::uint64_t within);
  // As fetch(), compared with the checksum where OpenOptions::verify asks for that.
  UntrustedBytes compared(const RecordedChunk& recorded, std::span<std::byte> scratch);
  // A whole chunk, copied and compared, whatever was asked for; from the mirror where that alone
  // has it.
  void read_sound(const RecordedChunk& recorded, std::span<std::byte> target);

  bool checks() const;  // whether what is read is compared
  // Whether that is the chunk's, of bytes that were read: else Errc::corrupt, where that is asked
  // for.
  void check_sum(const RecordedChunk& recorded, std::uint64_t checksum);
  // Throws where the bytes of a chunk that was not looked at since the shelf was opened are
  // damaged.
  void check_unread(const RecordedChunk& recorded, const UntrustedBytes& bytes);
  [[noreturn]] void throw_damaged(const RecordedChunk& recorded,
                                  const std::string& how = "fails its XXH3 checksum",
                                  int os_error = 0);

 private:
  std::string called(const RecordedChunk& recorded) const;
  bool no_one_else_writes() const;
  void read_out(const RecordedChunk& recorded, std::span<std::byte> target);

  State& state_;
};

}  // namespace tensorshelf
