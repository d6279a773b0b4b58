#include "store/repair.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <optional>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"

namespace tensorshelf {

using format::kCopies;
using format::Page;
using format::Root;

namespace {

// Where both copies are lost, the number is found above those of the roots. How often the shelf was
// opened since then, without a commit, nobody knows; no one does it so often.
constexpr std::uint64_t kUnknownOpens = 1 << 20;

// The two copies of the incarnation are written in turn, one at each open, so that they differ by
// one at most and the larger is the last number given out.
struct Incarnations {
  std::array<std::optional<std::uint64_t>, kCopies> found;
  std::uint64_t last = 0;  // that is known to have been given out
  unsigned older = 0;      // the copy that is to be written next
  Unread unread;

  unsigned newer() const { return 1 - older; }
  bool lost() const { return !found[0] && !found[1]; }
};

Incarnations read_incarnations(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                               bool give_up) {
  Incarnations there;
  const auto note = [&](const auto& found) {
    there.last = std::max(there.last, found ? found->incarnation : 0);
  };
  for (const auto* homes : {&scan.roots, &scan.described}) {
    for (const auto& home : *homes) std::for_each(home.begin(), home.end(), note);
  }
  std::for_each(scan.marks.found.begin(), scan.marks.found.end(), note);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto page = read_page(medium, format::incarnation_at(copy), there.unread);
    if (page) there.found[copy] = format::read_incarnation(*page, seeds, copy);
    there.last = std::max(there.last, there.found[copy].value_or(0));
  }
  if (there.lost() && !give_up) {
    throw Error(
        Errc::corrupt, "both copies of the incarnation record are damaged" + there.unread.reason(),
        "Open with mode=\"r\", which needs none; repair() finds a new one.", there.unread.os_error);
  }
  if (there.lost() && !planted(Bug::repair_reuses_incarnation)) there.last += kUnknownOpens;
  if (there.last >= format::kMaxCounter - 1) {
    throw Error(
        Errc::corrupt,
        fmt::format("the incarnation record says {}, and the format counts no further", there.last),
        "Open with mode \"r\" and export: no shelf comes so far by being opened.");
  }
  there.older = there.found[0].value_or(0) <= there.found[1].value_or(0) ? 0 : 1;
  return there;
}

void write_superblock(Medium& medium, const ShelfHead& head, unsigned copy) {
  write_page(medium, format::superblock_at(copy), format::encode_superblock(head.superblock, copy));
}

// Of the words that can be read the newest may lie in a cache alone, and its flush have failed: it
// is stored anew (I12). Those before it were durable before it was flipped.
std::uint64_t repair_root(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                          const Root& root, bool newest) {
  const unsigned home = format::home_of(root);
  std::uint64_t repaired = 0;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto& there = scan.roots[home][copy];
    if (there && there->word == root.word && !planted(Bug::recovery_rewrites_root)) {
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
    replica.word = scan.words[home][1 - copy];  // where it is whole, under the old word
    write_page(medium, format::root_at(home, copy), format::as_page(replica));
    ++repaired;
  }
  return repaired;
}

// Of what the retained versions stand on, and of their roots; how many there were.
std::uint64_t repair_copies(Medium& medium, const format::Seeds& seeds, const Standing& standing) {
  for (unsigned copy : standing.head.bad_copies) write_superblock(medium, standing.head, copy);
  std::uint64_t repaired = standing.head.bad_copies.size();
  for (const auto* repairs : {&standing.loaded.repairs, &standing.older_repairs}) {
    for (const PageRepair& page : *repairs) {
      if (!planted(Bug::page_not_repaired)) write_page(medium, page.at, page.page->image);
    }
    repaired += repairs->size();
  }
  for (const auto& version : standing.versions) {
    const bool newest = version == standing.versions.back();
    if (newest || !planted(Bug::older_root_not_repaired)) {
      repaired += repair_root(medium, seeds, standing.scan, version->root, newest);
    }
  }
  if (standing.prepared) {
    const std::uint64_t newest = format::word_version(standing.root.word);
    repaired += repair_prepared(medium, seeds, standing.scan, *standing.scan.prepared(newest));
  }
  return repaired;
}

// I12, for the newer copy of the incarnation, before the older one is written: else both might be
// lost together. Whose root is there had made it durable; then nothing is done, and false returned.
bool restore_incarnation(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                         const Incarnations& there) {
  if (there.lost()) return false;
  const unsigned copy = there.newer();
  const std::uint64_t value = there.found[copy].value();
  const auto roots = scan.candidates();
  const bool durable = std::any_of(roots.begin(), roots.end(),
                                   [value](const Root& root) { return root.incarnation == value; });
  if (durable || planted(Bug::incarnation_unrestored)) return false;
  store_over_itself(medium, format::incarnation_at(copy),
                    format::encode_incarnation(value, seeds, copy),
                    sizeof(format::IncarnationRecord));
  return true;
}

void write_incarnation(Medium& medium, const format::Seeds& seeds, unsigned copy,
                       std::uint64_t incarnation) {
  write_page(medium, format::incarnation_at(copy),
             format::encode_incarnation(incarnation, seeds, copy));
  // I10: no one can take our number for theirs. Also: the repairs are durable, and never are both
  // copies under way together.
  if (!planted(Bug::incarnation_not_durable)) medium.barrier();
}

// A damaged copy may have held one more than the other does: that number is skipped, and both are
// written (I5).
std::uint64_t bump_incarnation(Medium& medium, const format::Seeds& seeds,
                               const Incarnations& there) {
  if (there.found[there.older]) {
    const std::uint64_t mine = planted(Bug::incarnation_not_bumped) ? there.last : there.last + 1;
    write_incarnation(medium, seeds, there.older, mine);
    return mine;
  }
  const std::uint64_t mine = there.last + 2;
  write_incarnation(medium, seeds, there.older, mine);
  write_incarnation(medium, seeds, there.newer(), mine);
  return mine;
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
bool wipe_homes(Medium& medium, const Standing& standing, bool give_up) {
  const RootScan& scan = standing.scan;
  const std::uint64_t newest = format::word_version(standing.root.word);
  const auto wipe = [&](std::uint64_t version) {  // where it would be
    const unsigned home = format::home_of(version, scan.slot_count);
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      write_page(medium, format::root_at(home, copy), wiped_home(version, scan.slot_count));
    }
  };
  if (standing.degraded && newest > standing.root.floor && !planted(Bug::older_than_lost_kept)) {
    wipe(newest - 1 + scan.slot_count);
    medium.barrier();
  }
  std::vector<std::uint64_t> versions;
  if (!planted(give_up ? Bug::repair_keeps_home : Bug::home_not_wiped)) {
    versions = scan.lost_beyond(newest);
    // The home of a version that was retained is that of one to come.
    for (const std::uint64_t dropped : standing.dropped) {
      versions.push_back(dropped + scan.slot_count);
    }
  }
  for (std::uint64_t version = newest + 1; version < newest + scan.slot_count; ++version) {
    if (scan.wiped(version) && !planted(Bug::wipe_unrestored)) versions.push_back(version);
  }
  for (const std::uint64_t version : versions) wipe(version);
  if (!versions.empty()) medium.barrier();  // I2, for the repair: what was reported stays so
  return !versions.empty() || standing.degraded;
}

}  // namespace

void check_incarnations(Medium& medium, const format::Seeds& seeds, const RootScan& scan) {
  read_incarnations(medium, seeds, scan, false);
}

Ready make_ready(Medium& medium, const format::Seeds& seeds, const Standing& standing,
                 bool give_up) {
  const Incarnations there = read_incarnations(medium, seeds, standing.scan, give_up);
  if (!give_up) check_marks(standing.scan.marks);
  // Nobody committed yet: formatting may have failed at its last flush, and the superblocks lie in
  // a cache.
  const bool unused =
      format::word_version(standing.root.word) == 0 && !planted(Bug::superblock_unrestored);
  for (unsigned copy = 0; unused && copy < kCopies; ++copy) {
    const auto& damaged = standing.head.bad_copies;
    if (std::find(damaged.begin(), damaged.end(), copy) != damaged.end()) continue;
    store_over_itself(medium, format::superblock_at(copy),
                      format::encode_superblock(standing.head.superblock, copy),
                      sizeof(format::Superblock));
  }
  // A damaged copy is not under way before the good one is surely there.
  if (restore_incarnation(medium, seeds, standing.scan, there) || unused) medium.barrier();  // I12
  Ready ready;
  ready.unread = there.unread;
  ready.repaired_copies = repair_copies(medium, seeds, standing) + !there.found[there.older] +
                          !there.found[there.newer()] + standing.scan.marks.missing();
  ready.rival_copy = there.found[there.older] ? there.newer() : 0;  // of two that agree, the first
  ready.incarnation = bump_incarnation(medium, seeds, there);
  ready.mark = settle_marks(medium, seeds, standing.scan.marks, standing.prepared);
  ready.homes_changed = wipe_homes(medium, standing, give_up) || standing.prepared;
  return ready;
}

void format_shelf(Medium& medium, unsigned keep, unsigned in_flight) {
  const std::uint64_t capacity = medium.reserve(format::kHeapAt) / kPageBytes * kPageBytes;
  const Page blank{};
  for (unsigned copy = 0; copy < kCopies && !planted(Bug::format_over_superblock); ++copy) {
    write_page(medium, format::superblock_at(copy), blank);
  }
  medium.barrier();  // I1: what is no shelf any more is durable before its roots go
  TENSORSHELF_ASSERT(in_flight >= 1 && 1 + keep + in_flight <= format::kMaxSlots);
  format::ShelfId id;
  const auto got = ::getrandom(id.data(), id.size(), 0);
  TENSORSHELF_ASSERT(got == static_cast<ssize_t>(id.size()));
  const format::Seeds seeds(id);
  constexpr std::uint64_t kFirstIncarnation = 1;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::incarnation_at(copy),
               format::encode_incarnation(kFirstIncarnation, seeds, copy));
    write_page(medium, format::mark_at(copy),
               format::encode_mark(format::empty_mark(1), seeds, copy));
    for (unsigned home = 1; home < 1 + keep + in_flight; ++home) {
      Root unused{};
      unused.word = format::kUnusedHomeWord;
      write_page(medium, format::root_at(home, copy), format::as_page(unused));
    }
    Root root{};
    root.word = format::attempt_word(0, kFirstIncarnation, 0);
    root.incarnation = kFirstIncarnation;
    root.keep = static_cast<std::uint16_t>(keep);
    root.in_flight = static_cast<std::uint16_t>(in_flight);
    root.step = format::kNoStep;
    root.capacity_bytes = capacity;
    root.next_tensor_id = 1;
    format::seal_root(root, seeds, copy);
    write_page(medium, format::root_at(0, copy), format::as_page(root));
  }
  // I1, for version 0: the superblocks are what makes it true.
  if (!planted(Bug::format_without_barrier)) medium.barrier();
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::superblock_at(copy),
               format::encode_superblock(format::new_superblock(id, 1 + keep + in_flight), copy));
  }
  medium.barrier();  // I2
}

}  // namespace tensorshelf
