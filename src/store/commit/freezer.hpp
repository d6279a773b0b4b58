// The first step of a commit: the open attempt becomes a version on its way, and the next one
// opens. The gate is closed, and all that can fail comes before that; what it copied or noted by
// then is the open attempt's still.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "store/commit/stager.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Freezer {
 public:
  Freezer(State& state, Stager& stager) : state_(state), stager_(stager) {}

  // In turn (turn.hpp): waits until one more may be in flight.
  Flight freeze(std::optional<std::uint64_t> step);
  // The same in two steps.
  ClosedGate close_gate();
  Flight freeze_behind_gate(std::optional<std::uint64_t> step);

  // For a version that is made otherwise, with the gate closed: what must be so before, its root,
  // and its way.
  void check_may_commit();
  format::Root next_root(std::optional<std::uint64_t> step) const;
  Flight launch(std::shared_ptr<Version> version, std::shared_ptr<Attempt> next);

 private:
  void check_version_left() const;
  void check_nothing_spoiled() const;
  void record_staged(const StoredTensor& tensor);

  State& state_;
  Stager& stager_;
};

}  // namespace tensorshelf
