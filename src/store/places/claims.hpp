// What versions name on the heap and in the manifest, each thing once; and what is left between.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <tensorshelf/extent.hpp>

#include "format/layout.hpp"

namespace tensorshelf {

inline constexpr std::uint64_t kCells = format::kMaxLeaves * format::kPageCells;

// How far the room of a shelf reaches on each medium; 0 on one that is not there.
struct Capacities {
  std::array<std::uint64_t, kMaxMedia> end = {};

  Capacities() = default;
  Capacities(std::uint64_t first) { end[0] = first; }  // NOLINT: a shelf on one medium
  void raise(const Capacities& other) {
    for (unsigned i = 0; i < kMaxMedia; ++i) end[i] = std::max(end[i], other.end[i]);
  }
};

struct CellRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// In any order. Slots end where their tensor does, and claim whole pages.
struct Claims {
  std::vector<Extent> pages;
  std::vector<Extent> slots;
  std::vector<CellRun> cells;
};

// Nothing in it is claimed twice.
class Claimed {
 public:
  // Begins with nothing claimed of the heap, which ends there on each medium, and of all cells that
  // the format has.
  explicit Claimed(const Capacities& capacities);

  void raise(const Capacities& capacities) { capacities_.raise(capacities); }

  // Errc::corrupt where two claim the same, or one lies outside; then nothing is claimed.
  void add(const Claims& claims);

  const Capacities& capacities() const { return capacities_; }
  std::uint64_t page_count() const { return page_count_; }

  // What nothing claims, in order: (start, size) of each range.
  using Visit = std::function<void(std::uint64_t, std::uint64_t)>;
  void each_free_extent(const Visit& visit) const;
  void each_free_cells(const Visit& visit) const;

 private:
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  using Ranges = std::vector<Range>;  // sorted, and disjoint
  Range pages_of(const Extent& extent) const;
  [[noreturn]] void throw_claimed(std::uint64_t at) const;
  static void each_gap(const Ranges& ranges, Range within, const Visit& visit);

  Capacities capacities_;
  std::uint64_t page_count_ = 0;
  Ranges extents_;
  Ranges cells_;
};

}  // namespace tensorshelf
