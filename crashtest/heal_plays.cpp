#include "heal_plays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "model.hpp"
#include "rng.hpp"
#include "tests/cached_disk.hpp"

namespace tensorshelf::crash {
namespace {

using testing::CachedDisk;
using testing::CachedMedium;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kSize = kMiB + 5000;  // two chunks

constexpr Placement kPlacements[] = {Placement::whole, Placement::by_chunk};

// A shelf whose tensor "a" is assigned one value twice, so that two slots have it.
struct Twice {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
  Bytes value = stamped(kSize, 1);
  OpenOptions options;

  explicit Twice(Placement placement, unsigned keep = 0) {
    options = {.mode = Mode::update, .placement = placement};
    {
      CachedMedium medium(disk);
      Shelf::format(medium, {.keep = keep});
    }
    Shelf shelf = open();
    shelf.create("a", DType::uint8, std::array<std::int64_t, 1>{kSize});
    shelf.create("b", DType::uint8, std::array<std::int64_t, 1>{100}).write(stamped(100, 7));
    for (std::uint64_t step : {1, 2}) {
      shelf.find("a")->write(value);
      shelf.persist(step);
    }
  }
  Shelf open() const { return Shelf::open(std::make_unique<CachedMedium>(disk), options); }
  Bytes shown(const Shelf& shelf) const {
    Bytes bytes(value.size());
    shelf.find("a").value().read(bytes);
    return bytes;
  }
};

// A bit of the bytes, which are the beginning of a chunk, where the newest version has them or
// where it has not: `bit` tells one such damage from another.
void rot(CachedDisk& disk, const Shelf& shelf, std::span<const std::byte> bytes, bool named,
         unsigned bit = 0) {
  const std::size_t before = shelf.verify().damage.size();
  const std::byte flipped{static_cast<unsigned char>(1U << bit)};
  for (auto there = disk.visible.begin();; ++there) {
    there = std::search(there, disk.visible.end(), bytes.begin(), bytes.begin() + 500);
    if (there == disk.visible.end()) throw std::runtime_error("a slot has not what it should have");
    const auto flip = [&] {
      there[50] ^= flipped;
      disk.durable[static_cast<std::size_t>(there - disk.visible.begin()) + 50] ^= flipped;
    };
    flip();
    if ((shelf.verify().damage.size() > before) == named) return;
    flip();
  }
}

bool is_corrupt(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    return true;
  }
  return false;
}

}  // namespace

// The slot that the version names rots, and the other one does not, or elsewhere.
std::string rot_is_healed_or_stays_rot() {
  for (const Placement placement : kPlacements) {
    for (const bool both : {false, true}) {
      const Twice twice(placement);
      {
        const Shelf shelf = twice.open();
        rot(*twice.disk, shelf, twice.value, true);
        if (both) rot(*twice.disk, shelf, twice.value, false, 3);
      }
      OpenOptions options = twice.options;
      options.heal = true;
      Shelf shelf = Shelf::open(std::make_unique<CachedMedium>(twice.disk), options);
      if (is_corrupt([&] {
            if (twice.shown(shelf) != twice.value) throw std::runtime_error("wrong bytes are read");
          }) != both) {
        return "what a slot has is not read";
      }
      const VerifyReport report = shelf.heal();
      if (report.damage.size() != 1 || report.damage[0].healed == both) {
        return "it is told of what is healed otherwise than it is";
      }
      if (shelf.version() != (both ? 2 : 3)) return "a version was made, or none";
      if (shelf.verify().damage.size() != (both ? 1 : 0)) return "rot has a checksum of its own";
      if (!both && twice.shown(shelf) != twice.value) return "wrong bytes are healed";
    }
  }
  return {};
}

// Nor is damage made the newest: what is there stays.
std::string damaged_version_is_not_rolled_back_to() {
  for (const Placement placement : kPlacements) {
    const Twice twice(placement, 1);
    Shelf shelf = twice.open();
    const Bytes newest = stamped(kSize, 3);
    shelf.find("a")->write(newest);
    shelf.persist(3);
    auto& disk = twice.disk->visible;
    for (auto there = disk.begin();; ++there) {
      there = std::search(there, disk.end(), twice.value.begin(), twice.value.begin() + 500);
      if (there == disk.end()) break;
      there[50] ^= std::byte{1};
    }
    if (!is_corrupt([&] { shelf.rollback(2); })) return "a damaged version is the newest";
    if (twice.shown(shelf) != newest || shelf.version() != 3) return "what was there is gone";
  }
  return {};
}

// A flush fails behind the second assignment: its bytes are to be read, and on no device.
std::string what_is_healed_is_durable() {
  for (const Placement placement : kPlacements) {
    const Twice twice(placement);
    const Bytes value = stamped(kSize, 2);
    {
      Shelf shelf = twice.open();
      shelf.find("a")->write(value);
      shelf.persist(3);
      shelf.find("a")->write(value);
      twice.disk->barrier_fails = [first = twice.disk->barriers](unsigned n) { return n == first; };
      try {
        shelf.persist(4);
        return "a commit succeeded on a medium that failed";
      } catch (const Error& error) {
        if (error.code() != Errc::io) throw;
      }
      twice.disk->barrier_fails = {};
    }
    {
      Shelf shelf = twice.open();
      // In what is durable of it alone, for there the other slot has it not.
      const auto at = std::search(twice.disk->durable.begin(), twice.disk->durable.end(),
                                  value.begin(), value.begin() + 500) -
                      twice.disk->durable.begin();
      for (Bytes* bytes : {&twice.disk->visible, &twice.disk->durable}) {
        (*bytes)[static_cast<std::size_t>(at) + 50] ^= std::byte{1};
      }
      if (shelf.heal().healed_as != 4) return "what can be read is not healed";
    }
    twice.disk->lose_power();
    const Shelf shelf = twice.open();
    if (shelf.version() != 4) return "an acknowledged version is lost";
    if (twice.shown(shelf) != value) return "what was healed is lost";
  }
  return {};
}

std::string damaged_slot_is_not_written() {
  for (const Placement placement : kPlacements) {
    for (const unsigned keep : {0U, 1U}) {
      const Twice twice(placement, keep);
      Shelf shelf = twice.open();
      rot(*twice.disk, shelf, twice.value, true);
      const Extent extent = shelf.verify().damage.at(0).extent;
      const auto begin = twice.disk->visible.begin() + static_cast<std::ptrdiff_t>(extent.at);
      const Bytes before(begin, begin + static_cast<std::ptrdiff_t>(extent.size_bytes));
      if (shelf.heal().healed_as != 3) return "it is not healed";
      if (!std::equal(before.begin(), before.end(), begin)) {
        return "a slot is written that a version names";
      }
    }
  }
  return {};
}

// What nobody assigns of a healed tensor comes from where it is sound.
std::string rot_does_not_come_in_with_what_is_healed() {
  const Twice twice(Placement::whole);
  Shelf shelf = twice.open();
  Bytes expected = twice.value;
  const Bytes first = stamped(kMiB, 5);
  std::copy(first.begin(), first.end(), expected.begin());
  for (std::uint64_t step : {3, 4}) {  // the second chunk is copied forward: both slots have it
    shelf.find("a")->write(first);
    shelf.persist(step);
  }
  rot(*twice.disk, shelf, first, true);
  rot(*twice.disk, shelf, std::span(expected).subspan(kMiB), false);
  if (shelf.heal().healed_as != 5) return "it is not healed";
  if (!shelf.verify().damage.empty()) return "a sound chunk is damaged by healing another";
  return twice.shown(shelf) == expected ? "" : "another value is there";
}

// A commit that finds rot where it would copy it forward is refused, and takes nothing away. (The
// shelf was opened since, so that nothing is known of the slot that it goes to.)
std::string refused_commit_leaves_it_healable() {
  const Twice twice(Placement::whole);
  Shelf shelf = twice.open();
  rot(*twice.disk, shelf, std::span(twice.value).subspan(kMiB), true);
  shelf.find("a")->write(std::span(twice.value).first(100));
  if (!is_corrupt([&] { shelf.persist(3); })) return "rot is committed";
  shelf.discard();
  if (shelf.heal().healed_as != 3) return "the last sound copy of a chunk is written over with rot";
  return twice.shown(shelf) == twice.value ? "" : "another value is there";
}

std::string healing_commits_nobodys_assignment() {
  for (const Placement placement : kPlacements) {
    const Twice twice(placement);
    Shelf shelf = twice.open();
    rot(*twice.disk, shelf, twice.value, true);
    bool assigned = false;
    try {
      shelf.heal([&](std::uint64_t, std::uint64_t) {
        if (!assigned) shelf.find("b")->write(stamped(100, 8));
        assigned = true;
      });
      return "it is committed with what is healed";
    } catch (const Error& error) {
      if (error.code() != Errc::uncommitted) throw;
    }
    shelf.discard();
    Bytes bytes(100);
    shelf.find("b")->read(bytes);
    if (bytes != stamped(100, 7)) return "an assignment that was dropped is committed";
    if (shelf.heal().healed_as != 3) return "it is not healed then";
  }
  return {};
}

namespace {

// What a crash left of healing: the version that was there, as damaged as it was, or the healed
// one. And it can be healed from there.
std::string wrong_after_crash(const Twice& twice, bool acknowledged, unsigned keep) {
  Shelf shelf = twice.open();
  if (shelf.version() != 3 && (acknowledged || shelf.version() != 2)) return "a version is lost";
  const bool corrupt = is_corrupt([&] {
    if (twice.shown(shelf) != twice.value) throw std::runtime_error("wrong bytes are read");
  });
  if (corrupt != (shelf.version() == 2)) return "what is damaged is told otherwise than it is";
  Bytes other(100);
  shelf.find("b")->read(other);
  if (other != stamped(100, 7)) return "another tensor is lost";
  if (keep == 1) {
    Bytes older(twice.value.size());
    const std::uint64_t before = shelf.version() - 1;
    const bool lost = is_corrupt([&] { shelf.at(before).find("a")->read(older); });
    if (lost != (before == 2)) return "an older version is damaged otherwise than it was";
  }
  if (corrupt && shelf.heal().healed_as != 3) return "what it could be healed from is lost";
  return shelf.verify().damage.empty() && twice.shown(shelf) == twice.value
             ? ""
             : "it is not healed in the end";
}

}  // namespace

// It dies at each of its steps, and then the power goes. With a slot to spare what was under way
// may be garbage; without, it goes where its source lies, which is written with what it has.
std::string crash_within_healing_costs_nothing() {
  Rng rng(7);
  for (const Placement placement : kPlacements) {
    for (const unsigned keep : {0U, 1U}) {
      const Twice before(placement, keep);
      {
        const Shelf shelf = before.open();
        rot(*before.disk, shelf, before.value, true);
      }
      bool died = true;
      for (unsigned dying = 0; died; ++dying) {
        Twice twice = before;
        twice.disk = std::make_shared<CachedDisk>(*before.disk);
        CachedDisk& disk = *twice.disk;
        {
          Shelf shelf = twice.open();
          disk.dies = [at = disk.events + dying](unsigned n) { return n >= at; };
          try {
            died = shelf.heal().healed_as != 3;
          } catch (const Error& error) {
            if (error.code() != Errc::io) throw;
          }
        }
        disk.dies = {};
        disk.fate_of_dirty = [&] {
          if (keep == 1 && rng.one_in(3)) return CachedDisk::Fate::garbage;
          return rng.one_in(2) ? CachedDisk::Fate::landed : CachedDisk::Fate::missing;
        };
        disk.lose_power();
        disk.fate_of_dirty = {};
        const std::string wrong = wrong_after_crash(twice, !died, keep);
        if (!wrong.empty()) return fmt::format("{}, after a death at step {}", wrong, dying);
      }
    }
  }
  return {};
}

}  // namespace tensorshelf::crash
