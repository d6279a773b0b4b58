// Mirrors of which something cannot be read.
#include <algorithm>
#include <cerrno>

#include "mirror_plays.hpp"
#include "mirrored_play.hpp"
#include "rng.hpp"
#include "survey.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::byte kRot{16};  // no word that lay there before differs in that bit alone

// Where the value of that commit lies; the size of the disk where it does not.
std::uint64_t place_of(const CachedDisk& disk, std::uint64_t serial) {
  const Bytes value = stamped(kMirroredBytes, serial);
  const auto at =
      std::search(disk.visible.begin(), disk.visible.end(), value.begin(), value.begin() + 64);
  return static_cast<std::uint64_t>(at - disk.visible.begin());
}

}  // namespace

// What the process lacked for a moment says nothing about what the mirror has.
std::string passing_error_of_a_mirror_is_no_damage() {
  const Mirrored mirrored;
  mirrored.commit(3);
  CachedDisk& mirror = *mirrored.mirror;
  Shelf shelf = mirrored.open();
  const std::uint64_t page = place_of(mirror, 3) / kPageBytes * kPageBytes;
  mirror.unreadable[page] = ENOMEM;
  for (const bool heals : {false, true}) {
    try {
      static_cast<void>(heals ? shelf.heal() : shelf.verify());
      return "an error that passes is told as damage, or not at all";
    } catch (const Error& error) {
      if (error.os_error() != ENOMEM) throw;
    }
  }
  mirror.unreadable[page] = EIO;
  const VerifyReport report = shelf.verify();
  if (report.damage.size() != 1 || !report.damage[0].in_mirror) return "no damage is told";
  mirror.unreadable.clear();
  if (!shelf.verify().damage.empty()) return "what can be read is damaged";
  return mirrored.alone(3);
}

// What is copied out in pieces, as by a resize or a snapshot, has what the mirror has.
std::string rot_is_copied_from_the_mirror() {
  const Mirrored mirrored;
  mirrored.commit(3);
  flip(*mirrored.first, place_of(*mirrored.first, 3) + 50);
  Shelf shelf = mirrored.open();
  shelf.resize("a", kMirroredBytes - 1);
  Bytes bytes(kMirroredBytes - 1);
  shelf.find("a")->read(bytes);
  Bytes expected = stamped(kMirroredBytes, 3);
  expected.pop_back();
  return bytes == expected ? "" : "a resize has other bytes";
}

// A mirror of which a part of the heads is there, as a copy leaves it that was interrupted, has no
// say in what the first shows: one copy of its newest root is damaged.
std::string short_mirror_keeps_nobody_out() {
  const Mirrored mirrored;
  mirrored.commit(3);
  flip(*mirrored.first, format::root_at(3 % 2, 1) + 100);
  Bytes left = mirrored.mirror->visible;
  left.resize(format::kMirrorAt + format::kHeapAt / 4);
  mirrored.mirror->become(std::move(left));
  try {
    if (mirrored.open().step() != 3) return "another version is opened";
  } catch (const Error& error) {
    return fmt::format("a mirror that was cut short keeps a shelf from being opened: {}",
                       error.what());
  }
  return mirrored.alone(3);
}

namespace {

// Both copies of the roots in those homes; in a part of a page that differs from run to run.
void rot_homes(CachedDisk& disk, std::uint64_t homes, std::uint64_t at) {
  for (unsigned home = 0; homes >> home != 0; ++home) {
    if ((homes >> home & 1) == 0) continue;
    for (const unsigned copy : {0U, 1U}) disk.visible[format::root_at(home, copy) + at] ^= kRot;
  }
  disk.durable = disk.visible;
}

// With the roots of those homes damaged, and a process that dies at each event of an opening.
std::string open_with_rot(const Mirrored& mirrored, std::uint64_t homes, std::uint64_t at,
                          std::size_t versions) {
  CachedDisk& first = *mirrored.first;
  CachedDisk& mirror = *mirrored.mirror;
  const Bytes whole = first.visible;
  const Bytes mirrored_whole = mirror.visible;
  Rng rng(homes * kPageBytes + at);
  first.fate_of_dirty =
      mirror.fate_of_dirty = [&] { return static_cast<CachedDisk::Fate>(rng.below(3)); };
  bool opened = false;
  for (unsigned step = 0; !opened; ++step) {
    first.become(whole);
    mirror.become(mirrored_whole);
    rot_homes(first, homes, at);
    opened = mirrored.opens_before_death(step);
    const Shelf shelf = mirrored.open();
    if (shelf.step() != 7) return fmt::format("version {} is opened", shelf.step().value_or(0));
    if (shelf.versions().size() != versions) return "an older version is given up";
  }
  if (std::string problem = mirrored.alone(7); !problem.empty()) return problem;
  mirrored.open();  // mends the second copies
  return survey(first.visible).damage;
}

}  // namespace

// As many roots as are damaged in both copies, as long as one is left that both have.
std::string damaged_roots_are_read_from_the_mirror() {
  for (const unsigned keep : {0U, 1U, 2U}) {
    const Mirrored mirrored(keep);
    for (std::uint64_t serial = 3; serial < 8; ++serial) mirrored.commit(serial);
    const unsigned homes = keep + 2;
    const std::size_t versions = mirrored.open().versions().size();
    const Bytes whole = mirrored.first->visible;
    const Bytes mirrored_whole = mirrored.mirror->visible;
    const std::uint64_t waiting = 1U << 8 % homes;
    for (std::uint64_t rotten = 1; rotten + 1 < 1U << homes; ++rotten) {
      for (const std::uint64_t at : {0, 3, 200}) {  // its word twice, its body
        // Where its words are whole they tell enough by themselves, until it is wiped.
        if (at == 200 && (rotten & waiting) != 0) continue;
        mirrored.first->become(whole);
        mirrored.mirror->become(mirrored_whole);
        std::string problem = open_with_rot(mirrored, rotten, at, versions);
        if (!problem.empty()) {
          return fmt::format("keep {}, homes {:b}, at {}: {}", keep, rotten, at, problem);
        }
      }
    }
  }
  return "";
}

namespace {

// Of a shelf whose first medium has lost roots: an opening that dies at that event, one that dies
// at the other, and then the power goes, with what the first has not got yet.
std::string open_twice(const Mirrored& mirrored, std::array<unsigned, 2> events, bool landed) {
  CachedDisk& first = *mirrored.first;
  CachedDisk& mirror = *mirrored.mirror;
  first.fate_of_dirty = [] { return CachedDisk::Fate::missing; };
  mirror.fate_of_dirty = [=] {
    return landed ? CachedDisk::Fate::landed : CachedDisk::Fate::garbage;
  };
  for (const unsigned event : events) {
    const unsigned end = first.events + mirror.events + event;
    first.dies = mirror.dies = [&, end](unsigned) { return first.events + mirror.events > end; };
    mirrored.opens();
    first.dies = mirror.dies = {};
  }
  mirrored.lose_power();
  const Shelf shelf = mirrored.open();
  if (shelf.info().recovery.degraded) return "the opening is in doubt";
  if (shelf.step() != 7) return fmt::format("version {} is opened", shelf.step().value_or(0));
  return shelf.versions().size() == 2 ? "" : "an older version is given up";
}

}  // namespace

// What an opening wrote of an older root may lie in a cache alone when the next one fills the
// mirror.
std::string interrupted_openings_keep_what_the_mirror_has() {
  const Mirrored mirrored(1);
  for (std::uint64_t serial = 3; serial < 8; ++serial) mirrored.commit(serial);
  const Bytes whole = mirrored.first->visible;
  const Bytes mirrored_whole = mirrored.mirror->visible;
  for (const unsigned home : {6U % 3, 5U % 3}) {  // of the older version, and of the next
    for (unsigned run = 0; run < 2 * 12 * 40; ++run) {
      mirrored.first->become(whole);
      mirrored.mirror->become(mirrored_whole);
      rot_homes(*mirrored.first, 1U << home, 3);
      const std::array<unsigned, 2> events = {run / 2 % 12, run / 24};
      std::string problem = open_twice(mirrored, events, run % 2 == 0);
      if (!problem.empty()) {
        return fmt::format("home {}, events {} and {}: {}", home, events[0], events[1], problem);
      }
    }
  }
  return "";
}

// It has one incarnation less, and the copy that tells so is damaged, with the newest root.
std::string mirror_that_was_given_up_shows_nothing() {
  for (const unsigned copy : {0U, 1U}) {
    const Mirrored mirrored(1);
    for (std::uint64_t serial = 3; serial < 7; ++serial) mirrored.commit(serial);
    Shelf::open(std::make_unique<CachedMedium>(mirrored.first),
                {.mode = Mode::update, .without = {1}})
        .persist(7);
    rot_homes(*mirrored.first, 1U << 7 % 3, 200);
    flip(*mirrored.first, format::incarnation_at(copy));
    const Shelf shelf = mirrored.open(Mode::read);
    if (!shelf.info().recovery.degraded) return "an older version is shown as the newest";
  }
  return "";
}

// The first was put back as it was, and goes on alone: to the same version, by the same
// incarnation.
std::string mirror_of_another_history_shows_nothing() {
  const Mirrored mirrored(1);
  for (std::uint64_t serial = 3; serial < 7; ++serial) mirrored.commit(serial);
  const Bytes before = mirrored.first->visible;
  mirrored.commit(7);
  mirrored.first->become(before);
  {
    Shelf shelf = Shelf::open(std::make_unique<CachedMedium>(mirrored.first),
                              {.mode = Mode::update, .without = {1}});
    shelf.find("a")->write(stamped(kMirroredBytes, 8));
    shelf.persist(8);
  }
  rot_homes(*mirrored.first, 1U << 7 % 3, 200);
  const Shelf shelf = mirrored.open(Mode::read);
  if (shelf.info().recovery.degraded) return "";
  return fmt::format("step {} is shown as the newest", shelf.step().value_or(0));
}

// What rots there is told, and mended while the first is sound, for nobody reads it before that is
// lost.
std::string rot_of_a_mirror_is_mended() {
  const Mirrored mirrored;
  mirrored.commit(3);
  CachedDisk& mirror = *mirrored.mirror;
  {
    Shelf shelf = mirrored.open();
    const std::uint64_t at = place_of(mirror, 3);
    if (at == mirror.visible.size()) return "the mirror lacks the value";
    mirror.visible[at + 100] ^= std::byte{1};
    mirror.durable = mirror.visible;
    const VerifyReport report = shelf.heal();
    if (report.damage.size() != 1 || !report.damage[0].in_mirror || !report.damage[0].healed) {
      return "what rotted on a mirror is not found";
    }
    if (!shelf.verify().damage.empty()) return "what was mended is damaged";
  }
  return mirrored.alone(3);
}

}  // namespace tensorshelf::crash
