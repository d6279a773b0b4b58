#include "held_pages.hpp"

#include <algorithm>
#include <set>

#include <tensorshelf/extent.hpp>

#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

std::uint64_t page_of(std::uint64_t at) { return at / kPageBytes * kPageBytes; }

// Calls `each` with the part of the stretch in every page that it touches.
template <typename Each>
void for_each_page(const Stretch& stretch, const Each& each) {
  const std::uint64_t end = stretch.at + stretch.size_bytes;
  for (std::uint64_t at = stretch.at; at < end;) {
    const std::uint64_t part = std::min(page_of(at) + kPageBytes, end) - at;
    each(Stretch{.at = at, .size_bytes = part, .bytes_at = stretch.bytes_at + (at - stretch.at)});
    at += part;
  }
}

// All and nothing are among them, which few pages by themselves would seldom come to.
bool is_lost(std::uint64_t seed, const Loss& page) {
  const std::uint64_t way = mixed(seed) % 4;
  if (way < 2) return way == 0;
  return mixed(seed ^ mixed(page.event ^ mixed(page.at))) % 2 == 0;
}

}  // namespace

void HeldPages::note(const Log& log, std::size_t event, const Disk& disk) {
  const Event& noted = log.events[event];
  if (const Stretch* stretch = stored(noted)) {
    const auto before = disk.bytes().subspan(stretch->at, stretch->size_bytes);
    items_.push_back({event, {before.begin(), before.end()}});
  } else if (is<DeathEvent>(noted)) {
    items_.clear();
  } else if (const auto* shorter = std::get_if<CutEvent>(&noted)) {
    cut(log, shorter->size_bytes);
  } else {
    hand_on(log, noted);
  }
}

Stretch HeldPages::left_of(const Log& log, const Item& item) {
  Stretch stretch = *stored(log.events[item.event]);
  stretch.size_bytes = item.before.size();
  return stretch;
}

// What was held of the rest went with it.
void HeldPages::cut(const Log& log, std::uint64_t size_bytes) {
  for (Item& item : items_) {
    const Stretch stretch = left_of(log, item);
    const std::uint64_t end = std::min(stretch.at + stretch.size_bytes, size_bytes);
    item.before.resize(end - std::min(stretch.at, end));
  }
  std::erase_if(items_, [](const Item& item) { return item.before.empty(); });
}

void HeldPages::hand_on(const Log& log, const Event& event) {
  const auto* wait = std::get_if<WaitEvent>(&event);
  const bool barrier = is<BarrierEvent>(event);
  if (wait == nullptr && !barrier) return;
  const Part part = barrier ? std::get<BarrierEvent>(event).part : wait->part;
  for (Item& item : items_) {
    if (part != Part::all && log.part_of(stored(log.events[item.event])->at) != part) continue;
    const auto* write = std::get_if<WriteEvent>(&log.events[item.event]);
    const bool covered = write == nullptr ? barrier : wait && write->ticket <= wait->ticket;
    item.handed_on = item.handed_on || covered;
  }
  const auto first =
      std::find_if(items_.begin(), items_.end(), [](const Item& item) { return !item.handed_on; });
  items_.erase(items_.begin(), first);
}

DeathEvent HeldPages::end(Log& log, Disk& disk, std::uint64_t seed) {
  DeathEvent death;
  std::set<std::uint64_t> pages;
  for (const Item& item : items_) {
    if (item.handed_on) continue;
    for_each_page(left_of(log, item), [&](const Stretch& part) {
      const Loss page{item.event, page_of(part.at)};
      if (!is_lost(seed, page)) return;
      death.lost.push_back(page);
      pages.insert(page.at);
    });
  }
  if (!death.lost.empty()) {
    undo(log, disk);
    apply_again(log, disk, death);
  }
  for (const std::uint64_t page : pages) {
    const auto left = disk.bytes().subspan(page, kPageBytes);
    death.left.push_back({.at = page, .size_bytes = kPageBytes, .bytes_at = log.bytes.size()});
    log.bytes.insert(log.bytes.end(), left.begin(), left.end());
  }
  items_.clear();
  return death;
}

void HeldPages::undo(const Log& log, Disk& disk) {
  for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
    disk.write(stored(log.events[item->event])->at, item->before);
  }
}

void HeldPages::apply_again(const Log& log, Disk& disk, const DeathEvent& death) {
  for (const Item& item : items_) {
    for_each_page(left_of(log, item), [&](const Stretch& part) {
      if (!death.loses({item.event, page_of(part.at)})) disk.write(part.at, log.content(part));
    });
  }
}

}  // namespace tensorshelf::crash
