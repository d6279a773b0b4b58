#include "store/recover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/head.hpp"
#include "store/heap.hpp"
#include "store/incarnation.hpp"
#include "store/load_root.hpp"
#include "store/neighbours.hpp"
#include "store/repair.hpp"
#include "store/root_scan.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {
namespace {

using format::Root;

struct Choice {
  std::vector<std::shared_ptr<Version>> versions = {};  // that are retained, the newest last
  std::vector<PageRepair> repairs = {};                 // of all that was loaded
  Unread unread_pages = {};                             // of the newest version
  bool degraded = false;
  std::string lost;  // why newer versions could not be opened
  int unread = 0;    // an errno: one of them could not be read, which may pass
  std::vector<std::uint64_t> dropped = {};  // were retained, and cannot be loaded
  std::vector<std::string> notes = {};      // why
  std::optional<FoundPrepared> prepared = {};

  const Root& root() const { return versions.back()->root; }
  std::uint64_t number() const { return versions.back()->number(); }
  void lose(std::uint64_t version, const std::string& why) {
    lost += fmt::format("{}version {}: {}", lost.empty() ? "" : "; ", version, why);
  }
};

// Only where one of them leads somewhere.
constexpr const char* kSalvageRemedy =
    "Restore the file from a copy, or take what is whole: mode=\"r\", salvage=True shows it, and "
    "repair() makes it the newest version, to go on from.";

// `older` are the roots before that one. What it does not retain may be there, and nobody reads it.
[[noreturn]] void throw_damaged(Medium& medium, const format::Seeds& seeds, const Root& newest,
                                const std::vector<Root>& older, const std::string& damage) {
  std::string rest = newest.floor == format::word_version(newest.word)
                         ? "no older version is kept"
                         : "no older version is whole";
  std::string way;
  for (const Root& root : older) {
    const std::uint64_t version = format::word_version(root.word);
    if (version < newest.floor) break;
    try {
      KnownPages known;
      if (!find_damage(medium, seeds, *load_root(medium, seeds, root, known).version, {})) {
        rest = fmt::format("version {} is intact", version);
        way = fmt::format(" at({}) reads the older version.", version);
        break;
      }
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
    }
  }
  throw Error(
      Errc::corrupt, fmt::format("{}; {}", damage, rest),
      "Open with verify \"load\": every other tensor can be read, and assigning the damaged "
      "one heals it." +
          way);
}

struct Opening {
  Medium& medium;
  const format::Seeds& seeds;
  const RecoverWay& way;
  const Progress& progress;
  KnownPages& known;
  bool reader = false;  // its writer may go on meanwhile
};

bool words_moved(const Opening& opening, const RootScan& scan) {
  return scan_roots(opening.medium, opening.seeds, scan.slot_count).words != scan.words;
}

// An errno, where something could not be read that may be read later; else 0.
int unread_cause(const RootScan& scan, const Choice& choice) {
  return choice.unread != 0 ? choice.unread : scan.unread.os_error;
}

// What cannot be read now may be read later, and its slots must not have been written by then: to
// go on from an older version is for repair() to do, and not by the way.
void refuse_unread(const Opening& opening, const RootScan& scan, const Choice& choice) {
  const int cause = unread_cause(scan, choice);
  const bool reads = opening.reader || opening.way.salvage;
  if (reads || !choice.degraded || cause == 0 || planted(Bug::unread_given_up)) return;
  throw Error(Errc::corrupt,
              fmt::format("a version newer than {} may be there and cannot be read; {}{}",
                          choice.number(), choice.lost, scan.unread.reason()),
              "Check the device (dmesg), and open it again: the error may pass. mode=\"r\" shows "
              "the older version, and repair() makes it the newest one.",
              cause);
}

// The newest root whose manifest is whole; where there are signs of a newer one that was damaged,
// also every chunk that it names, unless whatever is whole is wanted.
Choice choose_root(const Opening& opening, const RootScan& scan) {
  const auto& [medium, seeds, way, progress, known, reader] = opening;
  const auto candidates = scan.candidates();
  Choice choice;
  bool salvageable = false;
  for (auto candidate = candidates.begin(); candidate != candidates.end(); ++candidate) {
    const Root& root = *candidate;
    const std::uint64_t version = format::word_version(root.word);
    if (root.capacity_bytes > medium.size()) {
      throw Error(Errc::truncated,
                  fmt::format("version {} of the shelf spans {}, and only {} are there", version,
                              size_text(root.capacity_bytes), size_text(medium.size())),
                  "The file was cut short: restore it from a copy.");
    }
    choice.degraded = !choice.lost.empty() || !scan.lost_beyond(version).empty();
    try {
      LoadedRoot loaded = load_root(medium, seeds, root, known);
      choice.versions = {loaded.version};
      choice.repairs = std::move(loaded.repairs);
      choice.unread_pages = std::move(loaded.unread);
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
      if (reader && words_moved(opening, scan)) throw;  // no use in an older one
      choice.lose(version, error.what());
      if (error.os_error() != 0) choice.unread = error.os_error();
      continue;
    }
    if (way.salvage || (!choice.degraded && way.verify != Verify::on_open)) return choice;
    if (planted(Bug::fallback_without_verify)) return choice;
    const auto damage = find_damage(medium, seeds, *choice.versions.back(), progress);
    if (!damage) {
      refuse_unread(opening, scan, choice);
      return choice;
    }
    if (!choice.degraded)
      throw_damaged(medium, seeds, root, {candidate + 1, candidates.end()}, damage->text);
    choice.lose(version, damage->text);
    salvageable = true;
  }
  const int cause = unread_cause(scan, choice);
  throw Error(
      Errc::corrupt,
      fmt::format("no version is whole; {}{}",
                  choice.lost.empty() ? "no root verifies" : choice.lost, scan.unread.reason()),
      salvageable  ? kSalvageRemedy
      : cause != 0 ? "Check the device (dmesg), and open it again: the error may pass. If it does "
                     "not, restore the file from a copy."
                   : "Restore the file from a copy.",
      cause);
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

Prepared prepared_info(const Root& root, const format::PreparedMark& mark) {
  Prepared info;
  info.version = mark.version;
  info.step = format::stated_step(root);
  info.id = format::mark_id(mark);
  info.data_bytes = root.data_bytes;
  info.found = true;
  return info;
}

Recovery report_of(const Choice& choice, const RootScan& scan, const ShelfHead& head,
                   const RecoverWay& way) {
  Recovery report;
  const bool writable = way.writable && head.writes_allowed;
  report.version = choice.number();
  report.step = format::stated_step(choice.root());
  report.interrupted = writable && scan.attempt_left(report.version) && !choice.prepared;
  if (choice.prepared) report.prepared = choice.prepared->info;
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
  const auto bad = head.bad_copies.size() + choice.repairs.size();
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

constexpr int kLooksForOlder = 8;  // after which a reader does with the newest version

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

// The versions before the newest that are offered still: as far back as its floor, and as each can
// be loaded.
void load_retained(Neighbours& neighbours, const RootScan& scan, Choice& choice) {
  auto& versions = choice.versions;
  const auto candidates = scan.candidates();
  for (std::uint64_t number = versions.back()->number(); number-- > choice.root().floor;) {
    try {
      const auto root = std::find_if(candidates.begin(), candidates.end(), [&](const Root& there) {
        return format::word_version(there.word) == number;
      });
      if (root == candidates.end()) throw Error(Errc::corrupt, "its root does not verify", "");
      LoadedRoot loaded = neighbours.load(*root);
      versions.insert(versions.begin(), loaded.version);
      auto& repairs = choice.repairs;
      repairs.insert(repairs.end(), loaded.repairs.begin(), loaded.repairs.end());
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
      for (std::uint64_t lost = number + 1; lost-- > choice.root().floor;) {
        choice.dropped.push_back(lost);  // none is offered before a gap
      }
      choice.notes.push_back(
          fmt::format("version {} was retained and cannot be loaded: {}", number, error.what()));
      break;
    }
  }
}

// The attempt that may become the next version. Where it cannot be loaded it can be abandoned.
void load_prepared(Neighbours& neighbours, const Opening& opening, const RootScan& scan,
                   Choice& choice) {
  if (!opening.way.writable) return;  // only that it is there is of interest
  FoundPrepared& found = *choice.prepared;
  const Root root = scan.prepared(choice.number()).value();
  try {
    if (root.capacity_bytes > opening.medium.size()) {
      throw Error(Errc::corrupt, "the medium is shorter than what it spans", "");
    }
    LoadedRoot loaded = neighbours.load(root);
    found.version = loaded.version;
    auto& repairs = choice.repairs;
    repairs.insert(repairs.end(), loaded.repairs.begin(), loaded.repairs.end());
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    found.damage = DamagedChunk{error.what(), error.os_error()};
  }
}

// Where the newest version is not the one that was looked for, nobody knows whose slots a later
// attempt has written (I11), and an attempt over that one is none over this.
Choice choose_versions(const Opening& opening, const RootScan& scan) {
  Choice choice = choose_root(opening, scan);
  const std::uint64_t newest = choice.number();
  if (choice.degraded) return choice;
  std::uint64_t capacity_bytes = choice.root().capacity_bytes;
  if (const auto root = scan.prepared(newest)) {
    choice.prepared.emplace();
    choice.prepared->info = prepared_info(*root, scan.marks.newest());
    capacity_bytes = std::max(capacity_bytes, root->capacity_bytes);
  }
  if (!choice.prepared && newest == choice.root().floor) return choice;
  const auto beside = [&](const std::vector<std::shared_ptr<Version>>& versions) {
    return Neighbours(opening.medium, opening.seeds, opening.known, capacity_bytes, versions);
  };
  Neighbours older = beside(choice.versions);
  load_retained(older, scan, choice);
  if (!choice.prepared) return choice;
  Neighbours all = beside(choice.versions);
  load_prepared(all, opening, scan, choice);
  return choice;
}

// The newest version is whole. Those before it went while they were looked for: no damage.
Choice without_doubt(Choice choice) {
  choice.dropped.clear();
  choice.notes.clear();
  return choice;
}

// A reader takes no lock: roots and pages change under it when a writer commits. What looks like
// damage is believed only where no root changed meanwhile; a writer that is always faster makes the
// reader stale, never the shelf corrupt.
Choice look(const Opening& opening, RootScan& scan) {
  if (!opening.reader) return choose_versions(opening, scan);
  for (int looks = 0; looks < kMostLooks; ++looks) {
    opening.known.begin_look();
    try {
      Choice choice = choose_versions(opening, scan);
      const bool whole = !choice.degraded && choice.dropped.empty();
      if (whole || !scan_again(opening.medium, opening.seeds, scan)) return choice;
      if (!choice.degraded && looks >= kLooksForOlder) return without_doubt(std::move(choice));
    } catch (const Error& error) {
      const bool passing = error.code() == Errc::corrupt || error.code() == Errc::truncated;
      if (!passing || !scan_again(opening.medium, opening.seeds, scan)) throw;
    }
    back_off(looks);
    if (looks >= 2) scan = scan_roots(opening.medium, opening.seeds, scan.slot_count);
  }
  throw_always_overtaken(scan);
}

// Versions share pages, and each tells of all of its own.
void drop_doubles(std::vector<PageRepair>& repairs) {
  const auto before = [](const PageRepair& a, const PageRepair& b) { return a.at < b.at; };
  const auto same = [](const PageRepair& a, const PageRepair& b) { return a.at == b.at; };
  std::sort(repairs.begin(), repairs.end(), before);
  repairs.erase(std::unique(repairs.begin(), repairs.end(), same), repairs.end());
}

}  // namespace

Recovered recover(Medium& medium, const RecoverWay& way, const Progress& progress) {
  Recovered recovered;
  const ShelfHead head = read_head(medium);
  const format::Seeds seeds(head.superblock.shelf_id);
  RootScan scan = scan_roots(medium, seeds, head.superblock.slot_count);
  KnownPages known;
  const bool reader = !way.writable && !way.strict && !planted(Bug::reader_looks_once);
  const Opening opening{medium, seeds, way, progress, known, reader};
  Choice choice = look(opening, scan);
  drop_doubles(choice.repairs);
  recovered.shelf_id = head.superblock.shelf_id;
  recovered.slot_count = head.superblock.slot_count;
  recovered.writes_allowed = head.writes_allowed;
  recovered.version = choice.number();
  recovered.homes.words = scan.words;
  recovered.report = report_of(choice, scan, head, way);
  recovered.versions = choice.versions;
  recovered.report.dropped = choice.dropped;
  auto& notes = recovered.report.notes;
  notes.insert(notes.end(), choice.notes.begin(), choice.notes.end());
  Unread unread = head.unread;
  unread.note(scan.unread);
  unread.note(scan.marks.unread);
  unread.note(choice.unread_pages);
  if (way.writable && head.writes_allowed) {
    const Ready ready = make_ready(medium, seeds,
                                   {head, scan, choice.versions, choice.repairs, choice.dropped,
                                    choice.degraded, choice.prepared.has_value()},
                                   way.salvage);
    recovered.mark = ready.mark;
    recovered.prepared = choice.prepared;
    recovered.incarnation = ready.incarnation;
    recovered.rival_copy = ready.rival_copy;
    recovered.report.repaired_copies = ready.repaired_copies;
    unread.note(ready.unread);
    if (ready.homes_changed) scan = scan_roots(medium, seeds, scan.slot_count);
    recovered.homes.words = scan.words;
    for (const auto& version : choice.versions) {  // each of which has two good copies now
      recovered.homes.words[format::home_of(version->root)].fill(version->root.word);
    }
  }
  note_unread(recovered.report, unread);
  return recovered;
}

void check_opens(Medium& medium) {
  const Recovered found = recover(medium, {.strict = true}, {});
  const format::Seeds seeds(found.shelf_id);
  const RootScan scan = scan_roots(medium, seeds, found.slot_count);
  read_incarnations(medium, seeds, scan, false);
  check_marks(scan.marks);
}

}  // namespace tensorshelf
