// Memory that a device reads from and writes to. Huge pages make large transfers a third faster, of
// a virtual drive twice as fast, and the first write of a page hundreds of times slower: so for
// memory that large ones go through. Advice: where it is refused all else is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorshelf {

inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

void prefer_huge_pages(std::span<std::byte> memory);  // as pages are first touched
void make_huge_pages(std::span<std::byte> memory);    // of those already touched

// Memory by itself, at a huge page; nothing has touched it.
template <std::uint64_t kBytes>
struct alignas(kHugePageBytes) HugeRoom {
  static_assert(kBytes % kHugePageBytes == 0);
  HugeRoom() { prefer_huge_pages(bytes); }  // NOLINT: the bytes are for whoever writes them
  std::byte bytes[kBytes];
};

}  // namespace tensorshelf
