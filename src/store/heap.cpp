#include "store/heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/size_text.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kSmallSlotBytes = 256 * 1024;  // larger slots gain nothing from neighbours
constexpr std::uint64_t kMinArenaBytes = 16 * 1024;
constexpr std::uint64_t kMaxArenaBytes = 4 * 1024 * 1024;
constexpr std::uint64_t kMinGrowthBytes = 64 * 1024;
constexpr std::uint64_t kMaxGrowthBytes = 64 * 1024 * 1024;

}  // namespace

Heap::Heap(Medium& medium, std::uint64_t capacity_bytes, const std::vector<Extent>& used)
    : medium_(medium), capacity_bytes_(capacity_bytes), arena_bytes_(kMinArenaBytes) {
  free_.release(format::kHeapAt, capacity_bytes - format::kHeapAt);
  for (const Extent& extent : used) {
    const std::uint64_t size = round_up(extent.size_bytes, kPageBytes);
    if (extent.at % kPageBytes != 0 || !free_.take_at(extent.at, size)) {
      throw Error(
          Errc::corrupt,
          fmt::format("two things claim the bytes at {}, or they lie beyond the {} bytes of "
                      "the shelf",
                      extent.at, capacity_bytes),
          "Restore the file from a copy; its checksums hold, so it was not made by chance.");
    }
  }
}

void Heap::grow(std::uint64_t size) {
  const std::uint64_t slack = std::clamp(capacity_bytes_ / 8, kMinGrowthBytes, kMaxGrowthBytes);
  std::uint64_t now = 0;
  try {
    now = medium_.reserve(capacity_bytes_ + round_up(size + slack, kPageBytes));
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    now = medium_.reserve(capacity_bytes_ + size);  // without slack it may still fit
  }
  now = now / kPageBytes * kPageBytes;
  free_.release(capacity_bytes_, now - capacity_bytes_);
  capacity_bytes_ = now;
}

// `more` is what the caller will take next: where the medium must grow, it grows for all at once,
// so that a refusal leaves it as it was.
std::uint64_t Heap::take_or_grow(std::uint64_t size, std::uint64_t more) {
  auto at = free_.take(size);
  if (!at) {
    grow(size + more);
    at = free_.take(size);
  }
  TENSORSHELF_ASSERT(at.has_value());
  return *at;
}

std::uint64_t Heap::take_small(Arena& arena, std::uint64_t size) {
  if (arena.left < size) {
    free_.release(arena.at, arena.left);
    arena.left = 0;
    const std::uint64_t arena_size = std::max(arena_bytes_, size);
    arena.at = take_or_grow(arena_size);
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

std::array<std::uint64_t, format::kSlots> Heap::take_slots(std::string_view name,
                                                           std::uint64_t size_bytes) {
  std::array<std::uint64_t, format::kSlots> slots = {};
  if (size_bytes == 0) return slots;
  const std::uint64_t size = round_up(size_bytes, kPageBytes);
  for (int attempt = 0;; ++attempt) {
    unsigned taken = 0;
    try {
      const bool small = size <= kSmallSlotBytes && attempt == 0;
      const bool fresh = small && arenas_[0].left < size;
      if (fresh) arena_bytes_ = std::min(arena_bytes_ * 2, kMaxArenaBytes);
      for (; taken < format::kSlots; ++taken) {
        const std::uint64_t more = (format::kSlots - 1 - taken) * size;
        slots[taken] = small ? take_small(arenas_[taken], size) : take_or_grow(size, more);
      }
      return slots;
    } catch (const std::exception& problem) {
      for (unsigned slot = 0; slot < taken; ++slot) release({slots[slot], size});
      const auto* const full = dynamic_cast<const Error*>(&problem);
      if (full == nullptr || full->code() != Errc::full) throw;
      close_arenas();  // what they set aside may be just what is missing: once more, without
      if (attempt == 0) continue;
      const std::uint64_t whole = free_.largest();
      throw Error(
          Errc::full,
          fmt::format(
              "'{}' needs {} x {}; a shelf of {} has {} free{}. {}", name, format::kSlots,
              size_text(size), size_text(capacity_bytes_), size_text(free_.total()),
              whole < free_.total() ? ", no more in one piece than " + size_text(whole) : "",
              full->what()),
          full->remedy(), full->os_error());
    }
  }
}

void Heap::release(const Extent& extent) noexcept {
  try {
    free_.release(extent.at, round_up(extent.size_bytes, kPageBytes));
  } catch (const std::bad_alloc&) {  // forgotten, until the next open finds it free
  }
}

void Heap::give_to_pool(const Extent& extent) {
  try {
    pool_.release(extent.at, extent.size_bytes);
  } catch (...) {
    release(extent);
    throw;
  }
}

void Heap::reserve_pages(std::uint64_t pages) {
  const std::uint64_t wanted = pages * kPageBytes;
  if (pool_.total() >= wanted) return;
  // In batches, so that pages of later manifests stay together and slots stay neighbours.
  const std::uint64_t missing = wanted - pool_.total();
  const std::uint64_t batch =
      round_up(std::max(missing, std::min(wanted / 2, kMaxArenaBytes)), kPageBytes);
  if (const auto at = free_.take(batch)) return give_to_pool({*at, batch});
  if (free_.total() < missing) {
    close_arenas();
    return give_to_pool({take_or_grow(missing), missing});
  }
  // Pages need no neighbours: any hole will do, and there are enough. Hole by hole, because a
  // hostile shelf may have millions.
  while (pool_.total() < wanted) give_to_pool(free_.take_lowest(wanted - pool_.total()));
}

std::uint64_t Heap::take_page(unsigned copy) {
  const auto at = copy == 0 ? pool_.take_low(kPageBytes) : pool_.take_high(kPageBytes);
  TENSORSHELF_ASSERT(at.has_value());  // reserve_pages() saw to it when the tensor was created
  return *at;
}

}  // namespace tensorshelf
