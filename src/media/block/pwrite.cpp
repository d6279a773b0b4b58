// The block backend without io_uring. A write that is begun waits in a queue; whoever asks for a
// completion performs the oldest, outside the lock of the staging buffers, so that other threads
// go on copying meanwhile. The queue has room for every buffer from the start: submit() allocates
// nothing.
#include <mutex>
#include <vector>

#include "base/check.hpp"
#include "media/block/backend.hpp"
#include "media/block/os.hpp"

namespace tensorshelf {
namespace {

class PwriteBackend final : public BlockBackend {
 public:
  PwriteBackend(int fd, unsigned buffers) : fd_(fd), queue_(buffers) {}

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    const std::lock_guard lock(mutex_);
    for (const DeviceWrite& write : writes) {
      TENSORSHELF_ASSERT(queued_ < queue_.size());  // a buffer is begun once at a time
      queue_[(first_ + queued_) % queue_.size()] = write;
      ++queued_;
    }
    return {writes.size(), 0};
  }

  std::optional<DeviceCompletion> complete(bool block) override {
    if (!block) return {};  // performing one would block
    DeviceWrite write;
    {
      const std::lock_guard lock(mutex_);
      TENSORSHELF_ASSERT(queued_ > 0);
      write = queue_[first_];
      first_ = (first_ + 1) % queue_.size();
      --queued_;
    }
    return DeviceCompletion{write.buffer, pwrite_once(fd_, write.at, write.bytes)};
  }

  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    return pwrite_once(fd_, at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    return pread_once(fd_, at, bytes);
  }
  int sync() override { return sync_once(fd_); }

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<DeviceWrite> queue_;  // a ring
  std::size_t first_ = 0;
  std::size_t queued_ = 0;
};

}  // namespace

std::unique_ptr<BlockBackend> make_pwrite_backend(int fd, const StagingShape& shape) {
  return std::make_unique<PwriteBackend>(fd, shape.buffers);
}

}  // namespace tensorshelf
