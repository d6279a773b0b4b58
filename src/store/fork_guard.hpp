// Tells a forked child from the process that opened the shelf, at the cost of one load: a page
// that the kernel wipes in the child (MADV_WIPEONFORK, Linux 4.14). A child must never commit.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "base/check.hpp"

namespace tensorshelf {

class ForkGuard {
 public:
  ForkGuard() {
    void* page =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TENSORSHELF_ASSERT(page != MAP_FAILED);
    mark_ = static_cast<volatile char*>(page);
    const int wiped = ::madvise(page, kBytes, MADV_WIPEONFORK);
    TENSORSHELF_ASSERT(wiped == 0);
    *mark_ = 1;
  }
  ~ForkGuard() { ::munmap(const_cast<char*>(mark_), kBytes); }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool in_child() const { return *mark_ == 0; }

 private:
  static constexpr std::size_t kBytes = 4096;
  volatile char* mark_;
};

}  // namespace tensorshelf
