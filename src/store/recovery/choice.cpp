#include "store/recovery/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/recovery/find_damage.hpp"
#include "store/recovery/load_root.hpp"
#include "store/recovery/neighbours.hpp"

namespace tensorshelf {

using format::Root;

void Choice::lose(std::uint64_t version, const std::string& why) {
  lost += fmt::format("{}version {}: {}", lost.empty() ? "" : "; ", version, why);
}

namespace {

// Only where one of them leads somewhere.
constexpr const char* kSalvageRemedy =
    "Restore the file from a copy, or take what is whole: mode=\"r\", salvage=True shows it, and "
    "repair() makes it the newest version, to go on from.";

constexpr const char* kCutShort =
    "The file was cut short: restore it from a copy. A mirror of it may have what is lost: give it "
    "by mirror=.";
// For pages that both copies lost.
constexpr const char* kMirrorRemedy =
    "Restore the file from a copy. A mirror of it may have what is lost: give it by mirror=.";

// `older` are the roots before that one. What it does not retain may be there, and nobody reads it.
[[noreturn]] void throw_damaged(const Opening& opening, const Root& newest,
                                const std::vector<Root>& older, const std::string& damage) {
  const auto& [medium, seeds, further] = std::tie(opening.medium, opening.seeds, opening.further);
  std::string rest = newest.floor == format::word_version(newest.word)
                         ? "no older version is kept"
                         : "no older version is whole";
  std::string way;
  for (const Root& root : older) {
    const std::uint64_t version = format::word_version(root.word);
    if (version < newest.floor) break;
    try {
      KnownPages known;
      const LoadedRoot loaded = load_root(medium, seeds, root, known, {}, &further);
      if (!find_damage(medium, seeds, *loaded.version, {})) {
        rest = fmt::format("version {} is intact", version);
        way = fmt::format(" at({}) reads the older version.", version);
        break;
      }
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt && error.code() != Errc::medium_missing) throw;
    }
  }
  throw Error(
      Errc::corrupt, fmt::format("{}; {}", damage, rest),
      "Open with verify \"load\": every other tensor can be read, and assigning the damaged "
      "one heals it." +
          way);
}

bool words_moved(const Opening& opening, const RootScan& scan) {
  return version_words(opening.medium, scan.slot_count) != scan.words;
}

// An errno, where something could not be read that may be read later; else 0.
int unread_cause(const RootScan& scan, const Choice& choice) {
  return choice.unread_errno != 0 ? choice.unread_errno : scan.unread.os_error;
}

// What cannot be read now may be read later, and its slots must not have been written by then: to
// go on from an older version is for repair() to do, and not by the way.
void refuse_unread(const Opening& opening, const RootScan& scan, const Choice& choice) {
  const int cause = unread_cause(scan, choice);
  const bool gives_up = opening.beside_writer || takes_what_there_is(opening.purpose);
  if (gives_up || !choice.degraded || cause == 0 || planted(Bug::unread_given_up)) return;
  throw Error(Errc::corrupt,
              fmt::format("a version newer than {} may be there and cannot be read; {}{}",
                          choice.number(), choice.lost, scan.unread.reason()),
              "Check the device (dmesg), and open it again: the error may pass. mode=\"r\" shows "
              "the older version, and repair() makes it the newest one.",
              cause);
}

// What a root leads to; nothing where its manifest is damaged, and then `choice` has lost it.
std::optional<LoadedRoot> load_candidate(const Opening& opening, const RootScan& scan,
                                         const Root& root, Choice& choice) {
  Medium& medium = opening.medium;
  const std::uint64_t version = format::word_version(root.word);
  if (root.capacity_bytes > medium.size()) {
    throw Error(Errc::truncated,
                fmt::format("version {} of the shelf spans {}, and only {} are there", version,
                            size_text(root.capacity_bytes), size_text(medium.size())),
                kCutShort);
  }
  try {
    return load_root(medium, opening.seeds, root, opening.known, opening.tensors, &opening.further);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    if (opening.beside_writer && words_moved(opening, scan)) throw;  // no use in an older one
    choice.lose(version, error.what());
    if (error.os_error() != 0) choice.unread_errno = error.os_error();
    return {};
  }
}

// `salvageable`: the manifest of one is.
[[noreturn]] void throw_none_whole(const RootScan& scan, const Choice& choice, bool salvageable) {
  const int cause = unread_cause(scan, choice);
  throw Error(
      Errc::corrupt,
      fmt::format("no version is whole; {}{}",
                  choice.lost.empty() ? "no root verifies" : choice.lost, scan.unread.reason()),
      salvageable  ? kSalvageRemedy
      : cause != 0 ? "Check the device (dmesg), and open it again: the error may pass. If it does "
                     "not, restore the file from a copy."
      : choice.lost.empty() ? "Restore the file from a copy."
                            : kMirrorRemedy,
      cause);
}

// The newest root whose manifest is whole; where there are signs of a newer one that was damaged,
// also every chunk that it names, unless whatever is whole is wanted.
Choice choose_root(const Opening& opening, const RootScan& scan) {
  const auto candidates = scan.candidates();
  Choice choice;
  bool salvageable = false;
  for (auto candidate = candidates.begin(); candidate != candidates.end(); ++candidate) {
    const Root& root = *candidate;
    const std::uint64_t version = format::word_version(root.word);
    choice.degraded = !choice.lost.empty() || !scan.lost_beyond(version).empty();
    auto loaded = load_candidate(opening, scan, root, choice);
    if (!loaded) continue;
    choice.versions = {loaded->version};
    choice.repairs = std::move(loaded->repairs);
    choice.unread_pages = std::move(loaded->unread);
    if (takes_what_there_is(opening.purpose)) return choice;
    if (!choice.degraded && opening.verify != Verify::on_open) return choice;
    if (planted(Bug::fallback_without_verify)) return choice;
    const auto damage =
        find_damage(opening.medium, opening.seeds, *choice.versions.back(), opening.progress);
    if (!damage) {
      refuse_unread(opening, scan, choice);
      return choice;
    }
    if (!choice.degraded)
      throw_damaged(opening, root, {candidate + 1, candidates.end()}, damage->text);
    choice.lose(version, damage->text);
    if (damage->os_error != 0 && !planted(Bug::unread_chunk_given_up)) {
      choice.unread_errno = damage->os_error;
    }
    salvageable = true;
  }
  throw_none_whole(scan, choice, salvageable);
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

// One beside the newest, with what it shares with those that are loaded. Errc::corrupt where it
// cannot be.
std::shared_ptr<Version> load_beside(Neighbours& neighbours, const Opening& opening,
                                     const Root& root, Choice& choice) {
  // None is cut off before no version that is retained reaches so far (cut.cpp).
  if (root.capacity_bytes > opening.medium.size() && !planted(Bug::older_root_too_long)) {
    throw Error(Errc::corrupt, "the medium is shorter than what it spans", "");
  }
  LoadedRoot loaded = neighbours.load(root);
  choice.unread_pages.note(loaded.unread);
  choice.repairs.insert(choice.repairs.end(), loaded.repairs.begin(), loaded.repairs.end());
  return loaded.version;
}

// The versions before the newest that are offered still: as far back as its floor, and as each can
// be loaded.
void load_retained(Neighbours& neighbours, const Opening& opening, const RootScan& scan,
                   Choice& choice) {
  auto& versions = choice.versions;
  const auto candidates = scan.candidates();
  for (std::uint64_t number = versions.back()->number(); number-- > choice.root().floor;) {
    try {
      const auto root = std::find_if(candidates.begin(), candidates.end(), [&](const Root& there) {
        return format::word_version(there.word) == number;
      });
      if (root == candidates.end()) throw Error(Errc::corrupt, "its root does not verify", "");
      versions.insert(versions.begin(), load_beside(neighbours, opening, *root, choice));
    } catch (const Error& error) {
      // A reader does without it. A writer would give it up for good, where only a path was
      // missing.
      const bool unseen = error.code() == Errc::medium_missing && opening.beside_writer;
      if (error.code() != Errc::corrupt && !unseen) throw;
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
  if (!writes(opening.purpose)) return;  // only that it is there is of interest
  FoundPrepared& found = *choice.prepared;
  const Root root = scan.prepared(choice.number()).value();
  try {
    found.version = load_beside(neighbours, opening, root, choice);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    found.damage = DamagedChunk{error.what(), error.os_error()};
  }
}

}  // namespace

// Where the newest version is not the one that was looked for, nobody knows whose slots a later
// attempt has written (I11), and an attempt over that one is none over this.
Choice choose_versions(const Opening& opening, const RootScan& scan) {
  Choice choice = choose_root(opening, scan);
  const std::uint64_t newest = choice.number();
  if (choice.degraded) return choice;
  Capacities capacities = choice.versions.back()->capacities();
  if (const auto root = scan.prepared(newest)) {
    choice.prepared.emplace();
    choice.prepared->info = prepared_info(*root, scan.marks.newest());
    capacities.raise(root->capacity_bytes);
  }
  if (!choice.prepared && newest == choice.root().floor) return choice;
  const auto beside = [&](const std::vector<std::shared_ptr<Version>>& versions) {
    return Neighbours(opening.medium, opening.seeds, opening.known, opening.further, capacities,
                      versions, opening.tensors);
  };
  Neighbours older = beside(choice.versions);
  load_retained(older, opening, scan, choice);
  if (!choice.prepared) return choice;
  Neighbours all = beside(choice.versions);
  load_prepared(all, opening, scan, choice);
  return choice;
}

}  // namespace tensorshelf
