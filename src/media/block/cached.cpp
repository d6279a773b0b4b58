#include "media/block/cached.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "media/block/os.hpp"
#include "media/file_lock.hpp"

namespace tensorshelf {
namespace {

class CachedBackend final : public BlockBackend {
 public:
  CachedBackend(std::unique_ptr<BlockBackend> inner, int cached_fd)
      : inner_(std::move(inner)), cached_fd_(cached_fd) {}
  ~CachedBackend() override {
    if (cached_fd_ >= 0) ::close(cached_fd_);
  }
  CachedBackend(const CachedBackend&) = delete;
  CachedBackend& operator=(const CachedBackend&) = delete;

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    return inner_->submit(writes);
  }
  std::optional<DeviceCompletion> complete(bool block) override { return inner_->complete(block); }
  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    return inner_->write_now(at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    return inner_->read_now(at, bytes);
  }
  int sync() override { return inner_->sync(); }
  std::vector<std::string> notes() const override { return inner_->notes(); }
  void abandon() noexcept override {
    inner_->abandon();
    ::close(std::exchange(cached_fd_, -1));
  }

  bool caches() const override { return true; }
  std::int64_t write_cached(std::uint64_t at, std::span<const std::byte> bytes) override {
    return pwrite_once(cached_fd_, at, bytes);
  }
  std::int64_t read_cached(std::uint64_t at, std::span<std::byte> bytes) override {
    return pread_once(cached_fd_, at, bytes);
  }

 private:
  const std::unique_ptr<BlockBackend> inner_;
  int cached_fd_;
};

}  // namespace

// By way of /proc: a name could lead to another file by now, and dup() shares O_DIRECT. What /proc
// is, nobody knows: so it is looked at whether the file is the same.
std::unique_ptr<BlockBackend> make_cached_backend(std::unique_ptr<BlockBackend> inner, int fd) {
  const int cached = ::open(fmt::format("/proc/thread-self/fd/{}", fd).c_str(), O_RDWR | O_CLOEXEC);
  if (cached < 0) return inner;
  struct stat first {};
  struct stat second {};
  const bool same =
      ::fstat(fd, &first) == 0 && ::fstat(cached, &second) == 0 && same_inode(first, second);
  if (!same) {
    ::close(cached);
    return inner;
  }
  // What a failed flush of an earlier writer left there is not what the drive has.
  ::posix_fadvise(cached, 0, 0, POSIX_FADV_DONTNEED);
  ::posix_fadvise(cached, 0, 0, POSIX_FADV_RANDOM);  // no page but those that are asked for
  return std::make_unique<CachedBackend>(std::move(inner), cached);
}

}  // namespace tensorshelf
