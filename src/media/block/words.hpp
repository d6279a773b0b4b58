// Copies of the pages that words are stored in, so that storing a word need not read its page from
// the device first. A page is kept from its first word on, and follows every write over it.
//
// Not thread-safe where writes overlap a kept page: those, and store_word(), are the committer's
// alone. Writes elsewhere may come from any thread, and only look at the list of pages.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <tensorshelf/extent.hpp>

#include "media/block/os.hpp"

namespace tensorshelf {

class WordPages {
 public:
  static constexpr unsigned kMost = 32;  // root homes in two copies

  // The page, as last written or read; empty where it is not kept.
  std::span<std::byte> find(std::uint64_t page_at) {
    for (unsigned i = 0; i < count_.load(std::memory_order_acquire); ++i) {
      if (places_[i] == page_at) return page(i);
    }
    return {};
  }

  // Memory for a page that is not kept: kept from now on, or where the list is full, until the
  // next.
  std::span<std::byte> add(std::uint64_t page_at) {
    const unsigned index = count_.load(std::memory_order_relaxed);
    if (index == kMost) return page(kMost);
    places_[index] = page_at;
    return page(index);
  }
  void keep_added() {
    const unsigned count = count_.load(std::memory_order_relaxed);
    if (count < kMost) count_.store(count + 1, std::memory_order_release);
  }

  // A write of `bytes` at `at`, a multiple of kPageBytes, after which its last page ends in zeros.
  void follow(std::uint64_t at, std::span<const std::byte> bytes) {
    for (unsigned i = 0; i < count_.load(std::memory_order_acquire); ++i) {
      if (places_[i] < at || places_[i] - at >= bytes.size()) continue;
      const auto part = bytes.subspan(places_[i] - at);
      const std::size_t size = std::min<std::size_t>(part.size(), kPageBytes);
      std::memcpy(page(i).data(), part.data(), size);
      std::memset(page(i).data() + size, 0, kPageBytes - size);
    }
  }

  // Keeps none from `end` on, where the medium ends now. While nothing is written.
  void forget_from(std::uint64_t end) {
    unsigned kept = 0;
    for (unsigned i = 0; i < count_.load(std::memory_order_relaxed); ++i) {
      if (places_[i] >= end) continue;
      places_[kept] = places_[i];
      if (kept != i) std::memcpy(page(kept).data(), page(i).data(), kPageBytes);
      ++kept;
    }
    count_.store(kept, std::memory_order_release);
  }

 private:
  std::span<std::byte> page(unsigned index) {
    return memory_.bytes().subspan(index * kPageBytes, kPageBytes);
  }

  PageMemory memory_{(kMost + 1) * kPageBytes};
  std::array<std::uint64_t, kMost> places_{};
  std::atomic<unsigned> count_ = 0;
};

}  // namespace tensorshelf
