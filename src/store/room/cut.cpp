// The end of compact(): what is behind the last slot is cut off the media.
#include <algorithm>
#include <mutex>

#include "base/planted.hpp"
#include "store/media_set/further_media.hpp"
#include "store/room/compactor.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kMostCuts = 1024;  // of one medium, however long its file is

}  // namespace

// Roots say how far each medium is the shelf's. One that recovery may come to must not reach beyond
// what is there, so it is cut behind as many commits as there are homes, the first of which is
// frozen behind this. What an earlier run did not come to cut, or one that died, goes, too.
void Compactor::cut() {
  PerMedium from = {};
  PerMedium ends = {};
  std::uint64_t first = 0;
  {
    const ClosedGate closed(*state_.gate, state_.patience);
    state_.check_writable();
    state_.check_not_abandoned();
    const auto named = state_.open->tree.media();
    MediumSet restated;
    bool longer = false;
    for (const unsigned medium : media_of(state_)) {
      from[medium] = state_.medium->size_of(medium) / kPageBytes * kPageBytes;
      state_.heap->cut(medium);
      ends[medium] = state_.heap->capacity_bytes(medium);
      longer |= from[medium] > ends[medium] && !fixed_.has(medium);
      longer |= state_.medium->mirror_uncut(medium);
      // One that was removed is not named again.
      const auto there = std::ranges::find(named, medium, &format::MediumLayout::index);
      if (there == named.end()) continue;
      if (there->capacity_bytes != ends[medium]) restated.add(medium);
    }
    if (!longer) return;
    if (planted(Bug::removed_named_again)) restated = MediumSet::all();
    state_.name_media(restated);
    state_.open->moved = true;
    first = state_.open->version();
  }
  if (planted(Bug::cut_before_roots)) return shorten(from);
  commit_next();
  if (planted(Bug::cut_behind_earlier)) first = state_.version;
  while (state_.version < first + state_.opened.slot_count || !reaches_no_further(ends)) {
    if (state_.version > first + kRestless * state_.opened.slot_count) {
      report_.files_cut = false;  // somebody holds on to one
      return;
    }
    commit_next();
  }
  shorten(from);
}

bool Compactor::reaches_no_further(const PerMedium& ends) const {
  const auto lock = state_.lock_usable();
  for (const auto* list : {&state_.versions.retained, &state_.versions.in_flight}) {
    for (const auto& version : *list) {
      const Capacities there = version->capacities();
      for (unsigned medium = 0; medium < kMaxMedia; ++medium) {
        if (there.end[medium] > std::max(ends[medium], state_.heap->capacity_bytes(medium)))
          return false;
      }
    }
  }
  return true;
}

void Compactor::shorten(const PerMedium& from) {
  for (unsigned medium = 0; medium < kMaxMedia; ++medium) {
    const std::uint64_t at_once = std::max(kAtOnceBytes, from[medium] / kMostCuts);
    for (std::uint64_t size = from[medium]; size > 0;) {
      size -= std::min(size, at_once) / kPageBytes * kPageBytes;
      if (!shorten_to(medium, size)) break;
      state_.patience.pause(kPause);  // who waits at the gate comes in
    }
    if (state_.medium->mirror_uncut(medium)) report_.files_cut = false;
  }
}

// Or to where the shelf ends there. As for growth: nobody writes, and nothing is on its way. False
// where it can go no further.
bool Compactor::shorten_to(unsigned medium, std::uint64_t size_bytes) {
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  state_.wait_until_quiet(state_.patience);
  {
    const std::lock_guard lock(state_.structure);
    if (state_.versions.undecided()) return false;
  }
  const std::uint64_t end = std::max(size_bytes, state_.heap->capacity_bytes(medium));
  const std::uint64_t before = state_.medium->size_of(medium);
  const bool again = end == before && state_.medium->mirror_uncut(medium);
  if (end >= before && !again) return false;  // it grew again
  const std::uint64_t left = offset_of(state_.medium->shrink(place_on(medium, end)));
  if (left == before && !again) fixed_.add(medium);
  return left == size_bytes;
}

}  // namespace tensorshelf
