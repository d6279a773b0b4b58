// Small deterministic random numbers: the same seed gives the same run on every machine, which
// std::uniform_int_distribution does not promise.
#pragma once

#include <cstdint>

namespace tensorshelf::crash {

// SplitMix64 (Steele, Lea, Flood 2014): a bijective mixer, so also a good hash of a number.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t next() { return mix(state_++); }
  std::uint64_t below(std::uint64_t n) { return next() % n; }  // n > 0; the bias is harmless here
  bool one_in(std::uint64_t n) { return n != 0 && below(n) == 0; }  // n == 0: never

 private:
  std::uint64_t state_;
};

}  // namespace tensorshelf::crash
