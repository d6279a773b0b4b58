// The kernel for AVX2: a stripe is two registers.
#include "base/copy_kernels.hpp"

#if TENSORSHELF_X86
#include <immintrin.h>

#include <cstring>

namespace tensorshelf {
namespace {

#define TENSORSHELF_TARGET __attribute__((target("avx2")))
constexpr std::size_t kPages = 2;
struct Stripe {
  __m256i low, high;
};

TENSORSHELF_TARGET inline Stripe load(const std::byte* from) {
  const auto* at = reinterpret_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}

TENSORSHELF_TARGET inline void store(std::byte* to, const Stripe& stripe) {
  auto* at = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(at, stripe.low);
  _mm256_storeu_si256(at + 1, stripe.high);
}

TENSORSHELF_TARGET inline void stream(std::byte* to, const Stripe& stripe) {
  auto* at = reinterpret_cast<__m256i*>(to);
  _mm256_stream_si256(at, stripe.low);
  _mm256_stream_si256(at + 1, stripe.high);
}

TENSORSHELF_TARGET inline __m256i accumulate(__m256i lanes, __m256i data, __m256i key) {
  const __m256i keyed = _mm256_xor_si256(data, key);
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  const __m256i swapped = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(product, _mm256_add_epi64(lanes, swapped));
}

TENSORSHELF_TARGET inline Stripe accumulate(const Stripe& lanes, const Stripe& data,
                                            const Stripe& key) {
  return {accumulate(lanes.low, data.low, key.low), accumulate(lanes.high, data.high, key.high)};
}

TENSORSHELF_TARGET inline __m256i scramble(__m256i lanes, __m256i key) {
  const __m256i mixed =
      _mm256_xor_si256(_mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47)), key);
  const __m256i prime = _mm256_set1_epi64x(xxh3::kPrime32_1);
  const __m256i low = _mm256_mul_epu32(mixed, prime);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
  return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

TENSORSHELF_TARGET inline Stripe scramble(const Stripe& lanes, const Stripe& key) {
  return {scramble(lanes.low, key.low), scramble(lanes.high, key.high)};
}

TENSORSHELF_TARGET inline Stripe add(const Stripe& left, const Stripe& right) {
  return {_mm256_add_epi64(left.low, right.low), _mm256_add_epi64(left.high, right.high)};
}

TENSORSHELF_TARGET inline Stripe offset_words(const Stripe& words, std::uint64_t delta) {
  const auto plus = static_cast<long long>(delta);
  const auto minus = static_cast<long long>(0 - delta);
  const __m256i by = _mm256_set_epi64x(minus, plus, minus, plus);
  return {_mm256_add_epi64(words.low, by), _mm256_add_epi64(words.high, by)};
}

#include "base/copy_kernel_loop.inc"

}  // namespace

const CopyKernel kAvx2Kernel = {"avx2", copy_and_hash, copy, hash};

}  // namespace tensorshelf
#endif
