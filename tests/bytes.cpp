#include "bytes.hpp"

#include <cstring>

#include "base/mixed.hpp"

namespace tensorshelf::testing {
namespace {

// Memory that nobody else knows yet: sanitizers would only take their time.
__attribute__((no_sanitize("address", "thread", "undefined"))) void fill(std::byte* bytes,
                                                                         std::uint64_t size_bytes,
                                                                         std::uint64_t seed) {
  const std::uint64_t first = mixed(seed);
  std::uint64_t at = 0;
  for (; at + 8 <= size_bytes; at += 8) {
    const std::uint64_t word = mixed(first + at);
    __builtin_memcpy(bytes + at, &word, 8);
  }
  const std::uint64_t word = mixed(first + at);
  __builtin_memcpy(bytes + at, &word, size_bytes - at);
}

}  // namespace

Bytes pattern(std::uint64_t size_bytes, std::uint64_t seed) {
  Bytes bytes(size_bytes);
  fill(bytes.data(), size_bytes, seed);
  return bytes;
}

bool same(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

}  // namespace tensorshelf::testing
