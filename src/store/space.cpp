#include "store/space.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tensorshelf {

void Space::release(std::uint64_t at, std::uint64_t size) {
  if (size == 0) return;
  auto next = ranges_.lower_bound(at);
  TENSORSHELF_ASSERT(next == ranges_.end() || at + size <= next->first);
  total_ += size;
  if (next != ranges_.end() && next->first == at + size) {
    size += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    auto previous = std::prev(next);
    TENSORSHELF_ASSERT(previous->first + previous->second <= at);
    if (previous->first + previous->second == at) {
      previous->second += size;
      return;
    }
  }
  ranges_.emplace_hint(next, at, size);
}

void Space::cut(Ranges::iterator range, std::uint64_t at, std::uint64_t size) {
  const auto [start, length] = *range;
  ranges_.erase(range);
  if (at > start) ranges_.emplace(start, at - start);
  if (at + size < start + length) ranges_.emplace(at + size, start + length - at - size);
  total_ -= size;
}

std::optional<std::uint64_t> Space::take(std::uint64_t size) {
  auto best = ranges_.end();
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->second < size) continue;
    if (best == ranges_.end() || range->second < best->second) best = range;
    if (best->second == size) break;
  }
  if (best == ranges_.end()) return std::nullopt;
  const std::uint64_t at = best->first;
  cut(best, at, size);
  return at;
}

std::optional<std::uint64_t> Space::take_high(std::uint64_t size) {
  for (auto range = ranges_.rbegin(); range != ranges_.rend(); ++range) {
    if (range->second < size) continue;
    const std::uint64_t at = range->first + range->second - size;
    cut(std::prev(range.base()), at, size);
    return at;
  }
  return std::nullopt;
}

bool Space::take_at(std::uint64_t at, std::uint64_t size) {
  auto range = ranges_.upper_bound(at);
  if (range == ranges_.begin()) return false;
  --range;
  const std::uint64_t skipped = at - range->first;
  if (skipped >= range->second || size > range->second - skipped) return false;
  cut(range, at, size);
  return true;
}

std::uint64_t Space::largest() const {
  std::uint64_t largest = 0;
  for (const auto& [start, size] : ranges_) largest = std::max(largest, size);
  return largest;
}

}  // namespace tensorshelf
