// The block backend on io_uring: one ring, the file registered, each staging buffer registered
// when a large write first leaves from it. (Registering pins memory, and opening a shelf, which
// writes a few pages, has no time for tens of MiB.)
//
// The registered file is the very description that holds the shelf's lock. That matters when the
// process is killed: the kernel then finishes the writes in flight in the background, and the lock
// stays held until they ended, so that none can land among a successor's (I10).
#include <fmt/format.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.hpp"
#include "base/size_text.hpp"
#include "media/block/backend.hpp"
#include "media/block/os.hpp"

namespace tensorshelf {
namespace {

// From this size on, pinning pages per write costs more than a registered buffer.
constexpr std::uint64_t kRegisterFromBytes = 256 * 1024;
constexpr int kSubmitTries = 1000;

std::string memlock_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : size_text(limit.rlim_cur);
}

std::string refusal(int result) {
  switch (-result) {
    case EPERM:
    case EACCES:
      return "io_uring refused (EPERM: a seccomp profile, as Docker's default, or sysctl "
             "kernel.io_uring_disabled): writing with pwrite, which is slower. Allow io_uring in "
             "the profile, or set kernel.io_uring_disabled=0.";
    case ENOSYS:
      return "io_uring refused (ENOSYS: the kernel or the container lacks it): writing with "
             "pwrite, which is slower. Use a kernel from 5.6 on with CONFIG_IO_URING.";
    case ENOMEM:
      return fmt::format(
          "io_uring refused (ENOMEM: RLIMIT_MEMLOCK is {}): writing with pwrite, "
          "which is slower. Raise `ulimit -l`.",
          memlock_text());
    default:
      return fmt::format("io_uring refused ({}): writing with pwrite, which is slower.",
                         std::generic_category().message(-result));
  }
}

class UringBackend final : public BlockBackend {
 public:
  UringBackend(int fd, const StagingShape& shape)
      : fd_(fd), shape_(shape), registered_(shape.buffers, false) {}

  // 0 or a negative errno. The ring is tried with a real request: some sandboxes let it be made
  // and refuse to enter it.
  int start() {
    if (const int made = io_uring_queue_init(shape_.buffers, &ring_, 0); made < 0) return made;
    made_ = true;
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    if (const int entered = io_uring_submit_and_wait(&ring_, 1); entered < 0) return entered;
    io_uring_cqe* cqe = nullptr;
    if (const int seen = io_uring_peek_cqe(&ring_, &cqe); seen < 0) return seen;
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (result < 0) return result;
    fixed_file_ = io_uring_register_files(&ring_, &fd_, 1) == 0;
    return 0;
  }

  ~UringBackend() override {
    if (!made_) return;
    // A forked child may still hold the ring: let go of the file, and with it of the lock.
    if (fixed_file_) io_uring_unregister_files(&ring_);
    io_uring_queue_exit(&ring_);
  }

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    if (broken_ != 0) return {0, broken_};
    for (const DeviceWrite& write : writes) prepare(write);
    std::size_t begun = 0;
    int entered = 0;
    for (int tries = 0; begun < writes.size() && tries < kSubmitTries; ++tries) {
      entered = io_uring_submit(&ring_);
      if (entered > 0) begun += static_cast<std::size_t>(entered);
      // Else the kernel was short of memory for a moment, or a signal came.
      if (entered < 0 && entered != -EAGAIN && entered != -EINTR) break;
    }
    if (begun == writes.size()) return {begun, 0};
    // Entries still stand in the ring: entering again would write from reused buffers.
    broken_ = entered < 0 ? entered : -EIO;
    return {begun, broken_};
  }

  std::optional<DeviceCompletion> complete(bool block) override {
    io_uring_cqe* cqe = nullptr;
    int seen = 0;
    do {
      seen = block ? io_uring_wait_cqe(&ring_, &cqe) : io_uring_peek_cqe(&ring_, &cqe);
    } while (block && (seen == -EINTR || seen == -EAGAIN));
    if (seen < 0) {
      if (!block) return {};
      return DeviceCompletion{DeviceCompletion::kBroken, seen};
    }
    const DeviceCompletion completion{static_cast<unsigned>(cqe->user_data), cqe->res};
    io_uring_cqe_seen(&ring_, cqe);
    return completion;
  }

  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    return pwrite_once(fd_, at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    return pread_once(fd_, at, bytes);
  }
  int sync() override { return sync_once(fd_); }

  std::vector<std::string> notes() const override {
    if (register_error_ == 0) return {};
    if (register_error_ == -ENOMEM) {
      return {
          fmt::format("io_uring buffers not registered (ENOMEM: RLIMIT_MEMLOCK is {}, {} "
                      "needed): each write pins its pages anew. Raise `ulimit -l`.",
                      memlock_text(), size_text(shape_.memory.size()))};
    }
    return {
        fmt::format("io_uring buffers not registered ({}): each write pins its pages "
                    "anew. Use a kernel from 5.19 on.",
                    std::generic_category().message(-register_error_))};
  }

  void abandon() noexcept override {
    if (made_) ::close(ring_.ring_fd);
    made_ = false;
  }

 private:
  void prepare(const DeviceWrite& write) {
    const bool fixed_buffer = buffer_is_registered(write);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    TENSORSHELF_ASSERT(sqe != nullptr);  // the ring has an entry per buffer
    const int file = fixed_file_ ? 0 : fd_;
    const auto size = static_cast<unsigned>(write.bytes.size());
    if (fixed_buffer) {
      io_uring_prep_write_fixed(sqe, file, write.bytes.data(), size, write.at,
                                static_cast<int>(write.buffer));
    } else {
      io_uring_prep_write(sqe, file, write.bytes.data(), size, write.at);
    }
    if (fixed_file_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    sqe->user_data = write.buffer;
  }

  bool buffer_is_registered(const DeviceWrite& write) {
    const auto buffer =
        shape_.memory.subspan(write.buffer * shape_.buffer_bytes, shape_.buffer_bytes);
    const std::less<const std::byte*> lies_before;
    if (lies_before(write.bytes.data(), buffer.data()) ||
        !lies_before(write.bytes.data(), buffer.data() + buffer.size())) {
      return false;  // lent
    }
    if (registered_[write.buffer]) return true;
    if (register_error_ != 0 || write.bytes.size() < kRegisterFromBytes) return false;
    int result = table_made_ ? 0 : io_uring_register_buffers_sparse(&ring_, shape_.buffers);
    if (result == 0) {
      table_made_ = true;
      const iovec range{buffer.data(), buffer.size()};
      __u64 tag = 0;
      result = io_uring_register_buffers_update_tag(&ring_, write.buffer, &range, &tag, 1);
    }
    if (result < 0) {
      register_error_ = result;
      return false;
    }
    registered_[write.buffer] = true;
    return true;
  }

  const int fd_;
  const StagingShape shape_;
  io_uring ring_{};
  bool made_ = false;
  bool fixed_file_ = false;
  bool table_made_ = false;
  std::vector<bool> registered_;
  int register_error_ = 0;  // then no more are; its text waits, for submit() allocates nothing
  int broken_ = 0;
};

}  // namespace

std::unique_ptr<BlockBackend> make_uring_backend(int fd, const StagingShape& shape,
                                                 std::vector<std::string>& notes) {
  auto backend = std::make_unique<UringBackend>(fd, shape);
  if (const int result = backend->start(); result < 0) {
    notes.push_back(refusal(result));
    return nullptr;
  }
  return backend;
}

bool io_uring_supported() { return true; }

}  // namespace tensorshelf
