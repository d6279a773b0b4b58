#include "unread_plays.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "cached_play.hpp"

namespace tensorshelf::crash {
namespace {

// An opener does not read what a failed flush has lost. It writes over the slots that this may
// name, and commits nothing. Then what was lost is read, but where he wrote.
void work_without_what_was_lost(const CachedPlay& play) {
  CachedDisk& disk = *play.disk;
  const Bytes lost = std::exchange(disk.visible, disk.durable);
  std::set<std::uint64_t> written;  // sectors
  const auto note = [&](unsigned) {
    for (const auto& [sector, how] : disk.dirty) written.insert(sector);
    return false;
  };
  disk.barrier_fails = note;
  {
    Shelf shelf = play.open();
    shelf.find("a")->write(value(3));
  }
  note(0);
  disk.barrier_fails = {};
  for (std::uint64_t sector = 0; sector * CachedDisk::kSectorBytes < lost.size(); ++sector) {
    if (written.contains(sector)) continue;
    const auto at = static_cast<std::ptrdiff_t>(sector * CachedDisk::kSectorBytes);
    std::copy_n(lost.begin() + at, CachedDisk::kSectorBytes, disk.visible.begin() + at);
  }
}

}  // namespace

// The flush after the flip fails.
std::string unread_version_stays_away() {
  const CachedPlay play;
  {
    Shelf shelf = play.open();
    play.disk->barrier_fails = [flip = play.disk->barriers + 1](unsigned n) { return n == flip; };
    fails([&] { CachedPlay::commit(shelf, 2); });
  }
  work_without_what_was_lost(play);
  return play.open(Mode::read).info().version == 1
             ? ""
             : "a version is opened that an opening before did not find";
}

// The first flush of a mark fails.
std::string unread_mark_stays_away() {
  const CachedPlay play;
  {
    Shelf shelf = play.open();
    shelf.find("a")->write(value(2));
    play.disk->barrier_fails = [mark = play.disk->barriers + 1](unsigned n) { return n == mark; };
    fails([&] { shelf.prepare(2, "an attempt"); });
  }
  work_without_what_was_lost(play);
  const bool there = play.open(Mode::read).info().recovery.prepared.has_value();
  return there ? "an attempt is prepared that an opening did not find" : "";
}

}  // namespace tensorshelf::crash
