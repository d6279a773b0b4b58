// All changes of a while as one version, or none: a transaction, or a save of a pipeline. Each has
// the turn (turn.hpp) from its begin to its end.
//
//   begin        commit, drop                          by one thread; nothing uncommitted before it
//   begin_save   launch_save, prepare_save, drop       by whichever; with all assigned before it
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string_view>

#include <tensorshelf/report.hpp>

#include "store/commit/decisions.hpp"
#include "store/commit/freezer.hpp"
#include "store/commit/launcher.hpp"
#include "store/commit/sealer.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Transactions {
 public:
  Transactions(State& state, Freezer& freezer, Sealer& sealer, Launcher& launcher,
               Decisions& decisions)
      : state_(state),
        freezer_(freezer),
        sealer_(sealer),
        launcher_(launcher),
        decisions_(decisions) {}

  void begin();
  // `ended`, of all three: whether it is over, also where this throws.
  Commit commit(std::optional<std::uint64_t> step, bool& ended);

  void begin_save();
  std::shared_future<Commit> launch_save(std::optional<std::uint64_t> step, bool& ended);
  // In place of launching it: prepared, when it returns (decisions.hpp).
  Prepared prepare_save(std::optional<std::uint64_t> step, std::string_view id, bool& ended);

  void drop();  // what was begun, and gives the turn back

 private:
  State& state_;
  Freezer& freezer_;
  Sealer& sealer_;
  Launcher& launcher_;
  Decisions& decisions_;
};

}  // namespace tensorshelf
