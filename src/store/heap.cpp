#include "store/heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kSmallSlotBytes = 256 * 1024;  // larger slots gain nothing from neighbours
constexpr std::uint64_t kMinArenaBytes = 16 * 1024;
constexpr std::uint64_t kMaxArenaBytes = 4 * 1024 * 1024;
constexpr std::uint64_t kMinGrowthBytes = 64 * 1024;
constexpr std::uint64_t kMaxGrowthBytes = 64 * 1024 * 1024;
constexpr std::uint64_t kMaxCapacityBytes = std::uint64_t{1} << 63;  // offsets in files are signed

class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

std::uint64_t grow_medium(Medium& medium, std::uint64_t before, std::uint64_t size) {
  if (size > kMaxCapacityBytes - std::min(kMaxCapacityBytes, before)) {
    throw Error(Errc::full,
                fmt::format("no medium is larger than {}", size_text(kMaxCapacityBytes)),
                "Use smaller tensors, or less keep= and in_flight= in a new shelf.");
  }
  // Asked also where the medium is as long already: a length that was found need not be room.
  if (planted(Bug::found_length_taken) && medium.size() >= before + size) return medium.size();
  const std::uint64_t slack = std::clamp(before / 8, kMinGrowthBytes, kMaxGrowthBytes);
  try {
    return medium.reserve(before + round_up(size + slack, kPageBytes));
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    return medium.reserve(before + size);  // without slack it may still fit
  }
}

}  // namespace

Heap::Heap(Medium& medium, const Claimed& claimed, std::function<void()> quiet)
    : medium_(medium),
      quiet_(std::move(quiet)),
      capacity_bytes_(claimed.capacity_bytes()),
      pages_in_use_(claimed.page_count()),
      arenas_(format::kMaxSlots),
      arena_bytes_(kMinArenaBytes) {
  claimed.each_free_extent(
      [this](std::uint64_t at, std::uint64_t size) { free_.release(at, size); });
  claimed.each_free_cells(
      [this](std::uint64_t at, std::uint64_t size) { cells_.release(at, size); });
}

// Nothing is held meanwhile: pages and slots can be given back, and a commit take its pages.
void Heap::grow(Lock& lock, std::uint64_t size) {
  const std::uint64_t before = capacity_bytes_;
  std::uint64_t now = 0;
  {
    const Unlocked unlocked(lock);
    if (quiet_ && !planted(Bug::growth_beside_writers)) quiet_();
    now = grow_medium(medium_, before, size) / kPageBytes * kPageBytes;
  }
  free_.release(before, now - before);
  capacity_bytes_ = now;
}

// `all` is with what the caller will take next: where the medium must grow, it grows for all at
// once, so that a refusal leaves it as it was.
std::uint64_t Heap::take_or_grow(Lock& lock, std::uint64_t size, std::uint64_t all) {
  auto at = free_.take(size);
  if (!at) {
    grow(lock, all);
    at = free_.take(size);
  }
  TENSORSHELF_ASSERT(at.has_value());
  return *at;
}

std::uint64_t Heap::take_small(Lock& lock, Arena& arena, std::uint64_t size) {
  if (arena.left < size) {
    free_.release(arena.at, arena.left);
    arena.left = 0;
    const std::uint64_t arena_size = std::max(arena_bytes_, size);
    arena.at = take_or_grow(lock, arena_size, arena_size);
    arena.left = arena_size;
  }
  const std::uint64_t at = arena.at;
  arena.at += size;
  arena.left -= size;
  return at;
}

void Heap::close_arenas() {
  for (Arena& arena : arenas_) {
    free_.release(arena.at, arena.left);
    arena = {};
  }
  arena_bytes_ = kMinArenaBytes;
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

SmallVector<std::uint64_t, 4> Heap::take_slots(std::string_view name, std::uint64_t size_bytes,
                                               unsigned slot_count, std::uint64_t pages) {
  SmallVector<std::uint64_t, 4> slots(slot_count);
  if (size_bytes == 0) return slots;
  Lock lock(mutex_);
  const std::uint64_t size = round_up(size_bytes, kPageBytes);
  for (int attempt = 0;; ++attempt) {
    unsigned taken = 0;
    try {
      const bool small = size <= kSmallSlotBytes && attempt == 0;
      const bool fresh = small && arenas_[0].left < size;
      if (fresh) arena_bytes_ = std::min(arena_bytes_ * 2, kMaxArenaBytes);
      for (; taken < slot_count; ++taken) {
        const std::uint64_t left = slot_count - taken;
        const std::uint64_t slots_left =
            size > kMaxCapacityBytes / left ? kMaxCapacityBytes : left * size;
        const std::uint64_t lacks = pool_lacks(pages);  // any hole will do for them
        const std::uint64_t all = slots_left + lacks - std::min(lacks, free_.total());
        slots[taken] =
            small ? take_small(lock, arenas_[taken], size) : take_or_grow(lock, size, all);
      }
      return slots;
    } catch (...) {
      for (unsigned slot = 0; slot < taken; ++slot) release_locked({slots[slot], size});
      const auto full = full_in_flight();
      if (!full) throw;
      close_arenas();  // what they set aside may be just what is missing: once more, without
      if (attempt == 0) continue;
      const std::uint64_t whole = free_.largest();
      throw Error(
          Errc::full,
          fmt::format(
              "'{}' needs {} x {}; a shelf of {} has {} free{}. {}", name, slot_count,
              size_text(size), size_text(capacity_bytes_), size_text(free_.total()),
              whole < free_.total() ? ", no more in one piece than " + size_text(whole) : "",
              full->what()),
          full->remedy(), full->os_error());
    }
  }
}

void Heap::make_room(std::uint64_t size_bytes, unsigned slot_count) {
  Lock lock(mutex_);
  const std::uint64_t most = kMaxCapacityBytes / slot_count - kPageBytes;
  const std::uint64_t size = slot_count * round_up(std::min(size_bytes, most), kPageBytes);
  if (free_.largest() >= size && size_bytes <= most) return;
  try {
    grow(lock, size);
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    throw Error(Errc::full,
                fmt::format("{} x {} are to be reserved; a shelf of {} has {} free. {}", slot_count,
                            size_text(size_bytes), size_text(capacity_bytes_),
                            size_text(free_.total()), error.what()),
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
    free_.release(extent.at, round_up(extent.size_bytes, kPageBytes));
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
  const std::uint64_t half = (missing + pool_.total()) / 2;
  const std::uint64_t batch =
      round_up(std::max(missing, std::min(half, kMaxArenaBytes)), kPageBytes);
  if (const auto at = free_.take(batch)) return give_to_pool({*at, batch});
  if (free_.total() < missing) {
    close_arenas();
    try {
      return give_to_pool({take_or_grow(lock, missing, missing), missing});
    } catch (const Error& error) {
      if (error.code() != Errc::full) throw;
      if (free_.total() < missing) grow(lock, missing - free_.total());  // it may fit without
    }
  }
  // Pages need no neighbours: any hole will do, and there are enough. Hole by hole, because a
  // hostile shelf may have millions.
  while (missing > 0) {
    const Extent hole = free_.take_lowest(missing);
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

std::uint64_t Heap::capacity_bytes() const {
  const Lock lock(mutex_);
  return capacity_bytes_;
}

std::uint64_t Heap::free_bytes() const {
  const Lock lock(mutex_);
  return free_.total();
}

}  // namespace tensorshelf
