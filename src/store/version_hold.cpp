#include "store/version_hold.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "format/format.hpp"

namespace tensorshelf {
namespace {

// Of a reader, which has gone on since (follow.hpp), to any number of versions. They own no places.
void drop_unheld(State& state) {
  const std::uint64_t floor = state.retained.back()->root.floor;
  std::erase_if(state.retained, [&](const auto& version) {
    return version->number() < floor && !state.is_held(version->number());
  });
}

}  // namespace

VersionHold::VersionHold(State& state, std::optional<std::uint64_t> version, By by)
    : state_(state), by_(by) {
  const auto lock = state.lock_usable();
  const Version& there = version ? state.retained_version(*version) : *state.retained.back();
  version_ = there.number();
  step_ = format::stated_step(there.root);
  tensor_bytes_ = there.tensor_bytes;
  names_ = there.names;
  state.held.push_back(version_);
  if (by_ == By::thread) outer_ = std::exchange(innermost_, this);
}

// What only this one kept goes. It is counted until its places are given back, for else a commit
// might look for them in vain.
VersionHold::~VersionHold() {
  if (by_ == By::thread) innermost_ = outer_;
  if (state_.health.in_child()) return;  // where a lock may be held for ever
  names_.reset();
  if (!state_.writable) {
    std::lock_guard lock(state_.structure);
    state_.held.erase(std::find(state_.held.begin(), state_.held.end(), version_));
    drop_unheld(state_);
    return;
  }
  std::array<std::shared_ptr<Version>, format::kMaxSlots> gone;
  {
    std::lock_guard lock(state_.structure);
    state_.held.erase(std::find(state_.held.begin(), state_.held.end(), version_));
    auto& retained = state_.retained;
    const std::uint64_t floor = retained.back()->root.floor;
    std::size_t count = 0;
    while (retained[count]->number() < floor && !state_.held_from(retained[count]->number())) {
      ++count;
    }
    std::move(retained.begin(), retained.begin() + static_cast<std::ptrdiff_t>(count),
              gone.begin());
    retained.erase(retained.begin(), retained.begin() + static_cast<std::ptrdiff_t>(count));
    state_.going += count;
  }
  const auto dropped = static_cast<std::size_t>(
      std::count_if(gone.begin(), gone.end(), [](const auto& version) { return bool(version); }));
  gone.fill(nullptr);
  std::lock_guard lock(state_.structure);
  state_.going -= dropped;
  state_.note_given_back();
}

bool VersionHold::around(const State& state) {
  const VersionHold* inside = innermost_;
  while (inside != nullptr && &inside->state_ != &state) inside = inside->outer_;
  return inside != nullptr;
}

}  // namespace tensorshelf
