// Who may write where on the heap. Derived at open from what the retained versions name, never
// stored; from there on whatever owns a place gives it back when nothing names it any more
// (Holding, PageNode). Slots of small tensors that are created together lie together, slot by
// slot, so that saving thousands of them is a few large writes. Pages for manifests come from a
// pool of their own, kept large enough for any later commit: persist() never runs out of space.
// What is taken is never free as well. Where memory runs out, what is given back may be forgotten
// until the next open finds it free; a page that the pool lacks then, the next reserve_pages()
// brings, and take_page() before it may throw std::bad_alloc.
// Thread-safe; slots are taken, and pages reserved, by one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

#include <tensorshelf/medium.hpp>

#include "base/small_vector.hpp"
#include "format/format.hpp"
#include "store/places/claims.hpp"
#include "store/places/region.hpp"
#include "store/places/space.hpp"
#include "store/threads/fork_guard.hpp"

namespace tensorshelf {

using StripeOrder = SmallVector<unsigned, kMaxMedia>;  // by their indices

// Slots of one tensor.
struct SlotsWanted {
  std::string_view name;
  std::uint64_t extent_bytes = 0;  // of each place
  unsigned slot_count = 0;
  std::uint64_t pages = 0;  // that are to be reserved behind it
  // Which it lies on: each slot has a place on each of them, in this order.
  StripeOrder media = StripeOrder(1);
};

class Heap {
 public:
  // What is not claimed is free. The media, and `quiet`, which is called before one grows and
  // returns when nobody writes to it, are used by take_slots(), make_room() and reserve_pages()
  // alone.
  Heap(Medium& media, const Claimed& claimed, std::function<void()> quiet = {});

  // Places, slot by slot, growing the media where needed; the first for the pages as well, so that
  // what is asked for is all that is missing. Errc::full, naming the tensor and what is missing,
  // with nothing taken.
  SmallVector<std::uint64_t, 4> take_slots(const SlotsWanted& wanted);
  void release(const Extent& extent) noexcept;

  // Sees to it that so many slots of so many bytes are free in one piece on that medium, growing it
  // where needed. Errc::full where that ends, with nothing changed.
  void make_room(unsigned medium, std::uint64_t size_bytes, unsigned slot_count);

  // A medium that was attached, of which so much is the shelf's, and nothing of it named.
  void add_medium(unsigned medium, std::uint64_t capacity_bytes);

  // Cells of the manifest: its pages follow. Errc::full at the format's limit.
  CellRun take_cells(std::uint64_t count);
  void release(const CellRun& cells) noexcept;

  // Sees to it that the pool and the pages in use are `pages` together, at least. Errc::full where
  // the medium ends.
  void reserve_pages(std::uint64_t pages);
  // One page for copy `copy` of a manifest page: copies are taken from opposite ends of the pool.
  std::uint64_t take_page(unsigned copy);
  void release_page(std::uint64_t at) noexcept;

  // For whoever moves slots down (moves.cpp). What is taken on that medium would end there, if it
  // lay side by side; what is free behind it is taken in need alone from here on, and pages that
  // nobody uses are taken from in front of it.
  std::uint64_t fence(unsigned medium);
  void drop_fence(unsigned medium) noexcept;
  // The lowest free place that holds so much and lies below `place`.
  std::optional<std::uint64_t> take_below(std::uint64_t place, std::uint64_t size_bytes);
  std::uint64_t taken_end(unsigned medium) const;
  // What is free at its end is no part of the shelf any more.
  void cut(unsigned medium);

  std::uint64_t capacity_bytes(unsigned medium = 0) const;  // 0 where there is none
  std::uint64_t free_bytes(unsigned medium = 0) const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  std::uint64_t take_slot(Lock& lock, const SlotsWanted& wanted, unsigned taken, bool small);
  void release_locked(const Extent& extent) noexcept;
  void give_to_pool(const Extent& extent);
  std::uint64_t pool_lacks(std::uint64_t pages) const;  // in bytes
  Region& first() { return *regions_[0]; }

  const GrowingMedia growth_;
  ForkGuard fork_guard_;  // a child gives nothing back: its parent's threads held the lock
  mutable std::mutex mutex_;
  std::uint64_t pages_in_use_ = 0;
  std::array<std::optional<Region>, kMaxMedia> regions_;
  Space pool_;  // on the first
  Space cells_;
};

}  // namespace tensorshelf
