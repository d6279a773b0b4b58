// What recovery writes: damaged copies, the incarnation, and over what a valid root names nothing
// but what is already there (I6). For what can be read may lie in a cache that the power takes, so
// what recovery accepts it makes durable itself (I12):
//
//   words        stored again, of both copies of the root, at every open; and those over an attempt
//                at the next version that was found unflipped: others may be read there later,
//                where a flush failed, and its slots are written over by then
//   incarnation  the newer copy stored over itself before the older one is written, and a barrier;
//                spared where the last opener committed, for then it is durable
//   superblock   stored over itself while the shelf is at version 0
//   mark         stored over itself where there ever was a prepared attempt (mark.hpp)
//   wiped home   wiped again: a repair may have ended at its last flush
//   spare home   which no retained version has: whole in both copies, or else wiped, for what shows
//                that no version was lost there must not hang on one page. An attempt that is left
//                there is wiped too, unless it is prepared: another read may show another
//   all else     nothing: it was behind a barrier before any word named it (I1). A copy that an
//                interrupted recovery repaired may be lost again, but not its twin; it is found bad
//                again then
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "store/io/head.hpp"
#include "store/io/purpose.hpp"
#include "store/io/root_scan.hpp"
#include "store/media_set/further_media.hpp"
#include "store/recovery/load_root.hpp"

namespace tensorshelf {

// What a root was found to stand on.
struct Standing {
  const ShelfHead& head;
  const RootScan& scan;
  const std::vector<std::shared_ptr<Version>>& versions;  // that are retained, the newest last
  const std::vector<PageRepair>& repairs;     // pages of those, and of the prepared attempt
  const std::vector<std::uint64_t>& dropped;  // versions that were retained, and cannot be loaded
  bool degraded = false;                      // a newer version is given up
  bool prepared = false;                      // the attempt that the mark means stays as it is

  const format::Root& root() const { return versions.back()->root; }
  std::uint64_t newest() const { return versions.back()->number(); }
  // Behind the versions that the homes wait for.
  std::uint64_t end() const { return newest() + scan.slot_count; }
  bool is_retained_in_home_of(std::uint64_t version) const {
    return version >= scan.slot_count && version - scan.slot_count >= versions.front()->number();
  }
};

struct Ready {
  std::uint64_t incarnation = 0;
  unsigned rival_copy = 0;  // of the incarnation: the one that the next opener writes
  std::uint64_t repaired_copies = 0;
  bool homes_changed = false;  // other words lie there now
  format::PreparedMark mark = {};
  Unread unread;  // copies of the incarnation
};

// What keeps a shelf from being written to, but for a repair that was asked for: Errc::corrupt
// where both copies are damaged of the incarnation, of the mark, or of the root of what that says
// is prepared. For before anything is written: a mirror may have what is damaged, and is filled
// next.
void check_ready(Medium& medium, const format::Seeds& seeds, const Standing& standing,
                 Purpose purpose);

// Makes durable what one copy of a home tells alone, before anything else is written. It may be
// whole in a cache alone (I12): recovery wrote it, from a mirror, and the flush failed, or it died.
// So this is done where `mirror` shows the newest root, too. Another mirror lacks what the roots
// name, and nothing is written to it.
void settle_lone(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                 const format::Root& newest, const MirrorOfFirst& mirror);

// Makes what was chosen durable with every second copy good again, and takes the next incarnation
// number, durably. Nothing is written where there is none to take. What the homes may hold of
// versions that were not accepted is wiped, so that damage which heals itself later brings nothing
// back (I11). For repair, which was asked for, an incarnation is found also where both copies of it
// are lost.
Ready make_ready(Medium& medium, const format::Seeds& seeds, const Standing& standing,
                 Purpose purpose);

}  // namespace tensorshelf
