// Spreads what counts one by one (the finalizer of SplitMix64, Steele et al. 2014): bijective, so
// also a good hash of a number.
#pragma once

#include <cstdint>

namespace tensorshelf {

constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace tensorshelf
