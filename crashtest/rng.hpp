// Small deterministic random numbers: the same seed gives the same run on every machine, which
// std::uniform_int_distribution does not promise.
#pragma once

#include <cstdint>

#include "base/mixed.hpp"

namespace tensorshelf::crash {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mixed(seed)) {}
  std::uint64_t next() { return mixed(state_++); }
  std::uint64_t below(std::uint64_t n) { return next() % n; }  // n > 0; the bias is harmless here
  bool one_in(std::uint64_t n) { return n != 0 && below(n) == 0; }  // n == 0: never

 private:
  std::uint64_t state_;
};

}  // namespace tensorshelf::crash
