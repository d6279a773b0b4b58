#include "store/reading/version_hold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "format/format.hpp"
#include "media/pins.hpp"
#include "store/reading/overtaken.hpp"
#include "store/state/pinned.hpp"

namespace tensorshelf {
namespace {

// Drops what nobody holds any more in a reader, which has gone on since (follow.hpp), to any number
// of versions. They own no places.
void drop_unheld(State& state) {
  const std::uint64_t floor = state.versions.retained.back()->root.floor;
  std::erase_if(state.versions.retained, [&](const auto& version) {
    return version->number() < floor && !state.versions.holds.has(version->number());
  });
}

void erase_one(std::vector<std::uint64_t>& versions, std::uint64_t version) noexcept {
  const auto there = std::find(versions.begin(), versions.end(), version);
  if (there != versions.end()) versions.erase(there);
}

}  // namespace

VersionHold::VersionHold(State& state, std::optional<std::uint64_t> version, By by, bool all_held)
    : state_(state), by_(by) {
  auto lock = state.lock_usable();
  const Version& there =
      version ? state.retained_version(*version) : *state.versions.retained.back();
  version_ = there.number();
  word_ = there.root.word;
  step_ = format::stated_step(there.root);
  tensor_bytes_ = there.tensor_bytes;
  names_ = there.names;
  Holds& holds = state.versions.holds;
  holds.held.push_back(version_);  // behind this nothing throws before forget() would be called
  if (is_users()) ++holds.users;
  lock.unlock();
  try {
    if (!state.writable && !state.opened.report.salvaged) tell(all_held);
  } catch (...) {
    forget();
    throw;
  }
  if (by_ == By::thread) outer_ = std::exchange(innermost_, this);
}

// First the pin, and then the look: a writer that did not see the pin has flipped before. One that
// lost the version, and gave it up when it opened the shelf, has wiped its home.
void VersionHold::tell(bool all_held) {
  PinTable* const pins = state_.medium->pins();
  if (pins == nullptr) {
    const bool seen = !state_.medium->is_mirror_alone() || planted(Bug::lone_mirror_held);
    if (by_ == By::thread || seen) return;
    throw Error(
        Errc::unsupported,
        fmt::format("no version of {} can be held: it is a mirror that is opened by itself, "
                    "and its writer would not see it",
                    state_.path),
        "Open the shelf itself, or copy the version out: snapshot().");
  }
  try {
    const auto heard_at = pins->appear();
    if (!planted(Bug::pins_unheard)) std::this_thread::sleep_until(heard_at);
    pins->take(version_);
  } catch (const Error& error) {
    // Who copies it out does without: what is written over meanwhile fails its checksum.
    if (by_ != By::thread || error.code() != Errc::io) throw;
    return;
  }
  told_ = true;
  if (joins_another()) return;
  if (!all_held && !planted(Bug::pin_not_looked_behind)) throw_if_given_up(state_, version_);
  const unsigned slot_count = state_.opened.slot_count;
  const auto words = version_words(*state_.medium, slot_count);
  const auto& home = words[format::home_of(version_, slot_count)];
  if (std::find(home.begin(), home.end(), word_) == home.end()) {
    throw Error(Errc::stale,
                fmt::format("version {} of {} was given up meanwhile", version_, state_.path),
                "refresh() goes on to the newest version.");
  }
  const std::lock_guard lock(state_.structure);
  note_let_be();
}

// One that this opening holds already, and its writer lets be, however far that has gone since: the
// pin of both is one, which was there before that other hold ended.
bool VersionHold::joins_another() {
  const std::lock_guard lock(state_.structure);
  if (!state_.versions.holds.lets_be(version_) || planted(Bug::joined_pin_looked_at)) return false;
  note_let_be();
  return true;
}

// With structure held.
void VersionHold::note_let_be() {
  state_.versions.holds.let_be.push_back(version_);
  is_let_be_ = true;
}

bool VersionHold::is_users() const {
  return by_ == By::user || (by_ == By::copy && planted(Bug::copy_not_waited_for));
}

void VersionHold::forget() noexcept {
  {
    const std::lock_guard lock(state_.structure);
    Holds& holds = state_.versions.holds;
    erase_one(holds.held, version_);
    if (is_users()) --holds.users;
    if (is_let_be_) erase_one(holds.let_be, version_);
    if (!state_.writable) drop_unheld(state_);
  }
  if (told_) state_.medium->pins()->drop(version_);
}

// What only this one kept goes.
VersionHold::~VersionHold() {
  if (by_ == By::thread) innermost_ = outer_;
  if (state_.health.in_child()) return;  // where a lock may be held for ever
  names_.reset();
  forget();
  if (!state_.writable || drop_unkept(state_)) return;
  const std::lock_guard lock(state_.structure);
  state_.note_given_back();  // it is held no more
}

bool VersionHold::around(const State& state) {
  const VersionHold* inside = innermost_;
  while (inside != nullptr && &inside->state_ != &state) inside = inside->outer_;
  return inside != nullptr;
}

}  // namespace tensorshelf
