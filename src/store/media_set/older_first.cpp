#include "store/media_set/older_first.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/planted.hpp"
#include "store/io/head.hpp"
#include "store/io/incarnation.hpp"
#include "store/io/medium_headers.hpp"
#include "store/io/root_scan.hpp"

namespace tensorshelf {

using format::Root;

namespace {

// The newest root that it shows.
std::optional<Root> newest_root(const MirrorOfFirst& mirror, const format::Seeds& seeds,
                                unsigned slot_count) {
  if (!mirror.has_heads()) return {};
  const auto roots = scan_homes(mirror.medium, mirror.from, seeds, slot_count).candidates();
  if (roots.empty()) return {};
  return roots.front();
}

// Whether one of two that are written together lacks more than the last opening: a power loss
// leaves one without that.
bool lacks_openings(std::optional<std::uint64_t> its, std::optional<std::uint64_t> others) {
  return its && others && *its + 1 < *others;
}

// Opened since without the first: what it has described may have been committed by then.
bool lacks_openings_of(const MirrorOfFirst& mirror, Medium& first, const format::Seeds& seeds) {
  if (!mirror.has_heads() || planted(Bug::openings_not_counted)) return false;
  return lacks_openings(newest_incarnation(first, 0, seeds),
                        newest_incarnation(mirror.medium, mirror.from, seeds));
}

bool is_described_as(const Chosen& chosen, const Root* there) {
  const auto& copies =
      chosen.scan.described[format::home_of(chosen.newest + 1, chosen.scan.slot_count)];
  return std::ranges::any_of(copies, [&](const auto& root) {
    return root && format::word_version(root->word) == chosen.newest + 1 &&
           (there == nullptr || format::is_same_root(*root, *there));
  });
}

// An older version than that root's, or another of that number: from one state twice.
bool shows_less(const RootScan& scan, const Root& root) {
  const std::uint64_t version = format::word_version(root.word);
  const auto roots = scan.candidates();
  if (roots.empty() || format::word_version(roots.front().word) < version) return true;
  if (planted(Bug::other_history_shown)) return false;
  return std::ranges::any_of(scan.roots[format::home_of(root)], [&](const auto& there) {
    return there && format::word_version(there->word) == version &&
           !format::is_same_root(*there, root);
  });
}

// A flip that a power loss left on the mirror alone, of which nobody was told. It is one version,
// for each is durable on both before the next one's word is stored (I2); and the first has that
// attempt as it was described, which was durable on both (I1).
bool is_torn_flip(const Root& there, const Chosen& chosen) {
  if (format::word_version(there.word) != chosen.newest + 1) return false;
  if (planted(Bug::mirror_a_version_ahead)) return true;
  return is_described_as(chosen, &there);
}

Ahead how_far(const MirrorOfFirst& mirror, const std::optional<Root>& there, bool lacks_opening,
              const Chosen& chosen) {
  const std::uint64_t version = there ? format::word_version(there->word) : 0;
  if (version <= chosen.newest) return Ahead::no;
  if (mirror.goes() && version == chosen.newest + 1) return Ahead::no;
  if (chosen.degraded) return Ahead::newer;
  if (is_torn_flip(*there, chosen) && !lacks_opening) return Ahead::torn;
  throw Error(
      Errc::medium_missing,
      fmt::format("the shelf's own medium is an older copy, or was damaged: its mirror {} has "
                  "version {}, and version {} is the newest there is",
                  mirror.path, version, chosen.newest),
      fmt::format(
          "Give the newer one; or keep what the mirror has: mode=\"r\" opens {}, and "
          "snapshot() makes a new shelf of it. To go on from this one, move the mirror away "
          "first.",
          mirror.path));
}

}  // namespace

Ahead how_far(const MirrorOfFirst& mirror, Medium& first, const format::Seeds& seeds,
              const Chosen& chosen) {
  if (planted(Bug::mirror_written_over)) return Ahead::no;
  return how_far(mirror, newest_root(mirror, seeds, chosen.scan.slot_count),
                 lacks_openings_of(mirror, first, seeds), chosen);
}

bool is_older(Medium& mirror, Medium& first) {
  try {
    const ShelfHead head = read_head(first);
    const auto header = read_medium_headers(mirror, 0).best();
    if (header && header->shelf_id != head.superblock.shelf_id) return true;
    const format::Seeds seeds(head.superblock.shelf_id);
    const auto scan = [&](Medium& medium, std::uint64_t from) {
      return scan_homes(medium, from, seeds, head.superblock.slot_count);
    };
    const auto ours = scan(first, 0).candidates();
    const RootScan its = scan(mirror, format::kMirrorAt);
    if (!ours.empty()) return shows_less(its, ours.front());
    // A crash may have taken the last number from it; more than one it lacks where it was given up.
    return lacks_openings(newest_incarnation(mirror, format::kMirrorAt, seeds),
                          newest_incarnation(first, 0, seeds));
  } catch (const Error&) {  // what cannot be read shows nothing that a mirror lacks
    return false;
  }
}

bool is_described(const Chosen& chosen) { return is_described_as(chosen, nullptr); }

// Attempts that came to nothing may have left a stamp beyond the newest version; one that is
// further beyond tells of a newer state of the shelf.
void refuse_older_first(const Stamped& stamped, std::uint64_t newest, unsigned slot_count) {
  if (stamped.last.value_or(0) <= newest + slot_count) return;
  throw Error(
      Errc::medium_missing,
      fmt::format("the shelf's own medium is an older copy: version {} wrote to {} last, and "
                  "version {} is the newest there is",
                  *stamped.last, stamped.path, newest),
      "Give the newer one. salvage=True, mode=\"r\", shows what of this one is whole.");
}

namespace {

// What a look at all of them gave.
struct Look {
  std::optional<Root> mirrored;
  std::vector<Stamped> stamps;
  PerHome<std::uint64_t> words = {};

  // As one before, so that nobody wrote between the two.
  bool is_as(const Look& other) const {
    const auto word = [](const Look& one) { return one.mirrored ? one.mirrored->word : 0; };
    return words == other.words && word(*this) == word(other) &&
           std::ranges::equal(stamps, other.stamps, {}, &Stamped::last, &Stamped::last);
  }
};

}  // namespace

// What the others tell is read first. By then the first had all versions before those, and the one
// that was being flipped described. It may be an opening that took it back; so what is found
// counts where a second look at all of them finds the same.
void refuse_older_first(const ShelfMedia& media, const format::Seeds& seeds, const Chosen& chosen) {
  if (planted(Bug::older_first_shown)) return;
  GuardedMedium& all = *media.all;
  const auto mirror = media.further->mirror_of_first();
  const unsigned slot_count = chosen.scan.slot_count;
  std::optional<Look> before;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    Look look;
    if (mirror) look.mirrored = newest_root(*mirror, seeds, slot_count);
    for (const AttachedMedium& each : media.further->attached().all()) {
      if (each.mirrors || each.absent) continue;
      look.stamps.push_back({stamped_last(all, each.index, each.id), each.path});
    }
    if (!look.mirrored && look.stamps.empty()) return;
    const RootScan now = scan_homes(all, 0, seeds, slot_count);
    const auto roots = now.candidates();
    const std::uint64_t newest = roots.empty() ? 0 : format::word_version(roots.front().word);
    look.words = now.words;
    try {
      if (mirror) {
        how_far(*mirror, look.mirrored, lacks_openings_of(*mirror, all, seeds),
                {chosen.versions, now, newest, false, false});
      }
      for (const Stamped& each : look.stamps) refuse_older_first(each, newest, slot_count);
      return;
    } catch (const Error& error) {
      if (error.code() != Errc::medium_missing || (before && look.is_as(*before))) throw;
    }
    before = std::move(look);
  }
}

}  // namespace tensorshelf
