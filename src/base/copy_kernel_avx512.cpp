// The kernel for AVX-512 (AVX512F): a stripe is one register, and a cache line is one store.
#include "base/copy_kernels.hpp"

#if TENSORSHELF_X86
// GCC 12's own intrinsics leave the lanes that no mask selects uninitialized, and it then warns
// (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstring>

namespace tensorshelf {
namespace {

#define TENSORSHELF_TARGET __attribute__((target("avx512f")))
constexpr std::size_t kPages = 4;
using Stripe = __m512i;

TENSORSHELF_TARGET inline Stripe load(const std::byte* from) { return _mm512_loadu_si512(from); }

TENSORSHELF_TARGET inline void store(std::byte* to, const Stripe& stripe) {
  _mm512_storeu_si512(to, stripe);
}

TENSORSHELF_TARGET inline void stream(std::byte* to, const Stripe& stripe) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), stripe);
}

TENSORSHELF_TARGET inline Stripe accumulate(const Stripe& lanes, const Stripe& data,
                                            const Stripe& key) {
  const __m512i keyed = _mm512_xor_si512(data, key);
  const __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
  const __m512i swapped = _mm512_shuffle_epi32(data, _MM_PERM_BADC);
  return _mm512_add_epi64(product, _mm512_add_epi64(lanes, swapped));
}

TENSORSHELF_TARGET inline Stripe scramble(const Stripe& lanes, const Stripe& key) {
  const __m512i mixed =
      _mm512_xor_si512(_mm512_xor_si512(lanes, _mm512_srli_epi64(lanes, 47)), key);
  const __m512i prime = _mm512_set1_epi64(xxh3::kPrime32_1);
  const __m512i low = _mm512_mul_epu32(mixed, prime);
  const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);
  return _mm512_add_epi64(low, _mm512_slli_epi64(high, 32));
}

TENSORSHELF_TARGET inline Stripe add(const Stripe& left, const Stripe& right) {
  return _mm512_add_epi64(left, right);
}

TENSORSHELF_TARGET inline Stripe offset_words(const Stripe& words, std::uint64_t delta) {
  const __m512i plus = _mm512_set1_epi64(static_cast<long long>(delta));
  return _mm512_mask_sub_epi64(_mm512_add_epi64(words, plus), 0xAA, words, plus);
}

#include "base/copy_kernel_loop.inc"

}  // namespace

const CopyKernel kAvx512Kernel = {"avx512", copy_and_hash, copy, hash};

}  // namespace tensorshelf
#endif
