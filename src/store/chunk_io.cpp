#include "store/chunk_io.hpp"

#include <cerrno>
#include <memory>

#include <tensorshelf/error.hpp>

#include "store/unreadable.hpp"

namespace tensorshelf {

std::span<std::byte> chunk_scratch() {
  thread_local const auto buffer = std::make_unique<std::byte[]>(kChunkBytes);
  return {buffer.get(), kChunkBytes};
}

UntrustedBytes fetch_chunk(Medium& medium, const StoredTensor& tensor, unsigned slot,
                           std::uint64_t chunk, std::span<std::byte> scratch) {
  const Extent extent{tensor.chunk_at(slot, chunk), tensor.chunk_bytes(chunk)};
  if (const auto bytes = medium.view(extent); !bytes.empty()) return UntrustedBytes(bytes);
  const auto bytes = scratch.first(extent.size_bytes);
  medium.read(extent.at, bytes);
  return UntrustedBytes(bytes);
}

bool chunk_intact(Medium& medium, const format::Seeds& seeds, const RecordedChunk& recorded,
                  int* os_error) {
  if (!recorded.is_stored()) return true;
  const auto& [tensor, record, chunk] = recorded;
  try {
    const auto bytes = fetch_chunk(medium, tensor, recorded.slot(), chunk, chunk_scratch());
    const auto hash = bytes.hash(tensor.chunk_seed(seeds, chunk));
    if (!hash && os_error != nullptr) *os_error = EIO;  // a poisoned line, or a file cut short
    return hash == record.checksum;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    if (os_error != nullptr) *os_error = error.os_error();
    return false;
  }
}

}  // namespace tensorshelf
