#include "store/state/pinned.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "media/pins.hpp"
#include "store/state/unknown_pins.hpp"

namespace tensorshelf {
namespace {

using Clock = std::chrono::steady_clock;

// Behind the flip of a root whose floor lies beyond it.
bool is_pinned(const State& state, std::uint64_t number) noexcept {
  if (state.asked.on_pin == OnPin::outrun || planted(Bug::pins_not_seen)) return false;
  PinTable* const pins = state.medium->pins();
  return pins != nullptr && pins->any_readers() && pins->find(number, number).has_value();
}

// With structure held. The oldest that a reader keeps, if any is left.
std::optional<std::uint64_t> first_pinned(const State& state) {
  if (state.versions.retained.empty()) return std::nullopt;
  const std::uint64_t floor = state.versions.retained.back()->root.floor;
  for (const auto& version : state.versions.retained) {
    const std::uint64_t number = version->number();
    if (number < floor && !state.versions.holds.has(number) && is_pinned(state, number))
      return number;
  }
  return std::nullopt;
}

// With structure held.
void throw_if_pinned(const State& state) {
  if (const auto version = first_pinned(state)) {
    throw_pinned(state.path, *state.medium->pins(), *version, "its slot is needed");
  }
  if (state.versions.holds.users == 0 || planted(Bug::own_pin_without_end)) return;
  throw Error(Errc::pinned,
              fmt::format("version {} of {} is held by a pin() of this very process, and its slot "
                          "is needed",
                          *std::ranges::min_element(state.versions.holds.held), state.path),
              "End that pin first, or give a new shelf an in_flight= of one more for it.");
}

}  // namespace

std::size_t take_unkept(State& state, GoneVersions& gone) noexcept {
  auto& retained = state.versions.retained;
  std::size_t count = 0;
  state.versions.holds.pinned = 0;
  if (retained.empty()) return count;  // it was closed, while somebody waited
  const std::uint64_t floor = retained.back()->root.floor;
  std::erase_if(retained, [&](std::shared_ptr<Version>& version) {
    const std::uint64_t number = version->number();
    if (number >= floor) return false;
    if (state.versions.holds.has(number) && !planted(Bug::held_version_dropped)) return false;
    if (is_pinned(state, number)) {
      ++state.versions.holds.pinned;
      return false;
    }
    gone[count++] = std::move(version);
    return true;
  });
  return count;
}

// They are counted until their places are given back, for else a commit might look for these in
// vain.
bool drop_unkept(State& state) noexcept {
  GoneVersions gone;
  std::size_t count = 0;
  {
    const std::lock_guard lock(state.structure);
    count = take_unkept(state, gone);
    state.versions.holds.going += count;
  }
  if (count == 0) return false;
  gone.fill(nullptr);
  const std::lock_guard lock(state.structure);
  state.versions.holds.going -= count;
  state.note_given_back();
  return true;
}

void await_unpinned(State& state, std::unique_lock<FairMutex>& lock,
                    const std::function<bool()>& done) {
  std::optional<Clock::time_point> since;  // users alone are waited for: all else ends by itself
  const Holds& holds = state.versions.holds;
  const auto any_pins = [&] { return holds.pinned != 0 || holds.users != 0; };
  while (!done()) {
    if (!any_pins()) {
      state.patience.wait(*state.published, lock, [&] { return done() || any_pins(); });
      continue;
    }
    const bool users_alone =
        state.versions.in_flight.empty() && holds.going == 0 && holds.held.size() == holds.users;
    if (!users_alone) {
      since.reset();
    } else if (!since) {
      since = Clock::now();
    } else if (Clock::now() - *since >= state.asked.pin_timeout) {
      throw_if_pinned(state);
    }
    lock.unlock();
    if (!drop_unkept(state)) state.patience.pause(kBetweenLooks);
    lock.lock();
  }
}

void State::await_given_back(std::uint64_t seen) {
  std::unique_lock lock(structure);
  await_unpinned(*this, lock, [&] {
    return versions.given_back != seen || health.failed() || versions.undecided();
  });
}

}  // namespace tensorshelf
