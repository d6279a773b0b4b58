#include "store/places/heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "base/size_text.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kSmallSlotBytes = 256 * 1024;  // larger slots gain nothing from neighbours
constexpr std::uint64_t kMaxPoolBatch = 4 * 1024 * 1024;

std::string medium_text(unsigned medium) {
  return medium == 0 ? "a shelf" : fmt::format("its medium {}", medium);
}

}  // namespace

Heap::Heap(Medium& media, const Claimed& claimed, std::function<void()> quiet)
    : growth_{media, std::move(quiet)}, pages_in_use_(claimed.page_count()) {
  for (unsigned medium = 0; medium < kMaxMedia; ++medium) {
    const std::uint64_t capacity = claimed.capacities().end[medium];
    if (medium == 0 || capacity > 0) regions_[medium].emplace(growth_, medium, capacity);
  }
  claimed.each_free_extent(
      [this](std::uint64_t at, std::uint64_t size) { regions_[medium_of(at)]->release(at, size); });
  claimed.each_free_cells(
      [this](std::uint64_t at, std::uint64_t size) { cells_.release(at, size); });
}

void Heap::add_medium(unsigned medium, std::uint64_t capacity_bytes) {
  const Lock lock(mutex_);
  Region& region = regions_[medium].emplace(growth_, medium, capacity_bytes);
  region.release(place_on(medium, format::kMediumHeapAt), capacity_bytes - format::kMediumHeapAt);
}

namespace {

// Within a catch block: what was thrown, where it is Errc::full.
std::optional<Error> full_in_flight() {
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() == Errc::full) return error;
  } catch (...) {  // is for who throws it on
  }
  return std::nullopt;
}

}  // namespace

// The next of a tensor of which some are taken.
std::uint64_t Heap::take_slot(Lock& lock, const SlotsWanted& wanted, unsigned taken, bool small) {
  const auto stripes = static_cast<unsigned>(wanted.media.size());
  const unsigned medium = wanted.media[taken % stripes];
  const unsigned slot = taken / stripes;
  const std::uint64_t size = round_up(wanted.extent_bytes, kPageBytes);
  Region& region = *regions_[medium];
  if (small) return region.take_small(lock, slot, size);
  const std::uint64_t left = wanted.slot_count - slot;
  const std::uint64_t slots_left =
      size > kMaxCapacityBytes / left ? kMaxCapacityBytes : left * size;
  std::uint64_t lacks = medium == 0 ? pool_lacks(wanted.pages) : 0;  // any hole will do for them
  lacks -= std::min(lacks, region.free_bytes());
  return region.take(lock, size, slots_left + lacks);
}

SmallVector<std::uint64_t, 4> Heap::take_slots(const SlotsWanted& wanted) {
  const auto all = static_cast<unsigned>(wanted.slot_count * wanted.media.size());
  SmallVector<std::uint64_t, 4> slots(all);
  if (wanted.extent_bytes == 0) return slots;
  Lock lock(mutex_);
  const std::uint64_t size = round_up(wanted.extent_bytes, kPageBytes);
  for (int attempt = 0;; ++attempt) {
    unsigned taken = 0;
    try {
      const bool small = size <= kSmallSlotBytes && attempt == 0 && wanted.media.size() == 1;
      if (small) regions_[wanted.media[0]]->begin_small(size);
      for (; taken < all; ++taken) slots[taken] = take_slot(lock, wanted, taken, small);
      return slots;
    } catch (...) {
      const unsigned medium = wanted.media[taken % wanted.media.size()];
      while (taken > 0) release_locked({slots[--taken], size});
      const auto full = full_in_flight();
      if (!full) throw;
      Region& region = *regions_[medium];
      region.close_arenas();  // what they set aside may be just what is missing: once more, without
      if (attempt == 0) continue;
      const std::uint64_t whole = region.largest();
      const std::uint64_t total = region.free_bytes();
      throw Error(Errc::full,
                  fmt::format("'{}' needs {} x {}; {} of {} has {} free{}. {}", wanted.name,
                              wanted.slot_count, size_text(size), medium_text(medium),
                              size_text(region.capacity_bytes()), size_text(total),
                              whole < total ? ", no more in one piece than " + size_text(whole) +
                                                  " (compact() joins them)"
                                            : "",
                              full->what()),
                  full->remedy(), full->os_error());
    }
  }
}

void Heap::make_room(unsigned medium, std::uint64_t size_bytes, unsigned slot_count) {
  Lock lock(mutex_);
  Region& region = *regions_[medium];
  const std::uint64_t most = kMaxCapacityBytes / slot_count - kPageBytes;
  const std::uint64_t size = slot_count * round_up(std::min(size_bytes, most), kPageBytes);
  if (region.largest() >= size && size_bytes <= most) return;
  try {
    region.grow(lock, size);
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    throw Error(
        Errc::full,
        fmt::format("{} x {} are to be reserved; {} of {} has {} free. {}", slot_count,
                    size_text(size_bytes), medium_text(medium), size_text(region.capacity_bytes()),
                    size_text(region.free_bytes()), error.what()),
        error.remedy(), error.os_error());
  }
}

void Heap::release(const Extent& extent) noexcept {
  if (fork_guard_.in_child()) return;
  const Lock lock(mutex_);
  release_locked(extent);
}

void Heap::release_locked(const Extent& extent) noexcept {
  try {
    regions_[medium_of(extent.at)]->release(extent.at, round_up(extent.size_bytes, kPageBytes));
  } catch (const std::bad_alloc&) {  // forgotten, until the next open finds it free
  }
}

CellRun Heap::take_cells(std::uint64_t count) {
  const Lock lock(mutex_);
  const auto first = cells_.take(count);
  if (!first) {
    throw Error(Errc::full,
                fmt::format("a manifest has at most {} chunk records, and {} more are needed",
                            kCells, count),
                "Use a second shelf.");
  }
  return {*first, count};
}

void Heap::release(const CellRun& cells) noexcept {
  if (fork_guard_.in_child()) return;
  const Lock lock(mutex_);
  try {
    cells_.release(cells.first, cells.count);
  } catch (const std::bad_alloc&) {  // as above
  }
}

void Heap::release_page(std::uint64_t at) noexcept {
  if (fork_guard_.in_child()) return;
  const Lock lock(mutex_);
  --pages_in_use_;
  try {
    pool_.release(at, kPageBytes);
  } catch (const std::bad_alloc&) {  // as above; the pool is topped up by the next reserve_pages()
  }
}

void Heap::give_to_pool(const Extent& extent) {
  try {
    pool_.release(extent.at, extent.size_bytes);
  } catch (...) {
    release_locked(extent);
    throw;
  }
}

std::uint64_t Heap::pool_lacks(std::uint64_t pages) const {
  const std::uint64_t wanted = (pages - std::min(pages, pages_in_use_)) * kPageBytes;
  return wanted - std::min(wanted, pool_.total());
}

void Heap::reserve_pages(std::uint64_t pages) {
  Lock lock(mutex_);
  std::uint64_t missing = pool_lacks(pages);
  if (missing == 0) return;
  // In batches, so that pages of later manifests stay together and slots stay neighbours.
  Space& free = first().free();
  const std::uint64_t half = (missing + pool_.total()) / 2;
  const std::uint64_t batch =
      round_up(std::max(missing, std::min(half, kMaxPoolBatch)), kPageBytes);
  if (const auto at = free.take(batch)) return give_to_pool({*at, batch});
  if (free.total() < missing) {
    first().fence(Region::kNoFence);
    first().close_arenas();
    try {
      return give_to_pool({first().take(lock, missing, missing), missing});
    } catch (const Error& error) {
      if (error.code() != Errc::full) throw;
      if (free.total() < missing) first().grow(lock, missing - free.total());  // it may fit without
    }
  }
  // Pages need no neighbours: any hole will do, and there are enough. Hole by hole, because a
  // hostile shelf may have millions.
  while (missing > 0) {
    const Extent hole = free.take_lowest(missing);
    give_to_pool(hole);
    missing -= hole.size_bytes;
  }
}

std::uint64_t Heap::take_page(unsigned copy) {
  const Lock lock(mutex_);
  const auto at = copy == 0 ? pool_.take_low(kPageBytes) : pool_.take_high(kPageBytes);
  // reserve_pages() saw to it when the tensor was created; but what was given back may have been
  // forgotten for want of memory.
  if (!at) throw std::bad_alloc();
  ++pages_in_use_;
  return *at;
}

std::uint64_t Heap::fence(unsigned medium) {
  const Lock lock(mutex_);
  Region& region = *regions_[medium];
  region.close_arenas();
  const std::uint64_t end = region.packed_end();
  region.fence(end);
  if (medium != 0) return end;
  // Pages of the pool that lie behind it, against as much in front of it: first those, so that it
  // never has fewer.
  for (;;) {
    const std::uint64_t behind = pool_.highest_from(end);
    if (behind == 0 || region.free().total() == 0) return end;
    const Extent low = region.free().take_lowest(behind);
    give_to_pool(low);
    const auto high = pool_.take_from(end, low.size_bytes);
    release_locked(high.value());
  }
}

void Heap::drop_fence(unsigned medium) noexcept {
  const Lock lock(mutex_);
  try {
    regions_[medium]->fence(Region::kNoFence);
  } catch (const std::bad_alloc&) {  // as above
  }
}

std::optional<std::uint64_t> Heap::take_below(std::uint64_t place, std::uint64_t size_bytes) {
  const Lock lock(mutex_);
  return regions_[medium_of(place)]->take_below(place, round_up(size_bytes, kPageBytes));
}

std::uint64_t Heap::taken_end(unsigned medium) const {
  const Lock lock(mutex_);
  return regions_[medium]->taken_end();
}

void Heap::cut(unsigned medium) {
  const Lock lock(mutex_);
  Region& region = *regions_[medium];
  region.close_arenas();
  region.cut();
}

std::uint64_t Heap::capacity_bytes(unsigned medium) const {
  const Lock lock(mutex_);
  return regions_[medium] ? regions_[medium]->capacity_bytes() : 0;
}

std::uint64_t Heap::free_bytes(unsigned medium) const {
  const Lock lock(mutex_);
  return regions_[medium] ? regions_[medium]->free_bytes() : 0;
}

}  // namespace tensorshelf
