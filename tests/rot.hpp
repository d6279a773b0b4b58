// Values that rot on a medium: where they lie, and a bit that flips there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tensorshelf/medium.hpp>

namespace tensorshelf::testing {

inline void flip(Medium& medium, std::uint64_t at) {
  const std::uint64_t page_at = at / kPageBytes * kPageBytes;
  std::vector<std::byte> page(kPageBytes);
  medium.read(page_at, page);
  page[at - page_at] ^= std::byte{1};
  medium.wait(medium.write(page_at, page, 0));
}

// Of each page that begins as the bytes do.
inline std::vector<std::uint64_t> places_of(Medium& medium, std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> places;
  std::vector<std::byte> page(kPageBytes);
  for (std::uint64_t at = 0; at < medium.size(); at += kPageBytes) {
    medium.read(at, page);
    if (std::equal(page.begin(), page.begin() + 64, bytes.begin())) places.push_back(at);
  }
  return places;
}

}  // namespace tensorshelf::testing
