#include "window.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <tensorshelf/extent.hpp>

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
         is<WriteEvent>(log_.events[unit.event]);
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

// How long every process finds the medium.
std::uint64_t Window::visible_bytes() const {
  std::uint64_t size = disk_.size_bytes();
  for (const Unit& unit : units_) {
    if (unit.is_size) size = unit.is_cut ? std::min(size, unit.at) : std::max(size, unit.at);
  }
  return size;
}

// It is room no more, whether it lands or not.
void Window::add_cut(std::uint64_t size_bytes, std::uint32_t number) {
  disk_.give_up_room(size_bytes);
  const std::uint64_t before = visible_bytes();
  if (before <= size_bytes) return;
  units_.push_back({.at = size_bytes,
                    .size_bytes = before - size_bytes,
                    .event = number,
                    .is_size = true,
                    .is_cut = true});
  crowd(units_.back());
}

// To half-way, or to its end.
void Window::add_growth(std::uint64_t size_bytes, std::uint32_t number) {
  const std::uint64_t before = visible_bytes();
  const std::uint64_t half = (before + size_bytes) / 2 / kPageBytes * kPageBytes;
  if (half > before) units_.push_back({.at = half, .event = number, .is_size = true});
  units_.push_back({.at = size_bytes, .event = number, .is_size = true});
}

void Window::add(const Stretch& stored, std::uint32_t index) {
  const std::uint64_t step = unit_bytes(personality_, stored.size_bytes);
  std::vector<Unit> added;
  for (std::uint64_t done = 0; done < stored.size_bytes; done += step) {
    const Unit unit{.at = stored.at + done,
                    .size_bytes = std::min(step, stored.size_bytes - done),
                    .bytes_at = stored.bytes_at + done,
                    .event = index,
                    .orphan = failed(log_.events[index])};
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

// (A length is the first's: the second has none to change.)
bool Window::is_of(const Unit& unit, Part part) const {
  return part == Part::all || log_.part_of(unit.at) == part;
}

bool Window::covers(const BarrierEvent& barrier, const Unit& unit) const {
  if (unit.orphan || !is_of(unit, barrier.part)) return false;
  const Event& event = log_.events[unit.event];
  if (const auto* growth = std::get_if<GrowthEvent>(&event)) return growth->settles;
  const auto* write = std::get_if<WriteEvent>(&event);
  if (write == nullptr) return true;
  if (write->ticket > waited_[static_cast<std::size_t>(barrier.part)]) return false;
  return personality_ == Personality::block || write->drained || write->thread == barrier.thread;
}

void Window::orphan_all(Part part) {
  for (Unit& unit : units_) {
    if (is_of(unit, part)) unit.orphan = !unit.is_size;
  }
}

// A cut takes along what was stored there before, and may land no more.
void Window::settle_size(const Unit& unit, std::vector<Unit>& open) {
  if (unit.is_cut) {
    disk_.cut(unit.at);
    std::erase_if(open, [&](const Unit& older) { return older.is_size && older.at > unit.at; });
    for (std::vector<Unit> all = std::exchange(open, {}); const Unit& older : all) {
      std::vector<Unit> pieces = {older};
      if (!older.is_size) cut_out(pieces, {.at = unit.at, .size_bytes = disk_.capacity_bytes()});
      open.insert(open.end(), pieces.begin(), pieces.end());
    }
    return;
  }
  const auto& growth = std::get<GrowthEvent>(log_.events[unit.event]);
  disk_.grow(unit.at);
  std::uint64_t room = unit.at;
  for (const Unit& later : units_) {
    if (later.is_cut && later.event > unit.event) room = std::min(room, later.at);
  }
  if (growth.room && unit.at == growth.size_bytes) disk_.make_room(room);
}

// Once a unit is settled, nothing issued before it can land over it.
void Window::settle(const BarrierEvent& barrier) {
  std::vector<Unit> open;
  std::vector<Unit> settled;  // as long as older ones are open
  std::uint32_t growth = 0;   // the last that is covered, and with it all cuts before
  for (const Unit& unit : units_) {
    if (unit.is_size && !unit.is_cut && covers(barrier, unit)) growth = unit.event;
  }
  std::uint64_t end = ~std::uint64_t{0};  // where a cut is open
  for (const Unit& unit : units_) {
    const bool covered = unit.is_cut ? unit.event < growth : covers(barrier, unit);
    const std::uint64_t grown = std::min(end, disk_.size_bytes());
    if (!covered || (!unit.is_size && unit.at + unit.size_bytes > grown)) {
      if (unit.is_cut) end = std::min(end, unit.at);
      open.push_back(unit);
      continue;
    }
    if (unit.is_size) {
      settle_size(unit, open);
      continue;
    }
    disk_.write(unit.at, std::span(log_.bytes).subspan(unit.bytes_at, unit.size_bytes));
    if (!open.empty()) settled.push_back(unit);
  }
  units_ = settled.empty() ? std::move(open) : without_what_lies_below(open, std::move(settled));
  crowd_anew();
}

void Window::crowd_anew() {
  crowded_.clear();
  for (const Unit& unit : units_) {
    if (!unit.is_size || unit.is_cut) crowd(unit);
  }
}

// What is lost is on no medium, now or later. On block the kernel has all the rest.
void Window::die(const DeathEvent& death) {
  if (personality_ == Personality::pmem) return orphan_all();
  waited_.fill(issued_);
  std::vector<Unit> left;
  for (const Unit& unit : units_) {
    std::vector<Unit> pieces = {unit};
    auto page = std::lower_bound(death.lost.begin(), death.lost.end(), Loss{unit.event, 0});
    for (; page != death.lost.end() && page->event == unit.event; ++page) {
      cut_out(pieces, {.at = page->at, .size_bytes = kPageBytes});
    }
    left.insert(left.end(), pieces.begin(), pieces.end());
  }
  units_ = std::move(left);
  crowd_anew();
}

void Window::take(std::size_t index) {
  const Event& event = log_.events[index];
  const auto number = static_cast<std::uint32_t>(index);
  newest_ = units_.size();
  if (const Stretch* stretch = stored(event)) add(*stretch, number);
  if (const auto* write = std::get_if<WriteEvent>(&event)) {
    issued_ = std::max(issued_, write->ticket);
  } else if (const auto* growth = std::get_if<GrowthEvent>(&event)) {
    add_growth(growth->size_bytes, number);
  } else if (const auto* cut = std::get_if<CutEvent>(&event)) {
    add_cut(cut->size_bytes, number);
  } else if (const auto* wait = std::get_if<WaitEvent>(&event)) {
    std::uint64_t& waited = waited_[static_cast<std::size_t>(wait->part)];
    waited = std::max(waited, wait->ticket);
  } else if (const auto* barrier = std::get_if<BarrierEvent>(&event)) {
    settle(*barrier);
    newest_ = units_.size();
  } else if (const auto* failure = std::get_if<FailureEvent>(&event)) {
    if (failure->orphans) orphan_all(failure->part);
  } else if (const auto* death = std::get_if<DeathEvent>(&event)) {
    die(*death);
    newest_ = units_.size();
  }
}

void Window::land(const Image& image) {
  TENSORSHELF_ASSERT(image.size() == units_.size());
  std::uint64_t end = ~std::uint64_t{0};  // where a cut did not land
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (image[i] == Landing::missing) {
      if (unit.is_cut) end = std::min(end, unit.at);
      continue;
    }
    if (unit.is_size) {
      disk_.cut(std::min(unit.is_cut ? unit.at : disk_.size_bytes(), end));
      end = ~std::uint64_t{0};
      // And no more: of what is not settled a length is all that may be left.
      if (!unit.is_cut) disk_.grow(unit.at);
      continue;
    }
    // The growth did not land.
    if (unit.at + unit.size_bytes > std::min(end, disk_.size_bytes())) continue;
    if (image[i] == Landing::landed) {
      disk_.write(unit.at, std::span(log_.bytes).subspan(unit.bytes_at, unit.size_bytes));
      continue;
    }
    garbage_.resize(unit.size_bytes);
    for (std::size_t k = 0; k < garbage_.size(); ++k) {
      garbage_[k] = static_cast<std::byte>(mixed(unit.at + k));
    }
    disk_.write(unit.at, garbage_);
  }
}

}  // namespace tensorshelf::crash
