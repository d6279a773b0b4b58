#include "store/media_set/stamper.hpp"

#include <utility>

#include "base/planted.hpp"
#include "store/io/medium_headers.hpp"

namespace tensorshelf {

// Numbers of versions come again: where an attempt was abandoned, and where a shelf goes on from
// one state twice. So the stamp says, too, since when they rise, and a mirror that has an older
// copy of what a medium got is seen by its head alone.
void Stamper::stamp(MediumSet which, const format::Root& attempt) {
  if (!which.has_further()) return;
  const std::uint64_t version = format::word_version(attempt.word);
  for (const AttachedMedium& each : attached_.all()) {
    if (!which.has(each.index) || planted(Bug::medium_not_stamped)) continue;
    const std::uint64_t last = std::exchange(last_[each.index], version);
    const bool rises = last < version || planted(Bug::number_again_not_stamped);
    if ((last != 0 && rises) || planted(Bug::opening_not_stamped)) {
      stamp_medium(media_, each.index, each.id, version);
    } else {
      stamp_medium_anew(media_, each.index, each.id, version, format::opening_of(attempt));
    }
  }
}

}  // namespace tensorshelf
