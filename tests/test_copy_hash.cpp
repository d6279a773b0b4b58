// Every kernel that this CPU runs, against libxxhash: the same hash, the same bytes, and not a byte
// more, for every size, seed and alignment that takes another path.
#include <xxhash.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/copy_hash.hpp"
#include "base/copy_kernels.hpp"
#include "catch.hpp"

namespace tensorshelf {
namespace {

constexpr std::size_t kMargin = 256;  // watched on both sides of the target
constexpr std::byte kUntouched{0xA5};
constexpr std::uint64_t kSeeds[] = {0, 1, 0x9E3779B185EBCA87, ~std::uint64_t{0}};

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937_64 random(20240229);
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

// A target for `size` bytes, 64-byte aligned or up to 63 bytes further, with margins.
class Target {
 public:
  explicit Target(std::size_t size) : bytes_(size + 2 * kMargin + 128) {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kMargin;
    begin_ = bytes_.data() + kMargin + (64 - at % 64) % 64;
  }

  std::byte* prepare(std::size_t size, std::size_t misalign) {
    std::memset(begin_ - kMargin, static_cast<int>(kUntouched), size + misalign + 2 * kMargin);
    return begin_ + misalign;
  }

  bool holds(std::span<const std::byte> source, std::size_t misalign) const {
    const std::byte* at = begin_ + misalign;
    for (std::size_t n = 1; n <= kMargin; ++n) {
      if (at[-static_cast<std::ptrdiff_t>(n)] != kUntouched) return false;
    }
    for (std::size_t n = 0; n < kMargin; ++n) {
      if (at[source.size() + n] != kUntouched) return false;
    }
    return source.empty() || std::memcmp(at, source.data(), source.size()) == 0;
  }

 private:
  std::vector<std::byte> bytes_;
  std::byte* begin_;
};

// One kernel on one input: hash alone, and hash and copy with each kind of stores.
bool agrees(const CopyKernel& kernel, std::span<const std::byte> source, std::uint64_t seed,
            Target& target, std::size_t misalign) {
  const std::uint64_t expected = XXH3_64bits_withSeed(source.data(), source.size(), seed);
  if (kernel.hash(source.data(), source.size(), seed) != expected) return false;
  for (const Stores stores : {Stores::cached, Stores::streaming}) {
    const std::size_t shift = stores == Stores::cached ? misalign : 0;
    std::byte* at = target.prepare(source.size(), shift);
    if (kernel.copy_and_hash(at, source.data(), source.size(), seed, stores) != expected) {
      return false;
    }
    drain_stores();
    if (!target.holds(source, shift)) return false;
    at = target.prepare(source.size(), shift);
    kernel.copy(at, source.data(), source.size(), stores);
    drain_stores();
    if (!target.holds(source, shift)) return false;
  }
  return true;
}

TEST_CASE("every kernel computes XXH3-64 and copies exactly, at every size up to 5000 bytes") {
  const auto bytes = random_bytes(5000 + 64);
  Target target(5000 + 64);
  for (const CopyKernel& kernel : copy_kernels()) {
    for (std::size_t size = 0; size <= 5000; ++size) {
      const std::size_t misalign = (size * 7) % 64;
      const std::uint64_t seed = kSeeds[size % std::size(kSeeds)] ^ (size << 20);
      INFO(kernel.name << " size " << size << " seed " << seed);
      REQUIRE(agrees(kernel, std::span(bytes).subspan(misalign, size), seed, target, misalign));
    }
  }
}

TEST_CASE("every kernel agrees at the edges of stripes, blocks, pages and chunks, for each seed") {
  const auto bytes = random_bytes((1 << 20) + 8192);
  Target target(bytes.size());
  std::vector<std::size_t> sizes;
  for (const std::size_t edge : {8192, 16384, 16384 + 64, 32768, 65536, 1 << 20}) {
    for (const int off : {-1025, -65, -64, -63, -1, 0, 1, 63, 64, 65, 128, 129, 1024, 1088}) {
      sizes.push_back(edge + static_cast<std::size_t>(off));
    }
  }
  for (const CopyKernel& kernel : copy_kernels()) {
    for (const std::size_t size : sizes) {
      for (const std::uint64_t seed : kSeeds) {
        INFO(kernel.name << " size " << size << " seed " << seed);
        REQUIRE(agrees(kernel, std::span(bytes).subspan(size % 61, size), seed, target, 8));
      }
    }
  }
}

TEST_CASE("every kernel takes a source at every alignment") {
  const auto bytes = random_bytes(40000 + 64);
  Target target(40000);
  for (const CopyKernel& kernel : copy_kernels()) {
    for (std::size_t misalign = 0; misalign < 64; ++misalign) {
      INFO(kernel.name << " misaligned by " << misalign);
      REQUIRE(agrees(kernel, std::span(bytes).subspan(misalign, 39999), 7, target, misalign));
    }
  }
}

TEST_CASE("a short copy over part of its own source hashes the bytes as they were") {
  constexpr std::size_t kShort = 240;
  const auto before = random_bytes(kShort);
  for (const CopyKernel& kernel : copy_kernels()) {
    for (std::size_t size = 1; size <= kShort; ++size) {
      for (const std::size_t shift : {std::size_t{1}, size / 2, size - 1}) {
        INFO(kernel.name << " size " << size << " shifted by " << shift);
        auto bytes = before;
        bytes.resize(2 * kShort);
        const std::uint64_t hash =
            kernel.copy_and_hash(bytes.data() + shift, bytes.data(), size, 5, Stores::cached);
        REQUIRE(hash == XXH3_64bits_withSeed(before.data(), size, 5));
        REQUIRE(std::memcmp(bytes.data() + shift, before.data(), size) == 0);
      }
    }
  }
}

// A chunk of a source that others change meanwhile is copied first, and its copy hashed (I9).
TEST_CASE("a long copy downwards over part of its own source hashes the bytes as they were") {
  constexpr std::size_t kMost = 2000;
  const auto before = random_bytes(kMost + 64);
  for (const CopyKernel& kernel : copy_kernels()) {
    for (std::size_t size = 241; size <= kMost; ++size) {
      INFO(kernel.name << " size " << size);
      auto bytes = before;
      const std::byte* const source = bytes.data() + 32;
      const std::uint64_t hash =
          kernel.copy_and_hash(bytes.data(), source, size, 5, Stores::cached);
      REQUIRE(std::memcmp(bytes.data(), before.data() + 32, size) == 0);
      REQUIRE(hash == XXH3_64bits_withSeed(before.data() + 32, size, 5));
    }
  }
}

TEST_CASE("the public functions run the first kernel, and portable code is always there") {
  REQUIRE(copy_kernels().back().name == "portable");
  REQUIRE(copy_kernel_name() == copy_kernels().front().name);
  const auto bytes = random_bytes(5000);
  Target target(5000);
  const std::uint64_t expected = XXH3_64bits_withSeed(bytes.data(), bytes.size(), 3);
  REQUIRE(hash_bytes(bytes, 3) == expected);
  REQUIRE(copy_and_hash(target.prepare(5000, 0), bytes, 3, Stores::streaming) == expected);
  drain_stores();
  REQUIRE(target.holds(bytes, 0));
  copy_only(target.prepare(5000, 0), bytes, Stores::streaming);
  drain_stores();
  REQUIRE(target.holds(bytes, 0));
}

TEST_CASE("a flipped bit anywhere changes the hash") {
  auto bytes = random_bytes(4096 + 17);
  const std::uint64_t before = hash_bytes(bytes, 5);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{0x10};
    REQUIRE(hash_bytes(bytes, 5) != before);
    bytes[at] ^= std::byte{0x10};
  }
  REQUIRE(hash_bytes(bytes, 5) == before);
}

}  // namespace
}  // namespace tensorshelf
