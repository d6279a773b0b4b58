// A commit in two halves, for those that must agree with others before they commit: an attempt is
// made durable and marked as prepared; whoever asked for that flips it or abandons it later, also
// after a crash, and nobody else does (I14).
//
//   prepare   freeze, describe, barrier (I1), the mark in both copies, each behind a barrier
//   commit    the rest of every commit: flip, barrier (I2), publish
//   abandon   an empty mark, durable in both copies; then what the attempt named is free
//
// While it is undecided nothing is frozen behind it: so there is it, and the open attempt over it,
// which goes with it where it is abandoned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include <tensorshelf/report.hpp>

#include "store/commit/freezer.hpp"
#include "store/commit/sealer.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Decisions {
 public:
  Decisions(State& state, Freezer& freezer, Sealer& sealer)
      : state_(state), freezer_(freezer), sealer_(sealer), mark_(state.opened.mark) {}

  Prepared prepare(std::optional<std::uint64_t> step, std::string_view id);
  // The same for who has the turn (turn.hpp), and keeps it till this returns. `frozen`, which
  // throws nothing, is called behind the closed gate, when the attempt takes no more and can be
  // dropped no more.
  Prepared prepare_in_turn(std::optional<std::uint64_t> step, std::string_view id,
                           const std::function<void()>& frozen);
  std::optional<Prepared> prepared() const;
  // Until nothing waits for a decision, or the store has failed. False where `give_up`, which is
  // asked now and then, says so first.
  bool await(const std::function<bool()>& give_up);
  Resolved commit();
  Resolved abandon();

 private:
  void check_marks_left() const;
  void check_prepared();
  void check_found(const PreparedAttempt& found) const;
  Flight decide_to_commit();
  Resolved commit_found();
  void clear_labels_beyond(std::uint64_t version, const Names& names) noexcept;

  State& state_;
  Freezer& freezer_;
  Sealer& sealer_;
  QueueLock deciding_;         // one at a time
  format::PreparedMark mark_;  // that lies on the medium
};

}  // namespace tensorshelf
