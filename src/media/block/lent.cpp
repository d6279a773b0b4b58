// Writes of what is lent, through the staging buffers' turns and around their memory.
#include <cstdint>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "media/block/buffers.hpp"

namespace tensorshelf {

bool StagingBuffers::can_lend(std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  return !bytes.empty() && bytes.size() % kPageBytes == 0 && address % kPageBytes == 0;
}

// What buffers hold of the same place lands before it.
Ticket StagingBuffers::write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                                  std::uint64_t seed) {
  TENSORSHELF_ASSERT(at % kPageBytes == 0 && can_lend(bytes));
  const std::uint64_t checksum = hash_bytes(bytes, seed);
  Lock lock(mutex_);
  settle(lock, [&](const Buffer& buffer) { return buffer.holds(at, at + bytes.size()); });
  throw_failure();
  Buffer* buffer = nullptr;
  while ((buffer = find_free()) == nullptr) {
    if (in_flight_ == 0 && open_ > 0) close(*least_recent_open());
    progress(lock);
    throw_failure();
  }
  const std::uint64_t sequence = ++sequence_;
  buffer->lent = bytes.data();
  buffer->at = at;
  buffer->used_bytes = bytes.size();
  buffer->first_sequence = buffer->last_sequence = sequence;
  begin(*buffer);
  submit();
  return {sequence, checksum};
}

void StagingBuffers::await_lent(std::span<const std::byte> bytes) noexcept {
  Lock lock(mutex_);
  settle(lock, [&](const Buffer& buffer) { return buffer.has_lent(bytes); });
}

}  // namespace tensorshelf
