// The fused kernel: one pass over the source copies it and hashes it, so that a checksum costs no
// second trip through memory and is of the bytes as they were when copied (I9).
//
// The hash is XXH3-64 with a seed, bit for bit XXH3_64bits_withSeed() of libxxhash
// (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md, section "XXH3 algorithm"); a test
// compares the two. Thread-safe; chooses AVX-512, AVX2 or portable code once, at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/stores.hpp"

namespace tensorshelf {

// Copies source to target (which must not overlap) and returns the hash of what was copied.
// For Stores::streaming, target must be 64-byte aligned. The source may have any alignment.
std::uint64_t copy_and_hash(std::byte* target, std::span<const std::byte> source,
                            std::uint64_t seed, Stores stores);

// Copies alone, with the same stores: the limit that the benches hold copy_and_hash() against.
void copy_only(std::byte* target, std::span<const std::byte> source, Stores stores);

// XXH3-64 alone.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed);

// Drains this CPU's non-temporal stores (sfence): each thread must drain its own (I7).
void drain_stores();

// Which code runs here: "avx512", "avx2" or "portable". For reports.
std::string_view copy_kernel_name();

}  // namespace tensorshelf
