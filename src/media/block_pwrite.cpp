// The block backend without io_uring. A write that is begun waits in a queue; whoever asks for a
// completion performs the oldest, outside the lock of the staging buffers, so that other threads
// go on copying meanwhile.
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <mutex>

#include "base/check.hpp"
#include "media/block_backend.hpp"
#include "media/block_os.hpp"

namespace tensorshelf {
namespace {

class PwriteBackend final : public BlockBackend {
 public:
  explicit PwriteBackend(int fd) : fd_(fd) {}

  int submit(const DeviceWrite& write) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(write);
    return 0;
  }

  std::optional<DeviceCompletion> complete(bool block) override {
    if (!block) return {};  // performing one would block
    DeviceWrite write;
    {
      const std::lock_guard lock(mutex_);
      TENSORSHELF_ASSERT(!queue_.empty());
      write = queue_.front();
      queue_.pop_front();
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
  std::deque<DeviceWrite> queue_;
};

}  // namespace

std::unique_ptr<BlockBackend> make_pwrite_backend(int fd) {
  return std::make_unique<PwriteBackend>(fd);
}

}  // namespace tensorshelf
