// Mirrors of which something cannot be read.
#include <algorithm>
#include <cerrno>

#include "mirror_plays.hpp"
#include "mirrored_play.hpp"

namespace tensorshelf::crash {
namespace {

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
