#include "base/huge_pages.hpp"

#include <sys/mman.h>

namespace tensorshelf {

void prefer_huge_pages(std::span<std::byte> memory) {
  ::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
}

void make_huge_pages(std::span<std::byte> memory) {
#ifndef MADV_COLLAPSE  // which Linux has from 6.1 on, and glibc names from 2.37 on
  constexpr int MADV_COLLAPSE = 25;
#endif
  ::madvise(memory.data(), memory.size(), MADV_COLLAPSE);
}

}  // namespace tensorshelf
