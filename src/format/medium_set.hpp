// Some of the media of a shelf, by their numbers.
#pragma once

#include <bit>
#include <cstdint>

#include <tensorshelf/extent.hpp>

namespace tensorshelf {

class MediumSet {
 public:
  static constexpr MediumSet all() {
    MediumSet set;
    set.bits_ = 0xFF;
    return set;
  }

  constexpr bool has(unsigned medium) const { return (bits_ >> medium & 1U) != 0; }
  constexpr bool has_further() const { return bits_ > 1; }  // one beside the first
  constexpr unsigned first_missing() const {                // kMaxMedia where none is
    return static_cast<unsigned>(std::countr_one(bits_));
  }
  constexpr void add(unsigned medium) { bits_ |= static_cast<std::uint8_t>(1U << medium); }
  constexpr void add(MediumSet other) { bits_ |= other.bits_; }
  friend constexpr bool operator==(MediumSet, MediumSet) = default;

 private:
  static_assert(kMaxMedia == 8);
  std::uint8_t bits_ = 0;  // each tensor has one
};

}  // namespace tensorshelf
