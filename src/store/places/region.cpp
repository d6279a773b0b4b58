#include "store/places/region.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kMinArenaBytes = 16 * 1024;
constexpr std::uint64_t kMaxArenaBytes = 4 * 1024 * 1024;
constexpr std::uint64_t kMinGrowthBytes = 64 * 1024;
constexpr std::uint64_t kMaxGrowthBytes = 64 * 1024 * 1024;

class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

// Both ends are places.
std::uint64_t grow_medium(Medium& media, std::uint64_t end, std::uint64_t size) {
  const std::uint64_t before = offset_of(end);
  if (size > kMaxCapacityBytes - std::min(kMaxCapacityBytes, before)) {
    throw Error(Errc::full,
                fmt::format("no medium is larger than {}", size_text(kMaxCapacityBytes)),
                "Use smaller tensors, or less keep= and in_flight= in a new shelf.");
  }
  // Asked also where the medium is as long already: a length that was found need not be room.
  if (planted(Bug::found_length_taken) && media.size() >= end + size) return media.size();
  const std::uint64_t slack = std::clamp(before / 8, kMinGrowthBytes, kMaxGrowthBytes);
  try {
    return media.reserve(end + round_up(size + slack, kPageBytes));
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    return media.reserve(end + size);  // without slack it may still fit
  }
}

}  // namespace

Region::Region(const GrowingMedia& growth, unsigned medium, std::uint64_t capacity_bytes)
    : growth_(growth),
      medium_(medium),
      capacity_bytes_(capacity_bytes),
      arenas_(format::kMaxSlots),
      arena_bytes_(kMinArenaBytes) {}

void Region::grow(Lock& lock, std::uint64_t size) {
  const std::uint64_t before = place_on(medium_, capacity_bytes_);
  std::uint64_t now = 0;
  {
    const Unlocked unlocked(lock);
    if (growth_.quiet && !planted(Bug::growth_beside_writers)) growth_.quiet();
    now = grow_medium(growth_.medium, before, size) / kPageBytes * kPageBytes;
  }
  capacity_bytes_ = offset_of(now);
  release(before, now - before);
}

void Region::release(std::uint64_t at, std::uint64_t size) {
  const std::uint64_t below = std::min(size, fence_ - std::min(fence_, at));
  free_.release(at, below);
  beyond_.release(at + below, size - below);
}

void Region::fence(std::uint64_t place) {
  fence_ = place;
  Space before = std::exchange(beyond_, {});
  while (const auto range = before.take_from(0)) release(range->at, range->size_bytes);
  while (const auto range = free_.take_from(place)) beyond_.release(range->at, range->size_bytes);
}

std::optional<std::uint64_t> Region::take_below(std::uint64_t place, std::uint64_t size) {
  for (Space* const space : {&free_, &beyond_}) {
    const auto at = space->take_low(size);
    if (at && *at < place) return at;
    if (at) space->release(*at, size);
  }
  return std::nullopt;
}

std::uint64_t Region::packed_end() const {
  return place_on(medium_, capacity_bytes_) - free_bytes();
}

std::uint64_t Region::taken_end() const {
  const std::uint64_t end = place_on(medium_, capacity_bytes_);
  const std::uint64_t from = beyond_.free_before(end);
  return from == fence_ || from == end ? free_.free_before(from) : from;
}

void Region::cut() {
  const std::uint64_t end = taken_end();
  fence(kNoFence);
  free_.take_from(end);
  capacity_bytes_ = offset_of(end);
}

std::uint64_t Region::take(Lock& lock, std::uint64_t size, std::uint64_t all) {
  auto at = free_.take(size);
  if (!at && fence_ != kNoFence) {
    fence(kNoFence);
    at = free_.take(size);
  }
  if (!at) {
    grow(lock, all);
    at = free_.take(size);
  }
  TENSORSHELF_ASSERT(at.has_value());
  return *at;
}

void Region::begin_small(std::uint64_t size) {
  if (arenas_[0].left < size) arena_bytes_ = std::min(arena_bytes_ * 2, kMaxArenaBytes);
}

std::uint64_t Region::take_small(Lock& lock, unsigned slot, std::uint64_t size) {
  Arena& arena = arenas_[slot];
  if (arena.left < size) {
    release(arena.at, arena.left);
    arena.left = 0;
    const std::uint64_t arena_size = std::max(arena_bytes_, size);
    arena.at = take(lock, arena_size, arena_size);
    arena.left = arena_size;
  }
  const std::uint64_t at = arena.at;
  arena.at += size;
  arena.left -= size;
  return at;
}

void Region::close_arenas() {
  for (Arena& arena : arenas_) {
    release(arena.at, arena.left);
    arena = {};
  }
  arena_bytes_ = kMinArenaBytes;
}

}  // namespace tensorshelf
