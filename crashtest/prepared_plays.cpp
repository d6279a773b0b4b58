#include "prepared_plays.hpp"

#include "cached_play.hpp"
#include "tests/raw_pages.hpp"

namespace tensorshelf::crash {
namespace {

// Whether both copies of the mark say that nothing is prepared.
bool marks_nothing(const CachedPlay& play) {
  CachedMedium medium(play.disk);
  const auto head = format::read_superblock(raw_at(medium, format::superblock_at(0)), 0);
  const format::Seeds seeds(head.superblock.value().shelf_id);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const auto mark = format::read_mark(raw_at(medium, format::mark_at(copy)), seeds, copy);
    if (!mark || mark->version != 0) return false;
  }
  return true;
}

}  // namespace

// One copy of the home that comes next is damaged, which costs nothing. Then an attempt is prepared
// there, and the other copy is damaged.
std::string prepared_survives_damage_before_and_after() {
  for (unsigned first = 0; first < format::kCopies; ++first) {
    const CachedPlay play;
    spoil(*play.disk, format::root_at(0, first));
    {
      Shelf shelf = play.open();
      shelf.find("a")->write(value(2));
      shelf.prepare(2);
    }
    spoil(*play.disk, format::root_at(0, 1 - first));
    Shelf shelf = play.open();
    if (!shelf.prepared()) return "what was prepared is lost to damage in one copy";
    shelf.resolve(Decision::commit);
    shelf.close();
    if (auto wrong = play.shows(2); !wrong.empty()) return wrong;
  }
  return {};
}

// The writes of version 3 never came to one copy, where version 1 lies still. Nobody misses them
// when version 4 is there. Then an attempt is prepared in that home, and its other copy is damaged.
std::string prepared_survives_beside_an_older_root() {
  for (unsigned stale = 0; stale < format::kCopies; ++stale) {
    const CachedPlay play;
    const auto at = static_cast<std::ptrdiff_t>(format::root_at(1, stale));
    const Bytes first(play.disk->visible.begin() + at,
                      play.disk->visible.begin() + at + kPageBytes);
    for (unsigned version = 2; version <= 4; ++version) {
      Shelf shelf = play.open();
      CachedPlay::commit(shelf, version);
    }
    for (Bytes* bytes : {&play.disk->visible, &play.disk->durable}) {
      std::copy(first.begin(), first.end(), bytes->begin() + at);
    }
    {
      Shelf shelf = play.open();
      shelf.find("a")->write(value(5));
      shelf.prepare(5);
    }
    spoil(*play.disk, format::root_at(1, 1 - stale));
    Shelf shelf = play.open();
    if (!shelf.prepared()) return "what was prepared beside an older root is lost";
    shelf.resolve(Decision::commit);
    shelf.close();
    if (auto wrong = play.shows(5); !wrong.empty()) return wrong;
  }
  return {};
}

// The flush of the first mark fails, which leaves it on no device, and in a cache alone; the next
// open is cut off after each of its steps. No copy may be under way while the other is on no
// device.
std::string mark_is_made_durable() {
  for (unsigned dying = 0;; ++dying) {
    CachedPlay play;
    CachedDisk& disk = *play.disk;
    disk.fate_of_dirty = [] { return CachedDisk::Fate::garbage; };
    {
      Shelf shelf = play.open();
      shelf.find("a")->write(value(2));
      disk.barrier_fails = [mark = disk.barriers + 1](unsigned n) { return n == mark; };
      fails([&] { shelf.prepare(2); });
    }
    disk.barrier_fails = {};
    const bool opened = opens_before_death(play, dying);
    const Shelf shelf = play.open();  // for writing, or throws
    if (!opened) continue;
    return shelf.prepared() ? "" : "what an open found prepared is lost with the power";
  }
}

// An attempt is prepared over version 2, which is then lost to damage. A later version 2 is
// another: the attempt is not one over that. It is wiped, and its mark goes too.
std::string mark_dies_with_its_version() {
  CachedPlay play(std::make_shared<CachedDisk>());
  {
    CachedMedium medium(play.disk);
    Shelf::format(medium, {.keep = 2});  // four homes, of which the fallback wipes another
  }
  play.make_first();
  {
    Shelf shelf = play.open();
    CachedPlay::commit(shelf, 2);
    shelf.find("a")->write(value(3));
    shelf.prepare(3);
  }
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    spoil(*play.disk, format::root_at(2, copy));
  }
  Shelf shelf = play.open();
  if (!shelf.info().recovery.degraded) return "a version without a root is opened";
  if (shelf.prepared()) return "what was prepared is over a version that is lost";
  if (!marks_nothing(play)) return "the mark of what was given up is left";
  CachedPlay::commit(shelf, 7);
  shelf.close();
  if (play.open().prepared()) return "what was prepared over another version is prepared again";
  return play.shows(7);
}

}  // namespace tensorshelf::crash
