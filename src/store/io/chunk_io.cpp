#include "store/io/chunk_io.hpp"

#include <cerrno>
#include <memory>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/io/unreadable.hpp"

namespace tensorshelf {

std::span<std::byte> chunk_scratch() {
  thread_local const auto buffer = std::make_unique<std::byte[]>(kChunkBytes);
  return {buffer.get(), kChunkBytes};
}

namespace {

UntrustedBytes fetch(Medium& medium, const Extent& extent, std::span<std::byte> scratch) {
  if (const auto bytes = medium.view(extent); !bytes.empty()) return UntrustedBytes(bytes);
  const auto bytes = scratch.first(extent.size_bytes);
  medium.read(extent.at, bytes);
  return UntrustedBytes(bytes);
}

}  // namespace

UntrustedBytes fetch_chunk(Medium& medium, const StoredTensor& tensor, unsigned slot,
                           std::uint64_t chunk, std::span<std::byte> scratch) {
  return fetch(medium, {tensor.chunk_at(slot, chunk), tensor.chunk_bytes(chunk)}, scratch);
}

bool chunk_intact(Medium& medium, const format::Seeds& seeds, const RecordedChunk& recorded,
                  int* os_error) {
  if (!recorded.is_stored()) return true;
  try {
    const auto bytes = fetch(medium, recorded.extent(), chunk_scratch());
    const auto hash = bytes.hash(recorded.seed(seeds));
    if (!hash && os_error != nullptr) *os_error = EIO;  // a poisoned line, or a file cut short
    return hash == recorded.record.checksum;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    if (os_error != nullptr) *os_error = error.os_error();
    return false;
  }
}

bool read_mirror(GuardedMedium& medium, const format::Seeds& seeds, const RecordedChunk& recorded,
                 std::span<std::byte> room) {
  const auto bytes = room.first(recorded.size_bytes());
  try {
    if (!medium.read_mirror(recorded.at(), bytes)) return false;
  } catch (const Error& error) {
    const bool of_the_place = is_unreadable(error) || is_cut_off(error);
    if (!of_the_place && !planted(Bug::mirror_error_is_damage)) throw;
    return false;
  }
  return recorded.matches(bytes, seeds) || planted(Bug::healed_unchecked);
}

}  // namespace tensorshelf
