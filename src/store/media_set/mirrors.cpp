// Fills mirrors as a shelf is opened; and says of each of the first medium whether a version that
// it alone has may be written over.
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

class MirrorFiller {
 public:
  MirrorFiller(MediaParts& parts, const format::Seeds& seeds, const Chosen& chosen)
      : parts_(parts), seeds_(seeds), chosen_(chosen) {}

  void fill();

 private:
  void look_at_offered();
  void give_up(const AttachedMedium& mirror);

  MediaParts& parts_;
  const format::Seeds& seeds_;
  const Chosen& chosen_;
};

void MirrorFiller::fill() {
  for (const AttachedMedium& each : parts_.attached.all()) {
    if (!each.tied) continue;
    // What is damaged must not go to the only one that has it: the next opening compares them.
    if (*each.mirrors == 0 && chosen_.mirrored && !planted(Bug::damage_mirrored)) {
      fill_behind_heads(parts_.media, each, seeds_, chosen_.versions);
      continue;
    }
    if (*each.mirrors == 0 &&
        how_far(*parts_.mirror_of_first, parts_.media, seeds_, chosen_) == Ahead::newer) {
      give_up(each);
      continue;
    }
    if (std::string note = fill_mirror(parts_.media, each, seeds_, chosen_.versions);
        !note.empty()) {
      parts_.notes.push_back(std::move(note));
    }
  }
  look_at_offered();
}

// A mirror that no version names yet is filled when it is attached. Before that the opening wipes
// the first medium's homes, and then a flip that this mirror alone has looks like a version that an
// older copy of the first lacks. So it is marked before (give_for_filling()): also where no flip is
// seen on it, for behind a failed flush one may come to be read later.
void MirrorFiller::look_at_offered() {
  for (auto& each : parts_.offered.all()) {
    if (!each.is_left() || !each.mirrors_first()) continue;
    Medium& medium = *each.given.found.medium;
    const format::ShelfId& id = each.header->medium_id;
    const MirrorOfFirst there = offered_mirror(each);
    if (!there.has_heads()) continue;  // nothing of it is there
    const Ahead ahead = how_far(there, parts_.media, seeds_, chosen_);
    if (ahead == Ahead::newer) {
      parts_.notes.push_back(note_of_newer(each.given.path));
      each.given.found = {};
    } else if (is_described(chosen_) &&
               !planted(ahead == Ahead::torn ? Bug::torn_mirror_unmarked
                                             : Bug::unseen_flip_unmarked)) {
      give_for_filling(medium, id);
    }
  }
}

// It stays as it is.
void MirrorFiller::give_up(const AttachedMedium& mirror) {
  parts_.media.give_up_mirror(*mirror.mirrors);
  parts_.notes.push_back(note_of_newer(mirror.path));
  parts_.attached.give_up(mirror.index);
}

}  // namespace

void FurtherMedia::fill_mirrors(const format::Seeds& seeds, const Chosen& chosen) {
  MirrorFiller(parts_, seeds, chosen).fill();
}

}  // namespace tensorshelf
