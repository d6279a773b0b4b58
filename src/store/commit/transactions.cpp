#include "store/commit/transactions.hpp"

#include <new>
#include <utility>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/open_attempt.hpp"
#include "store/commit/turn.hpp"
#include "store/reading/version_hold.hpp"

namespace tensorshelf {

void Transactions::begin() {
  state_.check_writable();
  refuse_inside(state_, "a transaction was begun");
  Turn turn(state_);
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  check_nothing_uncommitted(state_, "a transaction");
  state_.begun.spare = state_.attempt_over(state_.open->base, state_.open->sequence);
  turn.keep();
}

Commit Transactions::commit(std::optional<std::uint64_t> step, bool& ended) {
  state_.check_writable();
  refuse_inside(state_, "a transaction was committed");
  auto flight = freezer_.freeze(step);
  ended = true;
  state_.begun.spare.reset();
  Turn::give_back(state_);
  return sealer_.seal(std::move(flight));
}

// The gate is closed for a moment, as for a transaction: who abandons what is prepared takes no
// turn, and puts another attempt, with another spare one, in the place of the open one.
void Transactions::begin_save() {
  state_.check_writable();
  refuse_inside(state_, "a save was begun");
  Turn turn(state_);
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  state_.begun.spare = state_.attempt_over(state_.open->base, state_.open->sequence);
  state_.begun.saving = true;
  if (!planted(Bug::feed_turn_given_up)) turn.keep_for_any();
}

std::shared_future<Commit> Transactions::launch_save(std::optional<std::uint64_t> step,
                                                     bool& ended) {
  state_.check_writable();
  auto future = launcher_.launch(step);
  ended = true;
  state_.begun.spare.reset();
  Turn::give_back(state_);
  return future;
}

// From the freeze on there is nothing to drop; and behind it nothing is frozen till it is prepared.
Prepared Transactions::prepare_save(std::optional<std::uint64_t> step, std::string_view id,
                                    bool& ended) {
  state_.check_writable();
  std::optional<Turn::GiveBack> at_exit;
  return decisions_.prepare_in_turn(step, id, [&] {
    if (!planted(Bug::feed_prepared_as_staging)) state_.begun.saving = false;
    state_.begun.spare.reset();
    ended = true;
    at_exit.emplace(state_);
  });
}

// Also after a failure, which is for the next call to tell. What cannot be dropped is committed by
// nobody: one that goes within an assignment of its own thread, within a snapshot, or what a wait
// calls, which nobody can refuse; or where there is no memory to wait for the gate.
void Transactions::drop() {
  const Turn::GiveBack at_exit(state_);
  state_.health.check_usable();
  if (is_inside(state_) || VersionHold::around(state_)) {
    return state_.health.fail("a transaction was let go within an assignment, or a wait");
  }
  try {
    const ClosedGate closed(*state_.gate, Patience());  // it must end, whatever is heard
    state_.health.check_usable();
    state_.begun.saving = false;
    if (planted(Bug::feed_part_kept)) return;
    drop_open_attempt(state_, std::exchange(state_.begun.spare, nullptr));
  } catch (const std::bad_alloc&) {
    state_.health.fail("there was no memory to drop a transaction, or a save");
    throw;
  }
}

}  // namespace tensorshelf
