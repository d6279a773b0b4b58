// A reader that stays: it goes on to what its writer has made since. Like every reader it
// writes nothing, and its writer hears of it only where it holds a version (version_hold.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "store/reading/version_hold.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Follower {
 public:
  explicit Follower(State& state) : state_(state), seen_(state.opened.homes.words) {}

  // Shows the newest version that is there; false where that is the one which is shown. Handles
  // follow their tensors. Of a store that is open for writing, which nobody else changes, false.
  // Where it throws all stays as it was: Errc::corrupt where a newer version may be there that
  // cannot be opened; Errc::stale where the writer is always faster; Errc::unsupported where what
  // is shown was salvaged.
  bool refresh();

  // Refreshes until the version is shown, or a newer one; where none is said, until another is than
  // now. False after `timeout`. Calls `when_nothing_came` after each look that found nothing.
  // Errc::unsupported where it would wait for this store itself.
  using Seconds = std::chrono::duration<double>;
  bool wait_for(std::optional<std::uint64_t> version, std::optional<Seconds> timeout,
                const std::function<void()>& when_nothing_came);

  // Keeps a version, which no commit takes away then; where none is said, the newest that the
  // writer lets a reader have, to which this goes on. Errc::stale, Errc::pinned (version_hold.hpp).
  std::unique_ptr<VersionHold> hold(std::optional<std::uint64_t> version, VersionHold::By by);

 private:
  using Versions = std::vector<std::shared_ptr<Version>>;

  Versions shown() const;
  RootScan scan() const;
  Seen look(const Versions& shown, const RootScan& homes) const;
  void show(const Versions& found);

  State& state_;
  std::mutex mutex_;             // who looks; taken before any lock of State
  PerHome<std::uint64_t> seen_;  // under which the last look began
};

}  // namespace tensorshelf
