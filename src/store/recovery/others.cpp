// Others who go on with the same shelf: a rival of a writer, the writer beside a reader.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/io/root_scan.hpp"
#include "store/io/unreadable.hpp"
#include "store/recovery/recover.hpp"

namespace tensorshelf {

// The lock keeps others out, but not from another machine, or where the two share no inode and no
// sysfs. This look is for the common case of that, a rival who opens while we work: those who open
// in the same instant take the same number, and one who opens after the look is not seen.
//
// One page is enough. An opener writes the copy that holds the smaller number, which is not ours;
// where ours has rotted meanwhile it writes both before it is ready. So before a rival flips, that
// copy holds more than our number. A second rival writes over our copy and leaves the first one's
// number in the other: again more than ours. A copy that cannot be read or believed proves nothing.
void check_no_rival(Medium& medium, const Recovered& opened, const format::Seeds& seeds) {
  if (planted(Bug::incarnation_not_reread)) return;
  format::RawIncarnation record;
  try {
    medium.look(format::incarnation_at(opened.rival_copy), record.bytes);
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    return;
  }
  const auto found = format::read_incarnation(record, seeds, opened.rival_copy);
  if (!found || *found <= opened.incarnation) return;
  throw Error(Errc::busy,
              fmt::format("another process has opened the shelf for writing meanwhile: it has "
                          "incarnation {}, and ours is {}; nothing of ours was flipped since",
                          *found, opened.incarnation),
              "Let one process write at a time. Close this shelf, see to it that the other one is "
              "closed too, and open it again: it has what the other one persisted.");
}

namespace {

// The looks come after what was read.
void look_after_reading() {
#ifndef __SANITIZE_THREAD__  // which has no fences; nothing that it watches needs this one
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

// Whether the newest root that verifies has its floor beyond that. What any of the scans saw valid
// was flipped, also where the words never stood still. (An attempt in flight writes to slots below
// the floor of the newest durable root alone, and that root is there for all to see.)
bool floor_is_beyond(Medium& medium, const format::Seeds& seeds, unsigned slot_count,
                     std::uint64_t version) {
  RootScan scan = scan_homes(medium, 0, seeds, slot_count);
  bool moved = true;
  for (int looks = 0; looks <= kMostLooks && moved; ++looks) {
    const auto candidates = scan.candidates();
    if (!candidates.empty() && candidates.front().floor > version) return true;
    moved = scan_again(medium, seeds, scan);
  }
  return false;
}

}  // namespace

bool is_overtaken(Medium& medium, const Recovered& opened, const format::Seeds& seeds,
                  std::uint64_t version) {
  look_after_reading();
  return floor_is_beyond(medium, seeds, opened.slot_count, version);
}

bool is_overtaken_in_doubt(Medium& medium, const Recovered& opened) {
  look_after_reading();
  return version_words(medium, opened.slot_count) != opened.homes.words;
}

}  // namespace tensorshelf
