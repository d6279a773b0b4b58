// A set of chunk indices of one tensor. Up to 64 chunks it allocates nothing. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/planted.hpp"

namespace tensorshelf {

class ChunkSet {
 public:
  explicit ChunkSet(std::uint64_t chunk_count) {
    if (chunk_count > 64) many_.resize((chunk_count + 63) / 64);
  }

  void insert(std::uint64_t chunk) { word(chunk) |= bit(chunk); }
  void erase(std::uint64_t chunk) { word(chunk) &= ~bit(chunk); }
  bool contains(std::uint64_t chunk) const { return (word(chunk) & bit(chunk)) != 0; }

  void clear() {
    const std::uint64_t last = many_.empty() ? 0 : many_.back();
    few_ = 0;
    std::fill(many_.begin(), many_.end(), 0);
    if (planted(Bug::chunk_set_edge) && !many_.empty()) many_.back() = last;
  }

 private:
  static std::uint64_t bit(std::uint64_t chunk) { return 1ULL << (chunk % 64); }
  std::uint64_t& word(std::uint64_t chunk) { return many_.empty() ? few_ : many_[chunk / 64]; }
  std::uint64_t word(std::uint64_t chunk) const { return many_.empty() ? few_ : many_[chunk / 64]; }

  std::uint64_t few_ = 0;
  std::vector<std::uint64_t> many_;
};

}  // namespace tensorshelf
