// Who may write where on the heap. Derived at open from what the retained versions name, never
// stored; from there on whatever owns a place gives it back when nothing names it any more
// (Holding, PageNode). Slots of small tensors that are created together lie together, slot by
// slot, so that saving thousands of them is a few large writes. Pages for manifests come from a
// pool of their own, kept large enough for any later commit: persist() never runs out of space.
// Where memory runs out, what is given back may be forgotten until the next open finds it free;
// what is taken is never free as well, and the pool never smaller than it was asked to be.
// Thread-safe; slots are taken, and pages reserved, by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "base/small_vector.hpp"
#include "format/format.hpp"
#include "store/claims.hpp"
#include "store/fork_guard.hpp"
#include "store/space.hpp"

namespace tensorshelf {

class Heap {
 public:
  // What is not claimed is free. The medium, and `quiet`, which is called before the medium grows
  // and returns when nobody writes to it, are used by take_slots() and reserve_pages() alone.
  Heap(Medium& medium, const Claimed& claimed, std::function<void()> quiet = {});

  // Extents for the slots of a tensor of `size_bytes`, growing the medium where needed, and then
  // for the pages too that are to be reserved after it: so that what is asked for is all that is
  // missing. Errc::full, naming `name` and what is missing, with nothing taken.
  SmallVector<std::uint64_t, 4> take_slots(std::string_view name, std::uint64_t size_bytes,
                                           unsigned slot_count, std::uint64_t pages = 0);
  void release(const Extent& extent) noexcept;

  // Sees to it that so many slots of so many bytes are free in one piece, growing the medium where
  // needed. Errc::full where that ends, with nothing changed.
  void make_room(std::uint64_t size_bytes, unsigned slot_count);

  // Cells of the manifest: its pages follow. Errc::full at the format's limit.
  CellRun take_cells(std::uint64_t count);
  void release(const CellRun& cells) noexcept;

  // Sees to it that the pool and the pages in use are `pages` together, at least. Errc::full where
  // the medium ends.
  void reserve_pages(std::uint64_t pages);
  // One page for copy `copy` of a manifest page: copies are taken from opposite ends of the pool.
  std::uint64_t take_page(unsigned copy);
  void release_page(std::uint64_t at) noexcept;

  std::uint64_t capacity_bytes() const;
  std::uint64_t free_bytes() const;

 private:
  struct Arena {
    std::uint64_t at = 0;
    std::uint64_t left = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  std::uint64_t take_or_grow(Lock& lock, std::uint64_t size, std::uint64_t all);
  std::uint64_t take_small(Lock& lock, Arena& arena, std::uint64_t size);
  void close_arenas();
  void release_locked(const Extent& extent) noexcept;
  void give_to_pool(const Extent& extent);
  std::uint64_t pool_lacks(std::uint64_t pages) const;  // in bytes
  void grow(Lock& lock, std::uint64_t size);

  Medium& medium_;
  const std::function<void()> quiet_;
  ForkGuard fork_guard_;  // a child gives nothing back: its parent's threads held the lock
  mutable std::mutex mutex_;
  std::uint64_t capacity_bytes_;
  std::uint64_t pages_in_use_ = 0;
  Space free_;
  Space pool_;
  Space cells_;
  std::vector<Arena> arenas_;
  std::uint64_t arena_bytes_;
};

}  // namespace tensorshelf
