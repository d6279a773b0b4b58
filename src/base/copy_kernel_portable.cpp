// The kernel for every CPU. On x86-64 it still streams, for SSE2 is always there; elsewhere a
// streaming store is an ordinary one, and a medium that needs flushing has to flush.
#include <cstring>

#include "base/copy_kernels.hpp"

#if TENSORSHELF_X86
#include <emmintrin.h>
#endif

namespace tensorshelf {
namespace {

#define TENSORSHELF_TARGET
constexpr std::size_t kPages = 2;
struct Stripe {
  std::uint64_t words[8];
};

inline Stripe load(const std::byte* from) {
  Stripe stripe;
  std::memcpy(&stripe, from, sizeof stripe);
  return stripe;
}

inline void store(std::byte* to, const Stripe& stripe) { std::memcpy(to, &stripe, sizeof stripe); }

inline void stream(std::byte* to, const Stripe& stripe) {
#if TENSORSHELF_X86
  const auto* from = reinterpret_cast<const __m128i*>(&stripe);
  auto* at = reinterpret_cast<__m128i*>(to);
  for (int n = 0; n < 4; ++n) _mm_stream_si128(at + n, _mm_loadu_si128(from + n));
#else
  store(to, stripe);
#endif
}

inline Stripe accumulate(const Stripe& lanes, const Stripe& data, const Stripe& key) {
  Stripe sum;
  for (std::size_t n = 0; n < 8; ++n) {
    const std::uint64_t keyed = data.words[n] ^ key.words[n];
    sum.words[n] = lanes.words[n] + data.words[n ^ 1] + (keyed & 0xFFFFFFFF) * (keyed >> 32);
  }
  return sum;
}

inline Stripe scramble(const Stripe& lanes, const Stripe& key) {
  Stripe mixed;
  for (std::size_t n = 0; n < 8; ++n) {
    const std::uint64_t word = lanes.words[n] ^ (lanes.words[n] >> 47) ^ key.words[n];
    mixed.words[n] = word * xxh3::kPrime32_1;
  }
  return mixed;
}

inline Stripe add(const Stripe& left, const Stripe& right) {
  Stripe sum;
  for (std::size_t n = 0; n < 8; ++n) sum.words[n] = left.words[n] + right.words[n];
  return sum;
}

inline Stripe offset_words(const Stripe& words, std::uint64_t delta) {
  Stripe sum;
  for (std::size_t n = 0; n < 8; ++n) {
    sum.words[n] = n % 2 == 0 ? words.words[n] + delta : words.words[n] - delta;
  }
  return sum;
}

#include "base/copy_kernel_loop.inc"

}  // namespace

const CopyKernel kPortableKernel = {"portable", copy_and_hash, copy, hash};

}  // namespace tensorshelf
