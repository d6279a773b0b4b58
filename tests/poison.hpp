// Mapped memory that fails when it is touched, as a damaged line of persistent memory does: through
// userfaultfd (Linux 6.6), whose poison the kernel answers with SIGBUS, BUS_MCEERR_AR.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorshelf::testing {

class Poison {
 public:
  // Whole pages of a shared mapping of a tmpfs file or memfd; no data is lost.
  explicit Poison(std::span<const std::byte> pages) {
    fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | 1));  // 1: UFFD_USER_MODE_ONLY
    uffdio_api api = {};
    api.api = UFFD_API;
    api.features = std::uint64_t{1} << 14;  // UFFD_FEATURE_POISON, younger than Debian 12's headers
    if (fd_ < 0 || ::ioctl(fd_, UFFDIO_API, &api) != 0) return;
    range_ = {reinterpret_cast<std::uintptr_t>(pages.data()), pages.size()};
    uffdio_register registered = {};
    registered.range = range_;
    registered.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (::ioctl(fd_, UFFDIO_REGISTER, &registered) != 0) return;
    ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
    struct {
      uffdio_range range;
      std::uint64_t mode;
      std::int64_t updated;
    } poison = {range_, 0, 0};
    laid_ = ::ioctl(fd_, _IOWR(UFFDIO, 0x08, poison), &poison) == 0;  // UFFDIO_POISON
  }
  Poison(const Poison&) = delete;
  ~Poison() {  // the pages can be touched again
    if (fd_ < 0) return;
    ::ioctl(fd_, UFFDIO_UNREGISTER, &range_);
    ::close(fd_);
    ::madvise(reinterpret_cast<void*>(range_.start), range_.len, MADV_DONTNEED);
  }

  bool laid() const { return laid_; }  // false where this kernel or sandbox has no poison

 private:
  int fd_ = -1;
  uffdio_range range_ = {};
  bool laid_ = false;
};

}  // namespace tensorshelf::testing
