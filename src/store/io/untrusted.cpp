#include "store/io/untrusted.hpp"

#include <cstring>

#include "base/copy_hash.hpp"
#include "base/fault_guard.hpp"

namespace tensorshelf {

std::optional<std::uint64_t> UntrustedBytes::hash(std::uint64_t seed) const {
  std::uint64_t hash = 0;
  if (!touch_mapped(bytes_, [&] { hash = hash_bytes(bytes_, seed); })) return std::nullopt;
  return hash;
}

bool UntrustedBytes::copy_into(std::span<std::byte> target) const {
  return touch_mapped(bytes_, [&] { std::memcpy(target.data(), bytes_.data(), bytes_.size()); });
}

}  // namespace tensorshelf
