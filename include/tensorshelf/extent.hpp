// A place on a medium. Places are always named so, never by pointer.
#pragma once

#include <cstdint>

namespace tensorshelf {

inline constexpr std::uint64_t kPageBytes = 4096;          // alignment of every extent and write
inline constexpr std::uint64_t kChunkBytes = 1024 * 1024;  // of checksums and of choosing slots

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

struct Extent {
  std::uint64_t at = 0;          // offset in bytes, a multiple of kPageBytes
  std::uint64_t size_bytes = 0;  // as used; the extent occupies round_up(size_bytes, kPageBytes)

  std::uint64_t end() const { return at + round_up(size_bytes, kPageBytes); }
  friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace tensorshelf
