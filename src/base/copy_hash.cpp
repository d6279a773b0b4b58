// The public face of the kernels: chooses one, once, and owns the scalar parts of XXH3-64.
#include "base/copy_hash.hpp"

#include <xxhash.h>

#include <atomic>
#include <cstring>

#include "base/check.hpp"
#include "base/copy_kernels.hpp"

#if TENSORSHELF_X86
#include <immintrin.h>
#endif

namespace tensorshelf {

namespace xxh3 {

// Specification, section "XXH3 algorithm": the default secret, as little-endian words.
alignas(64) constexpr std::uint64_t kSecret[kSecretBytes / 8] = {
    0xBE4BA423396CFEB8ULL, 0x1CAD21F72C81017CULL, 0xDB979083E96DD4DEULL, 0x1F67B3B7A4A44072ULL,
    0x78E5C0CC4EE679CBULL, 0x2172FFCC7DD05A82ULL, 0x8E2443F7744608B8ULL, 0x4C263A81E69035E0ULL,
    0xCB00C391BB52283CULL, 0xA32E531B8B65D088ULL, 0x4EF90DA297486471ULL, 0xD8ACDEA946EF1938ULL,
    0x3F349CE33F76FAA8ULL, 0x1D4F0BC7C7BBDCF9ULL, 0x3159B4CD4BE0518AULL, 0x647378D9C97E9FC8ULL,
    0xC3EBD33483ACC5EAULL, 0xEB6313FAFFA081C5ULL, 0x49DAF0B751DD0D17ULL, 0x9E68D429265516D3ULL,
    0xFCA1477D58BE162BULL, 0xCE31D07AD1B8F88FULL, 0x280416958F3ACB45ULL, 0x7E404BBBCAFBD7AFULL,
};

// XXH_PRIME32_3, 64_1, 64_2, 64_3, 64_4, 32_2, 64_5, 32_1.
alignas(64) constexpr std::uint64_t kInitialLanes[8] = {
    0xC2B2AE3DULL,         kPrime64_1,    0xC2B2AE3D27D4EB4FULL, 0x165667B19E3779F9ULL,
    0x85EBCA77C2B2AE63ULL, 0x85EBCA77ULL, 0x27D4EB2F165667C5ULL, kPrime32_1,
};

namespace {

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// The 128-bit product of two words, its halves folded into one.
std::uint64_t multiply_fold(std::uint64_t left, std::uint64_t right) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(left) * right;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t merge(const std::uint64_t* lanes, const std::byte* secret, std::size_t size) {
  std::uint64_t hash = size * kPrime64_1;
  for (std::size_t pair = 0; pair < 4; ++pair) {
    const std::byte* key = secret + kMergeSecretAt + 16 * pair;
    hash += multiply_fold(lanes[2 * pair] ^ word_at(key), lanes[2 * pair + 1] ^ word_at(key + 8));
  }
  hash ^= hash >> 37;
  hash *= 0x165667919E3779F9ULL;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_short(const std::byte* source, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(source, size, seed);
}

}  // namespace xxh3

std::span<const CopyKernel> copy_kernels() {
#if TENSORSHELF_X86
  static const CopyKernel all[] = {kAvx512Kernel, kAvx2Kernel, kPortableKernel};
  static const std::size_t first = __builtin_cpu_supports("avx512f") ? 0
                                   : __builtin_cpu_supports("avx2")  ? 1
                                                                     : 2;
#else
  static const CopyKernel all[] = {kPortableKernel};
  constexpr std::size_t first = 0;
#endif
  return std::span(all).subspan(first);
}

namespace {

const CopyKernel& kernel() {
  static const CopyKernel& chosen = copy_kernels().front();
  return chosen;
}

bool aligned_for(Stores stores, const std::byte* target) {
  return stores == Stores::cached || reinterpret_cast<std::uintptr_t>(target) % 64 == 0;
}

}  // namespace

std::uint64_t copy_and_hash(std::byte* target, std::span<const std::byte> source,
                            std::uint64_t seed, Stores stores) {
  TENSORSHELF_ASSERT(aligned_for(stores, target));
  return kernel().copy_and_hash(target, source.data(), source.size(), seed, stores);
}

void copy_only(std::byte* target, std::span<const std::byte> source, Stores stores) {
  TENSORSHELF_ASSERT(aligned_for(stores, target));
  kernel().copy(target, source.data(), source.size(), stores);
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  return kernel().hash(bytes.data(), bytes.size(), seed);
}

void drain_stores() {
#if TENSORSHELF_X86
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

std::string_view copy_kernel_name() { return kernel().name; }

}  // namespace tensorshelf
