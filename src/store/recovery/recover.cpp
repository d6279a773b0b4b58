#include "store/recovery/recover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/io/head.hpp"
#include "store/io/incarnation.hpp"
#include "store/io/root_scan.hpp"
#include "store/media_set/older_first.hpp"
#include "store/recovery/choice.hpp"
#include "store/recovery/load_root.hpp"
#include "store/recovery/recovery_report.hpp"
#include "store/recovery/repair.hpp"

namespace tensorshelf {
namespace {

// After so many looks a reader accepts the newest version without the older ones that it could not
// load.
constexpr int kLooksForOlder = 8;

// Whether all versions that a look lacks have been given up by now. Else one read of the homes had
// some of them from before others, and the next look has those versions.
bool all_dropped_were_given_up(const Choice& choice, const RootScan& now) {
  const auto roots = now.candidates();
  return !roots.empty() && std::ranges::all_of(choice.dropped, [&](std::uint64_t version) {
    return version < roots.front().floor;
  });
}

bool accepts_fewer(const Opening& opening, const Choice& choice, const RootScan& now, int looks) {
  if (looks >= kLooksForOlder) return true;
  if (opening.purpose != Purpose::follow) return false;
  return all_dropped_were_given_up(choice, now) || planted(Bug::early_look_believed);
}

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
  if (!opening.beside_writer) return choose_versions(opening, scan);
  for (int looks = 0; looks < kMostLooks; ++looks) {
    opening.known.begin_look();
    try {
      Choice choice = choose_versions(opening, scan);
      const bool whole = !choice.degraded && choice.dropped.empty();
      if (whole) return choice;
      const RootScan chosen_by = scan;
      if (!scan_again(opening.medium, opening.seeds, scan)) return choice;
      if (!choice.degraded && accepts_fewer(opening, choice, scan, looks)) {
        scan = chosen_by;  // what was flipped since is for the next look to find
        return without_doubt(std::move(choice));
      }
    } catch (const Error& error) {
      const bool passing = error.code() == Errc::corrupt || error.code() == Errc::truncated;
      if (!passing || !scan_again(opening.medium, opening.seeds, scan)) throw;
    }
    back_off(looks);
    if (looks >= 2) scan_again(opening.medium, opening.seeds, scan);
  }
  throw_always_overtaken(scan);
}

// Where what the first medium has of a newer version is damaged, and its mirror has that: pages
// serve by themselves, once the mirror is attached by an older version that names it. Empty where
// that leads to no newer one, nor to an older one beside it; `dropped` were found by themselves.
std::optional<Choice> look_at_mirror(const Opening& opening, RootScan& scan, std::size_t dropped) {
  const auto& [medium, seeds] = std::tie(opening.medium, opening.seeds);
  const auto mirror = opening.further.mirror_of_first();
  if (!mirror) return {};
  RootScan helped = scan;
  // One that somebody went on without lacks an opening.
  const auto given_out = newest_incarnation(medium, 0, seeds);
  const bool in_step =
      given_out && given_out == newest_incarnation(mirror->medium, mirror->from, seeds);
  const bool taken =
      mirror->filled() && (in_step || planted(Bug::mirrored_root_of_another)) &&
      helped.take_lost(scan_homes(mirror->medium, mirror->from, seeds, scan.slot_count));
  try {
    Choice choice = look(opening, helped);
    if (choice.degraded || choice.dropped.size() >= dropped) return {};
    choice.mirrored = taken;
    choice.notes.push_back(
        "metadata that is damaged on the shelf's own medium was read from its mirror");
    scan = std::move(helped);
    return choice;
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    return {};
  }
}

Choice look_at_all(const Opening& opening, RootScan& scan) {
  std::optional<Choice> own;
  std::optional<Error> damage;
  try {
    own = look(opening, scan);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    damage = error;
  }
  const bool newest = own && !own->degraded;
  const bool whole = newest && (own->dropped.empty() || planted(Bug::older_mirrored_root_left));
  if (!whole && !takes_what_there_is(opening.purpose)) {
    constexpr auto kAny = std::numeric_limits<std::size_t>::max();
    auto better = look_at_mirror(opening, scan, newest ? own->dropped.size() : kAny);
    if (better) return std::move(*better);
  }
  if (damage) throw Error(*damage);
  return std::move(*own);
}

// Versions share pages, and each tells of all of its own.
void drop_doubles(std::vector<PageRepair>& repairs) {
  const auto before = [](const PageRepair& a, const PageRepair& b) { return a.at < b.at; };
  const auto same = [](const PageRepair& a, const PageRepair& b) { return a.at == b.at; };
  std::sort(repairs.begin(), repairs.end(), before);
  repairs.erase(std::unique(repairs.begin(), repairs.end(), same), repairs.end());
}

struct Accepted {
  const ShelfHead& head;
  const Choice& choice;
  RootScan& scan;
};

Standing standing_of(const Accepted& found) {
  const auto& [head, choice, scan] = found;
  return {.head = head,
          .scan = scan,
          .versions = choice.versions,
          .repairs = choice.repairs,
          .dropped = choice.dropped,
          .degraded = choice.degraded,
          .prepared = choice.prepared.has_value()};
}

// What was found, as far as nothing is written for it.
Recovered recovered_of(const Accepted& found, Purpose purpose) {
  const auto& [head, choice, scan] = found;
  Recovered recovered;
  recovered.shelf_id = head.superblock.shelf_id;
  recovered.slot_count = head.superblock.slot_count;
  recovered.writes_allowed = head.writes_allowed;
  recovered.version = choice.number();
  recovered.homes.words = scan.words;
  recovered.versions = choice.versions;
  recovered.report = report_of(choice, scan, head, purpose);
  recovered.report.dropped = choice.dropped;
  recovered.report.notes.insert(recovered.report.notes.end(), choice.notes.begin(),
                                choice.notes.end());
  return recovered;
}

// What writes, in its order: a root that lies in one copy alone, what mirrors lack, and then all
// that is damaged, was not accepted, or says who opened (repair.hpp). Returns what could not be
// read.
Unread make_writable(const ShelfMedia& media, const format::Seeds& seeds, Purpose purpose,
                     const Accepted& found, Recovered& recovered) {
  Medium& medium = *media.all;
  const auto& [head, choice, scan] = found;
  Versions named = choice.versions;
  const Standing standing = standing_of(found);
  if (!planted(Bug::refused_behind_filling)) check_ready(medium, seeds, standing, purpose);
  const bool fills_prepared = choice.prepared && !planted(Bug::prepared_not_filled_in);
  if (fills_prepared && choice.prepared->version) named.push_back(choice.prepared->version);
  if (const auto mirror = media.further->mirror_of_first()) {
    settle_lone(medium, seeds, scan, choice.root(), *mirror);
  }
  media.further->fill_mirrors(seeds,
                              {named, scan, choice.number(), choice.degraded, choice.mirrored});
  if (planted(Bug::refused_behind_filling)) check_ready(medium, seeds, standing, purpose);
  const Ready ready = make_ready(medium, seeds, standing, purpose);
  recovered.mark = ready.mark;
  recovered.prepared = choice.prepared;
  recovered.incarnation = ready.incarnation;
  recovered.rival_copy = ready.rival_copy;
  recovered.report.repaired_copies = ready.repaired_copies;
  if (ready.homes_changed) scan = scan_roots(medium, seeds, scan.slot_count);
  recovered.homes.words = scan.words;
  for (const auto& version : choice.versions) {  // each of which has two good copies now
    recovered.homes.words[format::home_of(version->root)].fill(version->root.word);
  }
  return ready.unread;
}

}  // namespace

Recovered recover(const ShelfMedia& media, Purpose purpose, Verify verify,
                  const Progress& progress) {
  GuardedMedium& medium = *media.all;
  const ShelfHead head = read_head(medium);
  const format::Seeds seeds(head.superblock.shelf_id);
  RootScan scan = scan_roots(medium, seeds, head.superblock.slot_count);
  KnownPages known;
  const bool beside_writer = reads(purpose) && !planted(Bug::reader_looks_once);
  media.further->begin(head.superblock, purpose);
  const Opening opening{medium,   seeds, purpose,        verify,
                        progress, known, *media.further, beside_writer};
  Choice choice = look_at_all(opening, scan);
  if (!writes(purpose) && purpose != Purpose::salvage && !choice.degraded && !choice.mirrored) {
    refuse_older_first(media, seeds, {choice.versions, scan, choice.number(), false, false});
  }
  drop_doubles(choice.repairs);
  Recovered recovered = recovered_of({head, choice, scan}, purpose);
  Unread unread = head.unread;
  unread.note(scan.unread);
  unread.note(scan.marks.unread);
  unread.note(choice.unread_pages);
  for (auto& note : media.further->take_notes()) recovered.report.notes.push_back(std::move(note));
  if (purpose == Purpose::check && !planted(Bug::repair_looks_less)) {
    check_ready(medium, seeds, standing_of({head, choice, scan}), purpose);
  }
  if (writes(purpose) && head.writes_allowed) {
    unread.note(make_writable(media, seeds, purpose, {head, choice, scan}, recovered));
  }
  note_unread(recovered.report, unread);
  return recovered;
}

Seen look_again(const ShelfMedia& media, const Recovered& opened, Verify verify, RootScan scan,
                const std::vector<std::shared_ptr<Version>>& shown) {
  GuardedMedium& medium = *media.all;
  const format::Seeds seeds(opened.shelf_id);
  KnownPages known(KnownPages::Copies::one);
  const Progress untold;
  Opening opening{medium, seeds, Purpose::follow, verify, untold, known, *media.further, true};
  for (auto version = shown.rbegin(); version != shown.rend(); ++version) {
    (*version)->tree.each_page([&](const PageNodePtr& page) { known.keep({page}); });
    for (const auto& [name, named] : *(*version)->names) {
      opening.tensors.emplace(named.tensor->layout.tensor_id, named);
    }
  }
  Choice choice = look(opening, scan);
  return {std::move(choice.versions),
          {scan.words},
          choice.degraded,
          std::move(choice.lost),
          choice.dropped.size()};
}

void check_opens(const ShelfMedia& media) { static_cast<void>(recover(media, Purpose::check)); }

}  // namespace tensorshelf
