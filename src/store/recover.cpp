#include "store/recover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/load_root.hpp"
#include "store/repair.hpp"
#include "store/root_scan.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {
namespace {

using format::kSlots;
using format::Root;

struct Choice {
  Root root;
  LoadedRoot loaded;
  bool degraded = false;
  std::string lost;  // why newer versions could not be opened
  int unread = 0;    // an errno: one of them could not be read, which may pass

  void lose(std::uint64_t version, const std::string& why) {
    lost += fmt::format("{}version {}: {}", lost.empty() ? "" : "; ", version, why);
  }
};

// Only where one of them leads somewhere.
constexpr const char* kSalvageRemedy =
    "Restore the file from a copy, or take what is whole: mode=\"r\", salvage=True shows it, and "
    "repair() makes it the newest version, to go on from.";

[[noreturn]] void throw_damaged(Medium& medium, const format::Seeds& seeds,
                                const std::vector<Root>& older, const std::string& damage) {
  std::string rest = "nothing older is whole";
  for (const Root& root : older) {
    try {
      if (!find_damage(medium, seeds, load_root(medium, seeds, root), {})) {
        rest = fmt::format("version {} is intact", format::word_version(root.word));
        break;
      }
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
    }
  }
  throw Error(
      Errc::corrupt, fmt::format("{}; {}", damage, rest),
      "Open with verify \"load\": every other tensor can be read, and assigning the damaged "
      "one heals it.");
}

struct Opening {
  Medium& medium;
  const format::Seeds& seeds;
  const RecoverWay& way;
  const Progress& progress;
  KnownPages* known = nullptr;  // of a reader, whose writer may go on meanwhile
};

bool words_moved(const Opening& opening, const RootScan& scan) {
  return scan_roots(opening.medium, opening.seeds).words != scan.words;
}

// The newest root whose manifest is whole; where there are signs of a newer one that was damaged,
// also every chunk that it names, unless whatever is whole is wanted.
// What cannot be read now may be read later, and its slots must not have been written by then: to
// go on from an older version is for repair() to do, and not by the way.
void refuse_unread(const Opening& opening, const RootScan& scan, const Choice& choice) {
  const int cause = choice.unread != 0 ? choice.unread : scan.unread.os_error;
  const bool reads = opening.known != nullptr || opening.way.salvage;
  if (reads || !choice.degraded || cause == 0 || planted(Bug::unread_given_up)) return;
  throw Error(
      Errc::corrupt,
      fmt::format("a version newer than {} may be there and cannot be read; {}{}",
                  format::word_version(choice.root.word), choice.lost, scan.unread.reason()),
      "Check the device (dmesg), and open it again: the error may pass. mode=\"r\" shows "
      "the older version, and repair() makes it the newest one.",
      cause);
}

Choice choose_root(const Opening& opening, const RootScan& scan) {
  const auto& [medium, seeds, way, progress, known] = opening;
  const auto candidates = scan.candidates();
  Choice choice;
  bool salvageable = false;
  for (auto candidate = candidates.begin(); candidate != candidates.end(); ++candidate) {
    choice.root = *candidate;
    const std::uint64_t version = format::word_version(choice.root.word);
    if (choice.root.capacity_bytes > medium.reserve(0)) {
      throw Error(Errc::truncated,
                  fmt::format("version {} of the shelf spans {}, and only {} are there", version,
                              size_text(choice.root.capacity_bytes), size_text(medium.reserve(0))),
                  "The file was cut short: restore it from a copy.");
    }
    choice.degraded = !choice.lost.empty() || !scan.lost_beyond(version).empty();
    try {
      choice.loaded = load_root(medium, seeds, choice.root, known);
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
      if (known != nullptr && words_moved(opening, scan)) throw;  // no use in an older one
      choice.lose(version, error.what());
      if (error.os_error() != 0) choice.unread = error.os_error();
      continue;
    }
    if (way.salvage || (!choice.degraded && way.verify != Verify::on_open)) return choice;
    if (planted(Bug::fallback_without_verify)) return choice;
    const auto damage = find_damage(medium, seeds, choice.loaded, progress);
    if (!damage) {
      refuse_unread(opening, scan, choice);
      return choice;
    }
    if (!choice.degraded) throw_damaged(medium, seeds, {candidate + 1, candidates.end()}, *damage);
    choice.lose(version, *damage);
    salvageable = true;
  }
  throw Error(
      Errc::corrupt,
      fmt::format("no version is whole; {}{}",
                  choice.lost.empty() ? "no root verifies" : choice.lost, scan.unread.reason()),
      salvageable ? kSalvageRemedy : "Restore the file from a copy.", scan.unread.os_error);
}

// What cannot be believed, and why.
void note_salvage(Recovery& report, const Choice& choice) {
  for (const std::uint64_t version : report.lost) {
    report.notes.push_back(fmt::format("version {} may have been acknowledged, and is lost{}{}",
                                       version, choice.lost.empty() ? "" : "; ", choice.lost));
  }
  report.notes.push_back(fmt::format(
      "version {} is shown as far as it is whole: a tensor that is damaged, or over which a newer "
      "version was written, fails its checksum when it is read, and verify() lists it.",
      report.version));
}

Recovery describe(const Choice& choice, const RootScan& scan, const ShelfHead& head,
                  const RecoverWay& way) {
  Recovery report;
  const bool writable = way.writable && head.writes_allowed;
  report.version = format::word_version(choice.root.word);
  if (choice.root.step != format::kNoStep) report.step = choice.root.step;
  report.interrupted = writable && scan.attempt_left(report.version);
  report.degraded = choice.degraded;
  report.salvaged = choice.degraded && way.salvage;
  report.lost = scan.lost_beyond(report.version);
  if (report.salvaged) {
    note_salvage(report, choice);
  } else if (report.degraded) {
    report.notes.push_back(
        fmt::format("version {} was opened in place of a newer, damaged one; every chunk of it was "
                    "verified. {}",
                    report.version, choice.lost));
  }
  const auto bad = head.bad_copies.size() + choice.loaded.repairs.size();
  if (!writable && bad > 0) {
    report.notes.push_back(fmt::format(
        "{} copies of metadata are damaged; the next open for writing writes them anew.", bad));
  }
  return report;
}

// What could not be read is of interest beyond the shelf: the drive may be failing.
void note_unread(Recovery& report, const Unread& unread) {
  if (unread.pages == 0) return;
  report.notes.push_back(
      fmt::format("{} pages of metadata could not be read, and their other copies served; the "
                  "first: {}",
                  unread.pages, unread.first));
}

constexpr int kMostLooks = 100;

// A writer that is faster than one look often pauses: between looks ever longer, up to a limit.
void back_off(int looks) {
  if (looks < 2) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(1 << std::min(looks - 2, 5)));
}

[[noreturn]] void throw_always_overtaken(const RootScan& scan) {
  const auto candidates = scan.candidates();
  throw Error(
      Errc::stale,
      fmt::format("its writer flipped a version during each of {} looks{}", kMostLooks,
                  candidates.empty() ? std::string()
                                     : fmt::format(", the last one version {}",
                                                   format::word_version(candidates.front().word))),
      "Open it again, or let the writer pause between two calls of persist() meanwhile.");
}

// Whether a root was flipped since the scan, which is then made anew. Two scans with the same words
// show that nothing was flipped from the end of the first to the start of the second, so the first
// saw one moment, and stays. The second may not have: it is thrown away.
bool scan_again(Medium& medium, const format::Seeds& seeds, RootScan& scan) {
  RootScan now = scan_roots(medium, seeds);
  const bool moved = now.words != scan.words;
  if (moved || planted(Bug::later_scan_kept)) scan = std::move(now);
  return moved;
}

// A reader takes no lock: roots and pages change under it when a writer commits. What looks like
// damage is believed only where no root changed meanwhile; a writer that is always faster makes the
// reader stale, never the shelf corrupt.
Choice look(const Opening& opening, RootScan& scan) {
  if (opening.known == nullptr) return choose_root(opening, scan);
  for (int looks = 0; looks < kMostLooks; ++looks) {
    opening.known->begin_look();
    try {
      Choice choice = choose_root(opening, scan);
      if (!choice.degraded || !scan_again(opening.medium, opening.seeds, scan)) return choice;
    } catch (const Error& error) {
      const bool passing = error.code() == Errc::corrupt || error.code() == Errc::truncated;
      if (!passing || !scan_again(opening.medium, opening.seeds, scan)) throw;
    }
    back_off(looks);
    if (looks >= 2) scan = scan_roots(opening.medium, opening.seeds);
  }
  throw_always_overtaken(scan);
}

}  // namespace

Recovered recover(Medium& medium, const RecoverWay& way, const Progress& progress) {
  Recovered recovered;
  const ShelfHead head = read_head(medium);
  const format::Seeds seeds(head.superblock.shelf_id);
  RootScan scan = scan_roots(medium, seeds);
  const bool reader = !way.writable && !way.strict && !planted(Bug::reader_looks_once);
  KnownPages known;
  Choice choice = look({medium, seeds, way, progress, reader ? &known : nullptr}, scan);
  recovered.shelf_id = head.superblock.shelf_id;
  recovered.writes_allowed = head.writes_allowed;
  recovered.root = choice.root;
  recovered.version = format::word_version(choice.root.word);
  recovered.words = scan.words;
  recovered.report = describe(choice, scan, head, way);
  Unread unread = head.unread;
  unread.note(scan.unread);
  unread.note(choice.loaded.unread);
  if (way.writable && head.writes_allowed) {
    const Ready ready =
        make_ready(medium, seeds, {head, scan, choice.root, choice.loaded}, way.salvage);
    recovered.incarnation = ready.incarnation;
    recovered.rival_copy = ready.rival_copy;
    recovered.report.repaired_copies = ready.repaired_copies;
    unread.note(ready.unread);
    recovered.words[recovered.version % kSlots].fill(recovered.root.word);
    if (way.salvage) recovered.words = scan_roots(medium, seeds).words;  // a home may be wiped
  }
  note_unread(recovered.report, unread);
  recovered.manifest = std::move(choice.loaded.manifest);
  recovered.tensors = std::move(choice.loaded.tensors);
  recovered.used = std::move(choice.loaded.used);
  return recovered;
}

void check_opens(Medium& medium) {
  const Recovered found = recover(medium, {.strict = true}, {});
  const format::Seeds seeds(found.shelf_id);
  check_incarnations(medium, seeds, scan_roots(medium, seeds));
}

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
  format::IncarnationRecord record;
  try {
    medium.read(format::incarnation_at(opened.rival_copy),
                std::as_writable_bytes(std::span(&record, 1)));
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    return;
  }
  const auto found = format::read_incarnation(record, seeds, opened.rival_copy);
  if (!found || *found <= opened.incarnation) return;
  throw Error(Errc::busy,
              fmt::format("another process has opened the shelf for writing meanwhile: it has "
                          "incarnation {}, and ours is {}; nothing of this commit was flipped",
                          *found, opened.incarnation),
              "Let one process write at a time. Close this shelf, see to it that the other one is "
              "closed too, and open it again: it has what the other one persisted.");
}

namespace {

// The version of the newest root that verifies, or 0. What any of the scans saw valid was flipped,
// also where the words never stood still.
std::uint64_t newest_version(Medium& medium, const format::Seeds& seeds) {
  RootScan scan = scan_roots(medium, seeds);
  std::uint64_t newest = 0;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    const bool moved = scan_again(medium, seeds, scan);
    const auto candidates = scan.candidates();
    if (!candidates.empty()) {
      newest = std::max(newest, format::word_version(candidates.front().word));
    }
    if (!moved) break;
  }
  return newest;
}

}  // namespace

// Where a newer root was there already and could not be opened, its number proves nothing.
bool is_overtaken(Medium& medium, const Recovered& opened, const format::Seeds& seeds) {
  if (opened.report.degraded) return scan_roots(medium, seeds).words != opened.words;
  return newest_version(medium, seeds) > opened.version;
}

}  // namespace tensorshelf
