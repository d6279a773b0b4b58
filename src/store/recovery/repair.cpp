#include "store/recovery/repair.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/io/incarnation.hpp"

namespace tensorshelf {

using format::kCopies;
using format::Root;

namespace {

void write_superblock(Medium& medium, const ShelfHead& head, unsigned copy) {
  write_page(medium, format::superblock_at(copy), format::encode_superblock(head.superblock, copy));
}

// The newest of the words that can be read may lie in a cache alone, and its flush have failed: it
// is stored anew (I12). Those before it were durable before it was flipped. Of a root that the
// mirror alone has the other copy is written, on both, and never the one that was read there (I6):
// that is mended by the next opening.
std::uint64_t repair_root(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                          const Root& root, bool newest) {
  const unsigned home = format::home_of(root);
  std::uint64_t repaired = 0;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto& there = scan.roots[home][copy];
    const bool mirrored = scan.mirrored[home][copy];
    if (mirrored && !planted(Bug::mirrored_copy_written)) continue;
    if (there && !mirrored && there->word == root.word && !planted(Bug::recovery_rewrites_root)) {
      if (newest && !planted(Bug::words_not_restored)) {
        medium.store_word(format::root_at(home, copy), root.word);
      }
      continue;
    }
    Root replica = root;
    format::seal_root(replica, seeds, copy);
    write_page(medium, format::root_at(home, copy), format::as_page(replica));
    ++repaired;
  }
  return repaired;
}

// The copy of a prepared attempt's root that is damaged.
std::uint64_t repair_prepared(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                              const Root& root) {
  const unsigned home = format::home_of(root);
  std::uint64_t repaired = 0;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (scan.mark_means(home, copy) || planted(Bug::described_not_repaired)) continue;
    Root replica = root;
    format::seal_root(replica, seeds, copy);
    replica.word =
        scan.words[home][format::other_copy(copy)];  // where it is whole, under the old word
    write_page(medium, format::root_at(home, copy), format::as_page(replica));
    ++repaired;
  }
  return repaired;
}

// The mirror alone may show that no version was lost in a home that waits for one, and is not
// offered any more. Then the other copy comes to show it, on both. Returns how many did.
std::uint64_t wipe_other_copies(Medium& medium, const Standing& standing) {
  const RootScan& scan = standing.scan;
  std::uint64_t wiped = 0;
  for (std::uint64_t version = standing.newest() + 1; version < standing.end(); ++version) {
    const unsigned home = format::home_of(version, scan.slot_count);
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const bool settled = !scan.mirrored[home][copy] || standing.is_retained_in_home_of(version);
      if (settled || planted(Bug::mirrored_home_unsettled)) continue;
      write_page(medium, format::root_at(home, format::other_copy(copy)),
                 wiped_home(version, scan.slot_count));
      ++wiped;
    }
  }
  return wiped;
}

// Mends copies of what the retained versions stand on, and of their roots; returns how many.
std::uint64_t repair_copies(Medium& medium, const format::Seeds& seeds, const Standing& standing) {
  for (unsigned copy : standing.head.bad_copies) write_superblock(medium, standing.head, copy);
  std::uint64_t repaired = standing.head.bad_copies.size();
  for (const PageRepair& page : standing.repairs) {
    if (!planted(Bug::page_not_repaired)) write_page(medium, page.at, page.page->image);
  }
  repaired += standing.repairs.size();
  for (const auto& version : standing.versions) {
    const bool newest = version == standing.versions.back();
    if (newest || !planted(Bug::older_root_not_repaired)) {
      repaired += repair_root(medium, seeds, standing.scan, version->root, newest);
    }
  }
  repaired += wipe_other_copies(medium, standing);
  if (standing.prepared) {
    repaired +=
        repair_prepared(medium, seeds, standing.scan, *standing.scan.prepared(standing.newest()));
  }
  return repaired;
}

// Whether a copy of the home that waits for `version` is to be wiped. Each copy has to show that no
// version was lost there, for the last one that does could be lost, too.
bool to_be_wiped(const Standing& standing, std::uint64_t version, unsigned copy) {
  const RootScan& scan = standing.scan;
  const bool used = version >= scan.slot_count;
  // A retained version lies there, or one that is prepared.
  if (standing.is_retained_in_home_of(version)) return false;
  if (standing.prepared && version == standing.newest() + 1) return false;
  const unsigned home = format::home_of(version, scan.slot_count);
  if (scan.mirrored[home][copy]) return !planted(Bug::mirrored_home_kept);
  if (scan.mirrored[home][format::other_copy(copy)]) return false;  // it was wiped before
  // An older root shows it now, and not once the next one is described under its word.
  const auto& root = scan.roots[home][copy];
  const bool too_old = root && format::word_version(root->word) + scan.slot_count < version;
  if (too_old) return !planted(Bug::older_root_left);
  // What was wiped may be so in a cache alone (I12): also where no version was there yet.
  if (scan.wiped(version, copy)) {
    return !planted(Bug::wipe_unrestored) && (used || !planted(Bug::young_wipe_unrestored));
  }
  // An attempt shows it, and where a flush failed behind it another read of its body may not; nor
  // may a mark count for it that was not read (I14).
  if (scan.leaves_unflipped(version, copy)) return !planted(Bug::waiting_attempt_kept);
  return !scan.clears(version, copy) && !planted(Bug::waiting_home_not_mended);
}

// A word that was flipped, and whose flush failed, need not have been read, and may be yet
// (medium.hpp). So over an attempt that was found unflipped the words that say so are stored over
// themselves: none must come once its slots are written over (I11).
void restore_waiting_words(Medium& medium, const Standing& standing) {
  const RootScan& scan = standing.scan;
  const unsigned home = format::home_of(standing.newest() + 1, scan.slot_count);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const bool unflipped = standing.prepared ? scan.mark_means(home, copy)
                                             : scan.leaves_unflipped(standing.newest() + 1, copy);
    if (!unflipped || planted(Bug::waiting_word_unrestored)) continue;
    medium.store_word(format::root_at(home, copy), scan.words[home][copy]);
  }
}

// What may be left of a version that was not accepted must not come back: not the root, whose
// manifest may heal while its slots are written over, and not the doubt, which would have every
// chunk verified at each open. The last to be written, for it says that all is repaired: what is
// accepted is durable (I12), and no number of a root that goes here is needed any more. A crash
// within leaves the doubt, or clears the home.
//
// Where a newer version is given up, attempts over it may have written to the slots of all before
// the one at hand. The doubt, which keeps those from being offered, goes after the root of the next
// of them is surely gone: there is no version before a gap (I11).
bool wipe_homes(Medium& medium, const Standing& standing, Purpose purpose) {
  const RootScan& scan = standing.scan;
  const std::uint64_t newest = standing.newest();
  const auto wipe = [&](std::uint64_t version, unsigned copy) {  // where it would be
    write_page(medium, format::root_at(format::home_of(version, scan.slot_count), copy),
               wiped_home(version, scan.slot_count));
  };
  const auto wipe_both = [&](std::uint64_t version) {
    for (unsigned copy = 0; copy < kCopies; ++copy) wipe(version, copy);
  };
  if (standing.degraded && newest > standing.root().floor && !planted(Bug::older_than_lost_kept)) {
    wipe_both(newest - 1 + scan.slot_count);
    medium.barrier();  // I11: what is older is given up before the doubt is wiped
  }
  if (planted(purpose == Purpose::repair ? Bug::repair_keeps_home : Bug::home_not_wiped))
    return standing.degraded;
  std::vector<std::uint64_t> lost = scan.lost_beyond(newest);
  // The home of a version that was retained is that of one to come.
  for (const std::uint64_t dropped : standing.dropped) lost.push_back(dropped + scan.slot_count);
  bool wiped = !lost.empty();
  for (const std::uint64_t version : lost) wipe_both(version);
  for (std::uint64_t version = newest + 1; version < standing.end(); ++version) {
    if (std::find(lost.begin(), lost.end(), version) != lost.end()) continue;
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      if (!to_be_wiped(standing, version, copy)) continue;
      wipe(version, copy);
      wiped = true;
    }
  }
  // I11: what was not accepted cannot come back once somebody assigns.
  if (wiped) medium.barrier();
  return wiped || standing.degraded;
}

// What that copy of the home of `version` tells, where the other tells nothing: a root, or that the
// home was wiped for it.
std::optional<format::Page> lone_page(const RootScan& scan, const format::Seeds& seeds,
                                      std::uint64_t version, unsigned copy) {
  const unsigned home = format::home_of(version, scan.slot_count);
  const unsigned other = format::other_copy(copy);
  if (scan.described[home][other]) return {};  // its word alone is missing
  const auto own = [&](unsigned which) {
    return scan.mirrored[home][which] ? std::nullopt : scan.roots[home][which];
  };
  const auto root = own(copy);
  const auto twin = own(other);
  if (root && (!twin || format::word_version(twin->word) < format::word_version(root->word))) {
    Root replica = *root;
    format::seal_root(replica, seeds, copy);
    return format::as_page(replica);
  }
  if (!scan.wiped(version, copy) || scan.wiped(version, other) || twin) return {};
  return wiped_home(version, scan.slot_count);
}

struct Placed {
  std::uint64_t at;
  format::Page page;
};

// The lone pages of all homes: where a version waits for one, or is there.
std::vector<Placed> lone_pages(const RootScan& scan, const format::Seeds& seeds,
                               std::uint64_t newest) {
  std::vector<Placed> found;
  for (std::uint64_t version = newest + 1; version <= newest + scan.slot_count; ++version) {
    const bool of_newest = version == newest + scan.slot_count;
    if (planted(Bug::lone_root_unsettled) || (planted(Bug::older_lone_left) && !of_newest))
      continue;
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const unsigned home = format::home_of(version, scan.slot_count);
      if (const auto page = lone_page(scan, seeds, version, copy)) {
        found.push_back({format::root_at(home, copy), *page});
      }
    }
  }
  return found;
}

}  // namespace

void settle_lone(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                 const Root& newest, const MirrorOfFirst& mirror) {
  const auto alone = lone_pages(scan, seeds, format::word_version(newest.word));
  if (alone.empty()) return;
  const auto there = scan_homes(mirror.medium, mirror.from, seeds, scan.slot_count).candidates();
  const bool alike = mirror.filled() && !there.empty() && format::is_same_root(there[0], newest);
  if (!alike && !planted(Bug::lone_root_settled_anywhere)) return;
  for (const Placed& each : alone) store_over_itself(medium, each.at, each.page, sizeof(Root));
  medium.barrier();  // I6: the mirror may have the only durable one, and is written next
}

void check_ready(Medium& medium, const format::Seeds& seeds, const Standing& standing,
                 Purpose purpose) {
  if (purpose == Purpose::repair) return;
  read_incarnations(medium, seeds, standing.scan, purpose);
  check_marks(standing.scan.marks);
  const bool lost = !standing.degraded && standing.scan.prepared_is_lost(standing.newest());
  if (!lost || planted(Bug::lost_attempt_forgotten)) return;
  throw Error(Errc::corrupt,
              fmt::format("version {} is prepared, and both copies of its root are damaged",
                          standing.newest() + 1),
              "Open with mode=\"r\", which shows the version before it; repair() gives it up.");
}

Ready make_ready(Medium& medium, const format::Seeds& seeds, const Standing& standing,
                 Purpose purpose) {
  const Incarnations there = read_incarnations(medium, seeds, standing.scan, purpose);
  // Nobody committed yet: formatting may have failed at its last flush, and the superblocks lie in
  // a cache.
  const bool unused = standing.newest() == 0 && !planted(Bug::superblock_unrestored);
  for (unsigned copy = 0; unused && copy < kCopies; ++copy) {
    const auto& damaged = standing.head.bad_copies;
    if (std::find(damaged.begin(), damaged.end(), copy) != damaged.end()) continue;
    store_over_itself(medium, format::superblock_at(copy),
                      format::encode_superblock(standing.head.superblock, copy),
                      sizeof(format::Superblock));
  }
  // The good copy is surely there before the damaged one is under way.
  if (restore_incarnation(medium, seeds, standing.scan, there) || unused) medium.barrier();  // I12
  Ready ready;
  ready.unread = there.unread;
  ready.repaired_copies = repair_copies(medium, seeds, standing) + !there.found[there.older] +
                          !there.found[there.newer()] + standing.scan.marks.missing();
  // A mirror whose root is read is one whose incarnation is that of the first.
  if (standing.scan.has_mirrored() && !planted(Bug::mirrored_root_unsettled)) {
    medium.barrier();  // I6: so what was read there is durable before that moves
  }
  restore_waiting_words(medium, standing);
  ready.rival_copy = there.found[there.older] ? there.newer() : 0;  // of two that agree, the first
  ready.incarnation = bump_incarnation(medium, seeds, there);
  ready.mark = settle_marks(medium, seeds, standing.scan.marks, standing.prepared);
  ready.homes_changed = wipe_homes(medium, standing, purpose) || standing.prepared;
  return ready;
}

}  // namespace tensorshelf
