// Bytes to write, and whether what is read is the same. Compiled apart (bytes.cpp), optimised and
// under no sanitizer: element by element, as std::equal goes over std::byte, comparing took the
// better part of what the tests took there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensorshelf::testing {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::uint64_t size_bytes, std::uint64_t seed);  // the same for the same seed

bool same(std::span<const std::byte> left, std::span<const std::byte> right);
inline bool operator==(const Bytes& left, const Bytes& right) { return same(left, right); }

}  // namespace tensorshelf::testing
