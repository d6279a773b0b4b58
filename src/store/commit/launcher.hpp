// Commits in the background: frozen by who asks, sealed by a thread, one after the other.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include <tensorshelf/report.hpp>

#include "store/commit/committer.hpp"
#include "store/commit/freezer.hpp"
#include "store/commit/sealer.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Launcher {
 public:
  Launcher(State& state, Freezer& freezer, Sealer& sealer)
      : state_(state), freezer_(freezer), sealer_(sealer) {}

  // For who has the turn (turn.hpp). What the commit fails with is in the future, and kept for the
  // next call.
  std::shared_future<Commit> launch(std::optional<std::uint64_t> step);

  // The thread, which ends after all that was launched; null where nothing was. For who closes the
  // store: the gate is closed.
  std::unique_ptr<Committer> take() { return std::move(committer_); }

 private:
  State& state_;
  Freezer& freezer_;
  Sealer& sealer_;
  std::unique_ptr<Committer> committer_;
};

}  // namespace tensorshelf
