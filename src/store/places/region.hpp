// The room of a shelf on one of its media that nothing owns: slots are taken from it, and it makes
// the medium grow where they have none. Part of a Heap (heap.hpp), whose lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/places/space.hpp"

namespace tensorshelf {

// No medium grows beyond it: places are numbers, and what a medium reserves may be somewhat more
// than is asked for.
inline constexpr std::uint64_t kMaxCapacityBytes = kMaxMediumBytes - (std::uint64_t{1} << 30);

// How media grow: `quiet` is called before, and returns when nobody writes to them.
struct GrowingMedia {
  Medium& medium;  // all of them
  std::function<void()> quiet;
};

class Region {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // Nothing is free yet. `growth` outlives it.
  Region(const GrowingMedia& growth, unsigned medium, std::uint64_t capacity_bytes);

  // A place of that size. `all` is with what the caller will take next: where the medium must grow,
  // it grows for all at once, so that a refusal (Errc::full) leaves it as it was.
  std::uint64_t take(Lock& lock, std::uint64_t size, std::uint64_t all);
  // The same for the slot of that number of a small tensor: behind that of the one before.
  std::uint64_t take_small(Lock& lock, unsigned slot, std::uint64_t size);
  // Before those of one tensor: what is set aside for each slot grows as there are more tensors.
  void begin_small(std::uint64_t size);
  void close_arenas();  // what is set aside for small slots is free again

  // Nothing is held meanwhile: pages and slots can be given back, and a commit take its pages.
  void grow(Lock& lock, std::uint64_t size);

  void release(std::uint64_t at, std::uint64_t size);
  std::uint64_t free_bytes() const { return free_.total() + beyond_.total(); }
  std::uint64_t largest() const { return std::max(free_.largest(), beyond_.largest()); }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }

  // What is free, but for what a fence keeps back.
  Space& free() { return free_; }
  // While slots are moved down (Heap::fence()): what is free behind it is taken in need alone, and
  // then the fence is gone. kNoFence: there is none.
  void fence(std::uint64_t place);
  static constexpr std::uint64_t kNoFence = ~std::uint64_t{0};
  std::optional<std::uint64_t> take_below(std::uint64_t place, std::uint64_t size);
  // Where it would end if all that is taken lay side by side, and where it does.
  std::uint64_t packed_end() const;
  std::uint64_t taken_end() const;
  // What is free at the end is no part of it any more.
  void cut();

 private:
  struct Arena {
    std::uint64_t at = 0;
    std::uint64_t left = 0;
  };

  const GrowingMedia& growth_;
  unsigned medium_;
  std::uint64_t capacity_bytes_;
  Space free_;
  std::uint64_t fence_ = kNoFence;
  Space beyond_;  // free, and behind the fence
  std::vector<Arena> arenas_;
  std::uint64_t arena_bytes_;
};

}  // namespace tensorshelf
