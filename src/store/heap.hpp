// Who may write where on the heap. Derived at open from what the newest root names, never stored.
// Slots of small tensors that are created together lie together, slot by slot, so that saving
// thousands of them is a few large writes. Pages for manifests come from a pool of their own, kept
// large enough for any later commit: persist() never runs out of space.
// Where memory runs out, what is given back may be forgotten until the next open finds it free;
// what is taken is never free as well, and the pool never smaller than it was asked to be. Not
// thread-safe: the store serialises its use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/space.hpp"

namespace tensorshelf {

class Heap {
 public:
  // All of [kHeapAt, capacity) is free but `used`; overlaps throw Errc::corrupt.
  Heap(Medium& medium, std::uint64_t capacity_bytes, const std::vector<Extent>& used);

  // Extents for the K slots of a tensor of `size_bytes`, growing the medium where needed.
  // Errc::full, naming `name` and what is missing, with nothing taken.
  std::array<std::uint64_t, format::kSlots> take_slots(std::string_view name,
                                                       std::uint64_t size_bytes);
  void release(const Extent& extent) noexcept;

  // Keeps the pool at `pages` at least. Errc::full where the medium ends.
  void reserve_pages(std::uint64_t pages);
  // One page for copy `copy` of a manifest page: copies are taken from opposite ends of the pool.
  std::uint64_t take_page(unsigned copy);
  void release_page(std::uint64_t at) { pool_.release(at, kPageBytes); }

  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  std::uint64_t free_bytes() const { return free_.total(); }

 private:
  struct Arena {
    std::uint64_t at = 0;
    std::uint64_t left = 0;
  };

  std::uint64_t take_or_grow(std::uint64_t size, std::uint64_t more = 0);
  std::uint64_t take_small(Arena& arena, std::uint64_t size);
  void close_arenas();
  void give_to_pool(const Extent& extent);
  void grow(std::uint64_t size);

  Medium& medium_;
  std::uint64_t capacity_bytes_;
  Space free_;
  Space pool_;
  std::array<Arena, format::kSlots> arenas_ = {};
  std::uint64_t arena_bytes_;
};

}  // namespace tensorshelf
