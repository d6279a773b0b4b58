#include "store/chunk_io.hpp"

#include <cerrno>
#include <cstring>
#include <memory>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"
#include "base/fault_guard.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {

std::span<std::byte> chunk_scratch() {
  thread_local const auto buffer = std::make_unique<std::byte[]>(kChunkBytes);
  return {buffer.get(), kChunkBytes};
}

std::span<const std::byte> fetch_chunks(Medium& medium, const StoredTensor& tensor, unsigned slot,
                                        std::uint64_t chunk, std::uint64_t count,
                                        std::span<std::byte> scratch) {
  const std::uint64_t size = (count - 1) * kChunkBytes + tensor.chunk_bytes(chunk + count - 1);
  const Extent extent{tensor.chunk_at(slot, chunk), size};
  if (const auto bytes = medium.view(extent); !bytes.empty()) return bytes;
  const auto bytes = scratch.first(extent.size_bytes);
  medium.read(extent.at, bytes);
  return bytes;
}

std::optional<std::uint64_t> hash_mapped(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t hash = 0;
  if (!touch_mapped(bytes, [&] { hash = hash_bytes(bytes, seed); })) return std::nullopt;
  return hash;
}

bool copy_mapped(std::span<std::byte> target, std::span<const std::byte> source) {
  return touch_mapped(source, [&] { std::memcpy(target.data(), source.data(), source.size()); });
}

bool chunk_intact(Medium& medium, const format::Seeds& seeds, const StoredTensor& tensor,
                  const format::ChunkRecord& record, std::uint64_t chunk, int* os_error) {
  if (format::chunk_kind(record) != format::ChunkKind::stored) return true;
  try {
    const unsigned slot = format::chunk_slot(record);
    const auto bytes = fetch_chunks(medium, tensor, slot, chunk, 1, chunk_scratch());
    const auto hash = hash_mapped(bytes, seeds.chunk(tensor.layout.tensor_id, chunk));
    if (!hash && os_error != nullptr) *os_error = EIO;  // a poisoned line, or a file cut short
    return hash == record.checksum;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    if (os_error != nullptr) *os_error = error.os_error();
    return false;
  }
}

}  // namespace tensorshelf
