// The kernels behind copy_hash.hpp, one per instruction set, and the scalar parts of XXH3-64 that
// they share. For copy_hash.cpp and its test alone.
//
// XXH3-64 of more than 240 bytes: the input is cut into stripes of 64 bytes, 16 stripes are a
// block. Eight 64-bit lanes take in stripe n of a block under the secret's bytes from 8 n on and
// are scrambled after each block; the last 64 bytes, which may overlap a stripe already taken, go
// in under a place of their own, and the lanes are merged. The seed goes into the secret.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/stores.hpp"

namespace tensorshelf {

static_assert(std::endian::native == std::endian::little,
              "the medium's format is little-endian, and is read and written in place");

#if defined(__x86_64__)
#define TENSORSHELF_X86 1
#else
#define TENSORSHELF_X86 0
#endif

// Sizes are in bytes. `copy_and_hash` takes any size; streaming targets are 64-byte aligned.
struct CopyKernel {
  std::string_view name;
  std::uint64_t (*copy_and_hash)(std::byte* target, const std::byte* source, std::size_t size,
                                 std::uint64_t seed, Stores stores);
  void (*copy)(std::byte* target, const std::byte* source, std::size_t size, Stores stores);
  std::uint64_t (*hash)(const std::byte* source, std::size_t size, std::uint64_t seed);
};

// What this CPU runs, fastest first; the last is always "portable".
std::span<const CopyKernel> copy_kernels();

extern const CopyKernel kPortableKernel;
#if TENSORSHELF_X86
extern const CopyKernel kAvx2Kernel;
extern const CopyKernel kAvx512Kernel;
#endif

namespace xxh3 {

inline constexpr std::size_t kStripeBytes = 64;
inline constexpr std::size_t kBlockBytes = 1024;
inline constexpr std::size_t kSecretBytes = 192;
inline constexpr std::size_t kScrambleSecretAt = kSecretBytes - kStripeBytes;
inline constexpr std::size_t kLastStripeSecretAt = kSecretBytes - kStripeBytes - 7;
inline constexpr std::size_t kMergeSecretAt = 11;
inline constexpr std::size_t kShortBytes = 240;  // up to here XXH3 is another algorithm

inline constexpr std::uint32_t kPrime32_1 = 0x9E3779B1U;
inline constexpr std::uint64_t kPrime64_1 = 0x9E3779B185EBCA87ULL;

extern const std::uint64_t kSecret[kSecretBytes / 8];  // 64-byte aligned
extern const std::uint64_t kInitialLanes[8];           // 64-byte aligned

// The hash from the lanes after the last stripe.
std::uint64_t merge(const std::uint64_t* lanes, const std::byte* secret, std::size_t size);

// The hash of at most kShortBytes bytes, by libxxhash.
std::uint64_t hash_short(const std::byte* source, std::size_t size, std::uint64_t seed);

}  // namespace xxh3
}  // namespace tensorshelf
