#include "store/places/claims.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <tensorshelf/error.hpp>

namespace tensorshelf {
namespace {

constexpr const char* kRemedy =
    "Restore the file from a copy; its checksums hold, so it was not made by chance.";

// Ranges come in a few sorted runs, mostly: pages, and the slots of small tensors.
template <typename Ranges, typename Before>
void sort_runs(Ranges& ranges, Before before) {
  constexpr int kMostRuns = 8;
  auto sorted = std::is_sorted_until(ranges.begin(), ranges.end(), before);
  for (int runs = 1; sorted != ranges.end(); ++runs) {
    if (runs == kMostRuns) return std::sort(ranges.begin(), ranges.end(), before);
    const auto next = std::is_sorted_until(sorted, ranges.end(), before);
    std::inplace_merge(ranges.begin(), sorted, next, before);
    sorted = next;
  }
}

constexpr std::uint64_t heap_begins(unsigned medium) {
  return medium == 0 ? format::kHeapAt : format::kMediumHeapAt;
}

// Both in one order; where two overlap, the start of the later one.
template <typename Ranges>
const std::uint64_t* merge(const Ranges& there, Ranges& added, Ranges& merged) {
  const auto before = [](const auto& a, const auto& b) { return a.begin < b.begin; };
  sort_runs(added, before);
  merged.resize(there.size() + added.size());
  std::merge(there.begin(), there.end(), added.begin(), added.end(), merged.begin(), before);
  const auto overlap = std::adjacent_find(
      merged.begin(), merged.end(), [](const auto& a, const auto& b) { return b.begin < a.end; });
  return overlap == merged.end() ? nullptr : &overlap[1].begin;
}

}  // namespace

Claimed::Claimed(const Capacities& capacities) : capacities_(capacities) {}

void Claimed::throw_claimed(std::uint64_t at) const {
  throw Error(
      Errc::corrupt,
      fmt::format("two things claim the bytes at {}{}, or they lie beyond the {} bytes of the "
                  "shelf",
                  offset_of(at),
                  medium_of(at) == 0 ? "" : fmt::format(" of medium {}", medium_of(at)),
                  medium_of(at) < kMaxMedia ? capacities_.end[medium_of(at)] : 0),
      kRemedy);
}

Claimed::Range Claimed::pages_of(const Extent& extent) const {
  const unsigned medium = medium_of(extent.at);
  if (medium >= kMaxMedia) throw_claimed(extent.at);
  const std::uint64_t capacity = capacities_.end[medium];
  const std::uint64_t at = offset_of(extent.at);
  const std::uint64_t room = capacity - std::min(capacity, at);
  const std::uint64_t size = round_up(extent.size_bytes, kPageBytes);
  if (at % kPageBytes != 0 || at < heap_begins(medium) || extent.size_bytes > room || size > room) {
    throw_claimed(extent.at);
  }
  return {extent.at, extent.at + size};
}

void Claimed::add(const Claims& claims) {
  Ranges extents = extents_, cells, added, merged;
  for (const auto* list : {&claims.pages, &claims.slots}) {
    added.clear();
    added.reserve(list->size());
    for (const Extent& extent : *list) added.push_back(pages_of(extent));
    if (const auto* at = merge(extents, added, merged)) throw_claimed(*at);
    extents.swap(merged);
  }

  added.clear();
  const auto throw_cells_claimed = [](std::uint64_t cell) {
    throw Error(Errc::corrupt,
                fmt::format("two tensors claim the chunk record {}, or it lies beyond all that the "
                            "format has",
                            cell),
                kRemedy);
  };
  for (const CellRun& run : claims.cells) {
    if (run.first > kCells || run.count > kCells - run.first) throw_cells_claimed(run.first);
    added.push_back({run.first, run.first + run.count});
  }
  if (const auto* cell = merge(cells_, added, cells)) throw_cells_claimed(*cell);
  extents_.swap(extents);
  cells_.swap(cells);
  page_count_ += claims.pages.size();
}

void Claimed::each_gap(const Ranges& ranges, Range within, const Visit& visit) {
  std::uint64_t at = within.begin;
  for (const Range& range : ranges) {
    if (range.begin < within.begin) continue;
    if (range.begin >= within.end) break;
    if (range.begin > at) visit(at, range.begin - at);
    at = range.end;
  }
  if (within.end > at) visit(at, within.end - at);
}

void Claimed::each_free_extent(const Visit& visit) const {
  for (unsigned medium = 0; medium < kMaxMedia; ++medium) {
    const std::uint64_t end = capacities_.end[medium];
    if (end == 0) continue;
    each_gap(extents_, {place_on(medium, heap_begins(medium)), place_on(medium, end)}, visit);
  }
}

void Claimed::each_free_cells(const Visit& visit) const { each_gap(cells_, {0, kCells}, visit); }

}  // namespace tensorshelf
