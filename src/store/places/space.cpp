#include "store/places/space.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace tensorshelf {

void Space::release(std::uint64_t at, std::uint64_t size) {
  if (size == 0) return;
  const auto next = ranges_.lower_bound(at);
  const auto previous = next == ranges_.begin() ? ranges_.end() : std::prev(next);
  TENSORSHELF_ASSERT(next == ranges_.end() || at + size <= next->first);
  TENSORSHELF_ASSERT(previous == ranges_.end() || previous->first + previous->second <= at);
  const bool joins_next = next != ranges_.end() && next->first == at + size;
  if (previous != ranges_.end() && previous->first + previous->second == at) {
    previous->second += size;
    if (joins_next) {
      previous->second += next->second;
      ranges_.erase(next);
    }
  } else if (joins_next) {
    replace(next, at, size + next->second);
  } else {
    ranges_.emplace_hint(next, at, size);  // the one step that may throw
  }
  total_ += size;
}

// The node is kept, so that nothing is allocated.
void Space::replace(Ranges::iterator range, std::uint64_t at, std::uint64_t size) {
  auto node = ranges_.extract(range);
  node.key() = at;
  node.mapped() = size;
  ranges_.insert(std::move(node));
}

void Space::cut(Ranges::iterator range, std::uint64_t at, std::uint64_t size) {
  const auto [start, length] = *range;
  const std::uint64_t above = start + length - (at + size);
  if (at > start) {
    if (above > 0) ranges_.emplace(at + size, above);  // the one step that may throw
    range->second = at - start;
  } else if (above > 0) {
    replace(range, at + size, above);
  } else {
    ranges_.erase(range);
  }
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

std::optional<std::uint64_t> Space::take_low(std::uint64_t size) {
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->second < size) continue;
    const std::uint64_t at = range->first;
    cut(range, at, size);
    return at;
  }
  return std::nullopt;
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

std::uint64_t Space::highest_from(std::uint64_t at) const {
  if (ranges_.empty()) return 0;
  const auto& [begin, size] = *ranges_.rbegin();
  return begin + size - std::min(begin + size, std::max(at, begin));
}

std::optional<Extent> Space::take_from(std::uint64_t at, std::uint64_t most) {
  const std::uint64_t size = std::min(highest_from(at), most);
  if (size == 0) return std::nullopt;
  const auto last = std::prev(ranges_.end());
  const Extent taken{last->first + last->second - size, size};
  cut(last, taken.at, size);
  return taken;
}

std::uint64_t Space::free_before(std::uint64_t end) const {
  const auto behind = ranges_.lower_bound(end);
  if (behind == ranges_.begin()) return end;
  const auto& [at, size] = *std::prev(behind);
  return at + size == end ? at : end;
}

Extent Space::take_lowest(std::uint64_t most) {
  TENSORSHELF_ASSERT(!ranges_.empty());
  const auto range = ranges_.begin();
  const Extent taken{range->first, std::min(range->second, most)};
  cut(range, taken.at, taken.size_bytes);
  return taken;
}

std::uint64_t Space::largest() const {
  std::uint64_t largest = 0;
  for (const auto& [start, size] : ranges_) largest = std::max(largest, size);
  return largest;
}

}  // namespace tensorshelf
