// A set of chunk indices of one tensor. Up to 64 chunks it allocates nothing, and it is two words:
// every tensor has three. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/planted.hpp"

namespace tensorshelf {

class ChunkSet {
 public:
  explicit ChunkSet(std::uint64_t chunk_count) {
    if (chunk_count <= 64) return;
    few_ = (chunk_count + 63) / 64;
    many_ = std::make_unique<std::uint64_t[]>(few_);
  }

  void insert(std::uint64_t chunk) { word(chunk) |= bit(chunk); }
  void erase(std::uint64_t chunk) { word(chunk) &= ~bit(chunk); }
  bool contains(std::uint64_t chunk) const { return (word(chunk) & bit(chunk)) != 0; }

  void clear() {
    if (!many_) {
      few_ = 0;
      return;
    }
    const std::uint64_t all = planted(Bug::chunk_set_edge) ? few_ - 1 : few_;
    std::fill_n(many_.get(), all, 0);
  }

 private:
  static std::uint64_t bit(std::uint64_t chunk) { return 1ULL << (chunk % 64); }
  std::uint64_t& word(std::uint64_t chunk) { return many_ ? many_[chunk / 64] : few_; }
  std::uint64_t word(std::uint64_t chunk) const { return many_ ? many_[chunk / 64] : few_; }

  std::uint64_t few_ = 0;  // all of it, or the length of many_
  std::unique_ptr<std::uint64_t[]> many_;
};

}  // namespace tensorshelf
