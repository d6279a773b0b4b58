// A set of chunk indices of one tensor. Up to 64 chunks it allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/planted.hpp"

namespace tensorshelf {

class ChunkSet {
 public:
  explicit ChunkSet(std::uint64_t chunk_count = 0, bool all = false) : count_(chunk_count) {
    if (count_ > 64) many_.resize((count_ + 63) / 64);
    if (all) fill();
  }

  void insert(std::uint64_t chunk) { word(chunk) |= bit(chunk); }
  void erase(std::uint64_t chunk) { word(chunk) &= ~bit(chunk); }
  bool contains(std::uint64_t chunk) const { return (word(chunk) & bit(chunk)) != 0; }

  void clear() {
    const std::uint64_t last = many_.empty() ? 0 : many_.back();
    set_all(0);
    if (planted(Bug::chunk_set_edge) && !many_.empty()) many_.back() = last;
  }
  void fill() {
    set_all(~0ULL);
    const std::uint64_t rest = count_ % 64;
    if (rest != 0) word(count_ - 1) = (1ULL << rest) - 1;
    if (count_ == 0) few_ = 0;
  }
  bool empty() const {
    for (std::uint64_t w : many_) {
      if (w != 0) return false;
    }
    return few_ == 0;
  }

 private:
  static std::uint64_t bit(std::uint64_t chunk) { return 1ULL << (chunk % 64); }
  std::uint64_t& word(std::uint64_t chunk) { return many_.empty() ? few_ : many_[chunk / 64]; }
  std::uint64_t word(std::uint64_t chunk) const { return many_.empty() ? few_ : many_[chunk / 64]; }
  void set_all(std::uint64_t value) {
    if (many_.empty()) {
      few_ = value;
    } else {
      for (std::uint64_t& w : many_) w = value;
    }
  }

  std::uint64_t count_;
  std::uint64_t few_ = 0;
  std::vector<std::uint64_t> many_;
};

}  // namespace tensorshelf
