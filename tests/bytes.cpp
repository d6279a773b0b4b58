#include "bytes.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace tensorshelf::testing {

Bytes pattern(std::uint64_t size_bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(&bytes[at], &word, std::min<std::size_t>(8, bytes.size() - at));
  }
  return bytes;
}

bool same(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

}  // namespace tensorshelf::testing
