// Host memory that a device copies into and out of by itself: page-locked, in huge pages where the
// kernel has some, and on the NUMA node of the thread that made it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tensorshelf::cuda {

// A forked child does not have it: a page that a device writes to must not become another one of
// ours. Where a driver locks no memory that it has not allocated, it allocates this, in its own
// way.
class PageLocked {
 public:
  // A multiple of kHugePageBytes; `device` is for the error's text. Errc::io where there is no
  // memory, or the driver locks none.
  PageLocked(std::uint64_t size_bytes, int device);
  ~PageLocked();
  PageLocked(const PageLocked&) = delete;
  PageLocked& operator=(const PageLocked&) = delete;

  std::byte* data() const { return data_; }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  void unmap() noexcept;

  std::uint64_t size_bytes_;
  std::byte* data_ = nullptr;
  bool drivers_ = false;  // allocated by the driver
  const pid_t process_;
};

}  // namespace tensorshelf::cuda
