// A place on one of the media of a shelf. Places are always named so, never by pointer.
#pragma once

#include <cstdint>

namespace tensorshelf {

inline constexpr std::uint64_t kPageBytes = 4096;          // alignment of every extent and write
inline constexpr std::uint64_t kChunkBytes = 1024 * 1024;  // of checksums and of choosing slots

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// A place says which medium it is on, in its highest byte: 0 for the first, or the only one, whose
// places are plain offsets.
inline constexpr unsigned kMaxMedia = 8;
inline constexpr std::uint64_t kMaxMediumBytes = std::uint64_t{1} << 56;
constexpr std::uint64_t place_on(unsigned medium, std::uint64_t offset) {
  return medium * kMaxMediumBytes + offset;
}
constexpr unsigned medium_of(std::uint64_t place) {
  return static_cast<unsigned>(place / kMaxMediumBytes);
}
constexpr std::uint64_t offset_of(std::uint64_t place) { return place % kMaxMediumBytes; }

struct Extent {
  std::uint64_t at = 0;          // a place; of a slot or a page a multiple of kPageBytes
  std::uint64_t size_bytes = 0;  // as used; the extent occupies round_up(size_bytes, kPageBytes)

  std::uint64_t end() const { return at + round_up(size_bytes, kPageBytes); }
  friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace tensorshelf
