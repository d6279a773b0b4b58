// Whether what a mirror of the first medium alone has may go, for who may write.
#include <fmt/format.h>

#include <algorithm>

#include "base/planted.hpp"
#include "store/attempt.hpp"
#include "store/further_media.hpp"
#include "store/medium_headers.hpp"
#include "store/mirror_filling.hpp"
#include "store/root_scan.hpp"

namespace tensorshelf {

using format::Root;

namespace {

// Where a mirror of the first medium has what that has.
struct MirrorPlace {
  Medium& medium;
  std::uint64_t from;
  std::uint64_t end;  // of what is there
  const std::string& path;
  bool goes;  // what is there, as its stamp says (MirrorStamp::refilling)
};

// The newest root that it shows.
std::optional<Root> newest_root(const MirrorPlace& mirror, const format::Seeds& seeds,
                                unsigned slot_count) {
  if (mirror.end < mirror.from + head_bytes(0)) return {};
  const auto roots = scan_homes(mirror.medium, mirror.from, seeds, slot_count).candidates();
  if (roots.empty()) return {};
  return roots.front();
}

// The attempt at the next version, as the first has it described, in either copy.
bool is_described(const Chosen& chosen, const Root* there) {
  const auto& copies =
      chosen.scan.described[format::home_of(chosen.newest + 1, chosen.scan.slot_count)];
  return std::ranges::any_of(copies, [&](const auto& root) {
    return root && format::word_version(root->word) == chosen.newest + 1 &&
           (there == nullptr || format::is_same_root(*root, *there));
  });
}

// A flip that a power loss left on the mirror alone, of which nobody was told. It is one version,
// for each is durable on both before the next one's word is stored (I2); and the first has that
// attempt as it was described, which was durable on both (I1).
bool is_torn_flip(const Root& there, const Chosen& chosen) {
  if (format::word_version(there.word) != chosen.newest + 1) return false;
  if (planted(Bug::mirror_a_version_ahead)) return true;
  return is_described(chosen, &there);
}

enum class Ahead { no, torn, newer };  // of what was opened: a flip that may go, or what may not

// Errc::medium_missing where the first is an older copy, or lost what the mirror has.
Ahead how_far(const MirrorPlace& mirror, const format::Seeds& seeds, const Chosen& chosen) {
  if (planted(Bug::mirror_written_over)) return Ahead::no;
  const auto there = newest_root(mirror, seeds, chosen.scan.slot_count);
  const std::uint64_t version = there ? format::word_version(there->word) : 0;
  if (version <= chosen.newest) return Ahead::no;
  if (mirror.goes && version == chosen.newest + 1) return Ahead::no;
  if (chosen.degraded) return Ahead::newer;
  if (is_torn_flip(*there, chosen)) return Ahead::torn;
  throw Error(
      Errc::medium_missing,
      fmt::format("the shelf's own medium is an older copy, or was damaged: its mirror {} has "
                  "version {}, and version {} is the newest there is",
                  mirror.path, version, chosen.newest),
      "Give the newer one; or keep what the mirror has: mode=\"r\" opens it, and snapshot() makes "
      "a new shelf of it. To go on from this one, move the mirror away first.");
}

std::string note_of_newer(const std::string& path) {
  return fmt::format(
      "{} has a newer version than could be opened, and stays as it is until it is given as a "
      "mirror again: nothing is mirrored there any more. mode=\"r\" opens it, and snapshot() makes "
      "a new shelf of it",
      path);
}

}  // namespace

void FurtherMedia::fill_mirrors(const format::Seeds& seeds, const Chosen& chosen) {
  for (const AttachedMedium& each : attached_.all()) {
    if (!each.tied) continue;
    // What is damaged must not go to the only one that has it: the next opening compares them.
    if (*each.mirrors == 0 && chosen.mirrored && !planted(Bug::damage_mirrored)) continue;
    const std::uint64_t end = place_on(each.index, media_.size_of(each.index));
    const bool goes = is_given_for_filling(media_, each.index, each.id);
    const MirrorPlace place{media_, place_on(each.index, format::kMirrorAt), end, each.path, goes};
    if (*each.mirrors == 0 && how_far(place, seeds, chosen) == Ahead::newer) {
      give_up(each);
      continue;
    }
    if (std::string note = fill_mirror(media_, each, seeds, chosen.versions); !note.empty()) {
      notes_.push_back(std::move(note));
    }
  }
  look_at_offered(seeds, chosen);
}

// A mirror that no version names yet is filled when it is attached. Before that the opening wipes
// the first medium's homes, and then a flip that this mirror alone has looks like a version that an
// older copy of the first lacks. So it is marked before (give_for_filling()): also where no flip is
// seen on it, for behind a failed flush one may come to be read later.
void FurtherMedia::look_at_offered(const format::Seeds& seeds, const Chosen& chosen) {
  for (Offered& each : offered_.all()) {
    if (!each.is_left() || !each.mirrors_first()) continue;
    Medium& medium = *each.given.found.medium;
    const format::ShelfId& id = each.header->medium_id;
    const MirrorPlace place{medium, format::kMirrorAt, medium.size(), each.given.path,
                            is_given_for_filling(medium, 0, id)};
    const Ahead ahead = how_far(place, seeds, chosen);
    if (ahead == Ahead::newer) {
      notes_.push_back(note_of_newer(each.given.path));
      each.given.found = {};
    } else if (is_described(chosen, nullptr) &&
               !planted(ahead == Ahead::torn ? Bug::torn_mirror_unmarked
                                             : Bug::unseen_flip_unmarked)) {
      give_for_filling(medium, id);
    }
  }
}

// One that was cut short within its heads is none.
std::optional<MirrorOfFirst> FurtherMedia::mirror_of_first() const {
  if (mirror_of_first_) {
    const bool whole = mirror_of_first_->end >= mirror_of_first_->from + head_bytes(0);
    return whole || planted(Bug::short_mirror_asked) ? mirror_of_first_ : std::nullopt;
  }
  for (const Offered& each : offered_.all()) {
    if (!each.is_left() || !each.mirrors_first()) continue;
    Medium& medium = *each.given.found.medium;
    const std::uint64_t end = medium.size();
    if (end < format::kMirrorAt + head_bytes(0)) continue;
    return MirrorOfFirst{medium, format::kMirrorAt, end, is_filled_mirror(medium)};
  }
  return {};
}

// It stays as it is.
void FurtherMedia::give_up(const AttachedMedium& mirror) {
  media_.give_up_mirror(*mirror.mirrors);
  notes_.push_back(note_of_newer(mirror.path));
  attached_.give_up(mirror.index);
}

}  // namespace tensorshelf
