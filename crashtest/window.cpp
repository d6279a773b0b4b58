#include "window.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

// Half-open range of the sectors that a unit touches.
std::uint64_t first_sector(const Unit& unit) { return unit.at / kSectorBytes; }
std::uint64_t end_sector(const Unit& unit) {
  return (unit.at + unit.size_bytes + kSectorBytes - 1) / kSectorBytes;
}

std::uint64_t unit_bytes(Personality personality, std::uint64_t write_bytes) {
  const std::uint64_t smallest = personality == Personality::pmem ? kWordBytes : kSectorBytes;
  return std::max(smallest, round_up(write_bytes / kMaxUnitsPerWrite, smallest));
}

void cut_out(std::vector<Unit>& pieces, const Unit& over) {
  std::vector<Unit> rest;
  for (const Unit& piece : pieces) {
    const std::uint64_t end = piece.at + piece.size_bytes;
    const std::uint64_t first = std::clamp(over.at, piece.at, end);
    const std::uint64_t last = std::clamp(over.at + over.size_bytes, piece.at, end);
    if (first > piece.at) {
      rest.push_back(piece);
      rest.back().size_bytes = first - piece.at;
    }
    if (last < end) {
      rest.push_back(piece);
      rest.back().at = last;
      rest.back().bytes_at += last - piece.at;
      rest.back().size_bytes = end - last;
    }
  }
  pieces = std::move(rest);
}

// What is left of the open units where later ones that are settled lie over them.
std::vector<Unit> without_what_lies_below(const std::vector<Unit>& open,
                                          std::vector<Unit> settled) {
  std::sort(settled.begin(), settled.end(),
            [](const Unit& a, const Unit& b) { return a.at < b.at; });
  std::uint64_t longest = 0;
  for (const Unit& unit : settled) longest = std::max(longest, unit.size_bytes);
  std::vector<Unit> left;
  for (const Unit& unit : open) {
    std::vector<Unit> pieces = {unit};
    const std::uint64_t from = unit.is_size || unit.at < longest ? 0 : unit.at - longest;
    auto over = std::lower_bound(settled.begin(), settled.end(), from,
                                 [](const Unit& a, std::uint64_t at) { return a.at < at; });
    for (; !unit.is_size && over != settled.end() && over->at < unit.at + unit.size_bytes; ++over) {
      if (over->event > unit.event) cut_out(pieces, *over);
    }
    left.insert(left.end(), pieces.begin(), pieces.end());
  }
  return left;
}

}  // namespace

Window::Window(Disk& settled, const Log& log, Personality personality, bool trash)
    : disk_(settled), log_(log), personality_(personality), trash_(trash) {}

bool Window::trashable(const Unit& unit) const {
  return trash_ && personality_ == Personality::block && !unit.is_size &&
         log_.events[unit.event].kind == EventKind::write;
}

bool Window::settled_has(const Unit& unit) const {
  if (unit.is_size) return unit.at <= disk_.size_bytes();
  if (unit.at + unit.size_bytes > disk_.size_bytes()) return false;
  for (std::uint64_t sector = first_sector(unit); sector < end_sector(unit); ++sector) {
    if (crowded_.contains(sector)) return false;
  }
  return std::memcmp(disk_.bytes().data() + unit.at, log_.bytes.data() + unit.bytes_at,
                     unit.size_bytes) == 0;
}

void Window::add(const Event& event, std::uint32_t index) {
  const std::uint64_t step = unit_bytes(personality_, event.size_bytes);
  std::vector<Unit> added;
  for (std::uint64_t done = 0; done < event.size_bytes; done += step) {
    const Unit unit{.at = event.at + done,
                    .size_bytes = std::min(step, event.size_bytes - done),
                    .bytes_at = event.bytes_at + done,
                    .event = index};
    if (settled_has(unit) && !trashable(unit)) continue;
    added.push_back(unit);
  }
  for (const Unit& unit : added) crowd(unit);
  units_.insert(units_.end(), added.begin(), added.end());
}

void Window::crowd(const Unit& unit) {
  for (std::uint64_t sector = first_sector(unit); sector < end_sector(unit); ++sector) {
    crowded_.insert(sector);
  }
}

bool Window::covers(const Event& barrier, const Unit& unit) const {
  const Event& event = log_.events[unit.event];
  if (unit.orphan) return false;
  if (event.kind == EventKind::reserve) return event.drained;
  if (event.kind != EventKind::write) return true;
  if (personality_ == Personality::block) return event.sequence <= waited_;
  return event.drained || event.thread == barrier.thread;
}

void Window::orphan_all() {
  for (Unit& unit : units_) unit.orphan = !unit.is_size;
}

// Once a unit is settled, nothing issued before it can land over it.
void Window::settle(const Event& barrier) {
  std::vector<Unit> open;
  std::vector<Unit> settled;  // as long as older ones are open
  for (const Unit& unit : units_) {
    const bool grown = unit.is_size || unit.at + unit.size_bytes <= disk_.size_bytes();
    if (!covers(barrier, unit) || !grown) {
      open.push_back(unit);
      continue;
    }
    if (unit.is_size) {
      disk_.grow(unit.at);
      continue;
    }
    disk_.write(unit.at, std::span(log_.bytes).subspan(unit.bytes_at, unit.size_bytes));
    if (!open.empty()) settled.push_back(unit);
  }
  units_ = settled.empty() ? std::move(open) : without_what_lies_below(open, std::move(settled));
  crowded_.clear();
  for (const Unit& unit : units_) {
    if (!unit.is_size) crowd(unit);
  }
}

void Window::take(std::size_t index) {
  const Event& event = log_.events[index];
  newest_ = units_.size();
  switch (event.kind) {
    case EventKind::write:
      issued_ = std::max(issued_, event.sequence);
      [[fallthrough]];
    case EventKind::word:
      add(event, static_cast<std::uint32_t>(index));
      break;
    case EventKind::reserve:
      units_.push_back(
          {.at = event.at, .event = static_cast<std::uint32_t>(index), .is_size = true});
      break;
    case EventKind::wait:
      waited_ = std::max(waited_, event.sequence);
      break;
    case EventKind::barrier:
      settle(event);
      newest_ = units_.size();
      break;
    case EventKind::lost:
      if (event.at != 0) orphan_all();
      break;
    case EventKind::died:
      waited_ = issued_;  // on block the kernel has it all
      if (personality_ == Personality::pmem) orphan_all();
      break;
    case EventKind::mark:
      break;
  }
}

void Window::land(const Image& image) {
  TENSORSHELF_ASSERT(image.size() == units_.size());
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (image[i] == Landing::missing) continue;
    if (unit.is_size) {
      disk_.grow(unit.at);
      continue;
    }
    if (unit.at + unit.size_bytes > disk_.size_bytes()) continue;  // the growth did not land
    if (image[i] == Landing::landed) {
      disk_.write(unit.at, std::span(log_.bytes).subspan(unit.bytes_at, unit.size_bytes));
      continue;
    }
    garbage_.resize(unit.size_bytes);
    for (std::size_t k = 0; k < garbage_.size(); ++k) {
      garbage_[k] = static_cast<std::byte>(mix(unit.at + k));
    }
    disk_.write(unit.at, garbage_);
  }
}

}  // namespace tensorshelf::crash
