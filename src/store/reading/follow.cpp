#include "store/reading/follow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "media/pins.hpp"

namespace tensorshelf {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at the version words, which cost microseconds: from the one to the other.
constexpr auto kFirstPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::milliseconds(10);

constexpr double kForEver = 1e9;  // seconds

bool same_attempt(const Version& a, const Version& b) {
  return a.root.word == b.root.word && a.root.incarnation == b.root.incarnation &&
         a.root.sequence == b.root.sequence;
}

// Whether one of those that were shown is no more: its number is another attempt's, or free again.
template <typename Versions>
bool given_up(const Versions& shown, const Versions& found) {
  return std::any_of(shown.begin(), shown.end(), [&](const auto& was) {
    return was->number() > found.back()->number() ||
           std::any_of(found.begin(), found.end(), [&](const auto& now) {
             return now->number() == was->number() && !same_attempt(*now, *was);
           });
  });
}

// Whether the one leads to the other, as far as can be told: a version that was lost and given up
// ends with the incarnation of its writer, and then its number and those of tensors come again.
template <typename Versions>
bool goes_on(const Versions& shown, const Versions& found) {
  if (shown.back()->root.incarnation == found.back()->root.incarnation) return true;
  return std::any_of(found.begin(), found.end(),
                     [&](const auto& one) { return same_attempt(*one, *shown.back()); });
}

// What tells a tensor with the number of another from that one under another name, or elsewhere.
template <typename Versions>
bool renames(const Versions& found) {
  return std::any_of(found.begin(), found.end(),
                     [](const auto& one) { return one->renames || one->moved; });
}

}  // namespace

Follower::Versions Follower::shown() const {
  const auto lock = state_.lock_usable();
  return state_.versions.retained;
}

RootScan Follower::scan() const {
  return scan_homes(*state_.medium, 0, state_.seeds, state_.opened.slot_count);
}

// After a version was given up elsewhere, its number and those of its tensors are others' by now:
// then nothing of what was shown is of use. A tensor that cannot be the one of that number shows as
// damage, too, also where an older version has it.
Seen Follower::look(const Versions& shown, const RootScan& homes) const {
  std::optional<Seen> known;
  try {
    known = look_again(state_.media(), state_.opened, state_.asked.verify, homes, shown);
    const bool others = renames(known->versions) && !goes_on(shown, known->versions);
    if (others && !planted(Bug::renamed_by_another)) known.reset();
    if (known && (known->degraded || given_up(shown, known->versions))) known.reset();
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
  }
  if (known && known->dropped == 0) return std::move(*known);
  Seen anew = look_again(state_.media(), state_.opened, state_.asked.verify, scan(), {});
  if (known && (anew.degraded || anew.dropped >= known->dropped)) return std::move(*known);
  return anew;
}

// What a call holds in memory (version_hold.hpp) stays among those that are shown.
void Follower::show(const Versions& found) {
  for (const auto& version : found) version->claims = {};
  // What is shown until now and named one of these slots was overtaken: it is told as that.
  take_places(found);
  Versions held;
  held.reserve(format::kMaxSlots + found.size());
  const std::uint64_t oldest = found.front()->number();
  const auto lock = state_.lock_usable();
  std::copy_if(state_.versions.retained.begin(), state_.versions.retained.end(),
               std::back_inserter(held), [&](const auto& version) {
                 return version->number() < oldest && state_.versions.holds.has(version->number());
               });
  held.insert(held.end(), found.begin(), found.end());
  take_names(*found.back());
  state_.versions.retained.swap(held);  // what goes, goes with the lock given back
  const format::Root& root = state_.versions.retained.back()->root;
  state_.version = format::word_version(root.word);
  state_.split = {root.keep, root.in_flight};
  state_.in_doubt = false;
}

bool Follower::refresh() {
  state_.health.check_usable();
  if (state_.writable) return false;
  if (state_.opened.report.salvaged) {
    throw Error(Errc::unsupported,
                fmt::format("{} was opened to salvage what there is, and shows no other version",
                            state_.path),
                "repair() makes it a shelf to go on from; open it anew then.");
  }
  const Use use(state_);
  const std::lock_guard lock(mutex_);
  const RootScan homes = scan();
  if (homes.words == seen_) return false;
  const Versions before = shown();
  Seen found = look(before, homes);
  if (found.degraded) {
    throw Error(Errc::corrupt,
                fmt::format("{}: a version newer than {} may be there, and cannot be opened{}{}",
                            state_.path, found.versions.back()->number(),
                            found.lost.empty() ? "" : "; ", found.lost),
                "What is shown stays. Open it again: that falls back to what is whole, and says "
                "so.");
  }
  const PerHome<std::uint64_t> began = planted(Bug::refresh_remembers_late)
                                           ? version_words(*state_.medium, state_.opened.slot_count)
                                           : found.homes.words;
  if (planted(Bug::refresh_without_pages)) found.versions.back()->tree = before.back()->tree;
  const bool newer = !same_attempt(*found.versions.back(), *before.back());
  if (newer) show(found.versions);  // which may throw: then it is still to be found
  seen_ = began;
  return newer;
}

bool Follower::wait_for(std::optional<std::uint64_t> version, std::optional<Seconds> timeout,
                        const std::function<void()>& when_nothing_came) {
  if (timeout && (std::isnan(timeout->count()) || timeout->count() < 0)) {
    throw Error(Errc::bad_argument, fmt::format("a timeout of {} seconds", timeout->count()),
                "Use 0 or more seconds, or none to wait for as long as it takes.");
  }
  state_.health.check_usable();
  const std::uint64_t first = state_.version;
  const auto there = [&] { return version ? state_.version >= *version : state_.version != first; };
  if (state_.writable && !there()) {
    throw Error(Errc::unsupported,
                fmt::format("{} is open for writing: it waits for nobody's versions but its own",
                            state_.path),
                "Wait with a shelf that is open with mode=\"r\".");
  }
  const bool ends = timeout && timeout->count() < kForEver;
  const auto deadline = ends ? Clock::now() + std::chrono::duration_cast<Clock::duration>(*timeout)
                             : Clock::time_point();
  for (std::chrono::nanoseconds pause = kFirstPause;; pause *= 2) {
    const bool another = refresh();
    if (there() || (another && !version)) return true;
    if (!another) when_nothing_came();
    pause = std::min<std::chrono::nanoseconds>(pause, kLongestPause);
    if (ends) {
      const auto left = deadline - Clock::now();
      if (left <= Clock::duration::zero()) return false;
      pause = std::min<std::chrono::nanoseconds>(pause, left);
    }
    state_.patience.pause(pause);
  }
}

namespace {

struct AllHeld {
  explicit AllHeld(PinTable* table) : pins(table) {
    if (pins != nullptr) pins->take_all();
  }
  ~AllHeld() {
    if (pins != nullptr) pins->drop_all();
  }
  AllHeld(const AllHeld&) = delete;
  AllHeld& operator=(const AllHeld&) = delete;
  PinTable* pins;
};

}  // namespace

// Where the writer was faster, it waits the next time, while this one looks.
std::unique_ptr<VersionHold> Follower::hold(std::optional<std::uint64_t> version,
                                            VersionHold::By by) {
  const auto held = [&](bool all_held) {
    return std::make_unique<VersionHold>(state_, version, by, all_held);
  };
  const bool goes_on = !version && !state_.writable && !state_.opened.report.salvaged;
  try {
    if (goes_on && !planted(Bug::pin_of_what_is_shown)) refresh();
    return held(false);
  } catch (const Error& error) {
    if (error.code() != Errc::stale || version || state_.writable) throw;
  }
  const Use use(state_);
  const AllHeld all(state_.medium->pins());
  refresh();
  return held(!state_.opened.report.salvaged && all.pins != nullptr && !all.pins->is_outrun());
}

}  // namespace tensorshelf
