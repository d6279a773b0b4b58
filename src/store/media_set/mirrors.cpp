// Fills mirrors; and says of each of the first medium whether a version that it alone has may be
// written over.
#include <fmt/format.h>

#include "base/planted.hpp"
#include "store/io/medium_headers.hpp"
#include "store/manifest/attempt.hpp"
#include "store/media_set/further_media.hpp"
#include "store/media_set/mirror_filling.hpp"
#include "store/media_set/older_first.hpp"

namespace tensorshelf {
namespace {

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
    if (*each.mirrors == 0 && chosen.mirrored && !planted(Bug::damage_mirrored)) {
      fill_behind_heads(media_, each, seeds, chosen.versions);
      continue;
    }
    if (*each.mirrors == 0 && how_far(*mirror_of_first_, media_, seeds, chosen) == Ahead::newer) {
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
    const MirrorOfFirst there = offered_mirror(each);
    if (!there.has_heads()) continue;  // nothing of it is there
    const Ahead ahead = how_far(there, media_, seeds, chosen);
    if (ahead == Ahead::newer) {
      notes_.push_back(note_of_newer(each.given.path));
      each.given.found = {};
    } else if (is_described(chosen) && !planted(ahead == Ahead::torn ? Bug::torn_mirror_unmarked
                                                                     : Bug::unseen_flip_unmarked)) {
      give_for_filling(medium, id);
    }
  }
}

MirrorOfFirst FurtherMedia::offered_mirror(const Offered& offered) {
  Medium& medium = *offered.given.found.medium;
  MirrorOfFirst there{medium, format::kMirrorAt, medium.size(), offered.given.path, {}};
  if (there.has_heads()) there.stamp = stamped_last(medium, 0, offered.header->medium_id);
  return there;
}

// One that was cut short within its heads is none.
std::optional<MirrorOfFirst> FurtherMedia::mirror_of_first() const {
  if (mirror_of_first_) {
    const bool serves = mirror_of_first_->has_heads() || planted(Bug::short_mirror_asked);
    return serves ? mirror_of_first_ : std::nullopt;
  }
  for (const Offered& each : offered_.all()) {
    if (!each.is_left() || !each.mirrors_first()) continue;
    if (const MirrorOfFirst there = offered_mirror(each); there.has_heads()) return there;
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
