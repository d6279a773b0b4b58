// How a shelf is read beside its writer: around the page cache, through io_uring. A pread holds the
// inode's lock until the drive has answered, and the writer's writes through the page cache wait
// for that; of a read through io_uring the kernel lets go of it once the drive has been asked.
//
// A ring serves one read at a time, as the threads come and go. Where there is none to be had, a
// read is a pread.
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "media/block/backend.hpp"
#include "media/block/os.hpp"

namespace tensorshelf {
namespace {

constexpr std::size_t kMostRings = 8;  // more threads at once read by pread
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr int kReadTries = 1000;

class ReadRing {
 public:
  ReadRing() : made_(io_uring_queue_init(2, &ring_, 0) == 0) {}
  ~ReadRing() {
    if (made_) io_uring_queue_exit(&ring_);
  }
  ReadRing(const ReadRing&) = delete;
  ReadRing& operator=(const ReadRing&) = delete;

  bool works() const { return made_; }

  // Bytes, or a negative errno; nothing where the kernel did not take it, and never will.
  std::optional<std::int64_t> read(int fd, std::uint64_t at, std::span<std::byte> bytes) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    const std::size_t size = std::min(bytes.size(), kMostBytes);
    io_uring_prep_read(sqe, fd, bytes.data(), static_cast<unsigned>(size), at);
    int taken = 0;
    for (int tries = 0; taken == 0 && tries < kReadTries; ++tries) {
      taken = io_uring_submit_and_wait(&ring_, 1);
      // The kernel was short of memory for a moment, or a signal came.
      if (taken == -EAGAIN || taken == -EINTR || taken == -EBUSY) taken = 0;
    }
    if (taken != 1) return {};
    io_uring_cqe* cqe = nullptr;
    // Until the read ends the buffer is the kernel's: nothing may go on without that.
    for (int error = -EINTR; error != 0;) {
      error = io_uring_wait_cqe(&ring_, &cqe);
      TENSORSHELF_ASSERT(error == 0 || error == -EINTR || error == -EAGAIN);
    }
    const std::int64_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    return result;
  }

  // In a forked child: its memory goes with it.
  void abandon() noexcept {
    if (made_) ::close(ring_.ring_fd);
    made_ = false;
  }

 private:
  io_uring ring_{};
  bool made_;
};

class ReadBackend final : public BlockBackend {
 public:
  explicit ReadBackend(int fd) : fd_(fd) { rings_.reserve(kMostRings); }

  DeviceBegun submit(std::span<const DeviceWrite> /*writes*/) override { return {0, -EBADF}; }
  std::optional<DeviceCompletion> complete(bool /*block*/) override { return {}; }
  std::int64_t write_now(std::uint64_t /*at*/, std::span<const std::byte> /*bytes*/) override {
    return -EBADF;
  }
  int sync() override { return sync_once(fd_); }

  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    if (auto ring = take_ring()) {
      const auto result = ring->read(fd_, at, bytes);
      if (result) give_ring(std::move(ring));
      // Kernels before 5.6 know no such read (EINVAL).
      const bool ended = result && *result != -EINTR && *result != -EAGAIN && *result != -EINVAL;
      if (ended) return *result;
    }
    return pread_once(fd_, at, bytes);
  }

  void abandon() noexcept override {
    for (const auto& ring : rings_) ring->abandon();
  }

 private:
  std::unique_ptr<ReadRing> take_ring() {
    const std::lock_guard lock(mutex_);
    if (!rings_.empty()) {
      auto ring = std::move(rings_.back());
      rings_.pop_back();
      return ring;
    }
    if (to_be_made_ == 0) return nullptr;
    auto ring = std::make_unique<ReadRing>();
    to_be_made_ = ring->works() ? to_be_made_ - 1 : 0;
    return ring->works() ? std::move(ring) : nullptr;
  }

  void give_ring(std::unique_ptr<ReadRing> ring) {
    const std::lock_guard lock(mutex_);
    rings_.push_back(std::move(ring));
  }

  const int fd_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ReadRing>> rings_;  // that no thread has
  std::size_t to_be_made_ = kMostRings;           // none where the kernel refuses one
};

}  // namespace

std::unique_ptr<BlockBackend> make_read_backend(int fd) {
  return std::make_unique<ReadBackend>(fd);
}

}  // namespace tensorshelf
