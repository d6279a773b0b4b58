// The open attempt as one whole: thrown away, committed as a transaction, or a save of a pipeline.
#include <fmt/format.h>

#include <new>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/commit/turn.hpp"
#include "store/store.hpp"

namespace tensorshelf {

bool Store::has_uncommitted() const {
  state_.health.check_usable();
  refuse_inside("what is not committed was asked for");
  if (!state_.writable) return false;
  const ClosedGate closed(*state_.gate, Patience());  // for who is about to close the shelf
  state_.health.check_usable();
  return state_.open->changed();
}

// The gate is closed.
void Store::check_nothing_uncommitted(const char* what) const {
  state_.check_not_abandoned();
  if (!state_.open->changed()) return;
  std::lock_guard lock(state_.structure);
  throw Error(
      Errc::uncommitted,
      fmt::format("{} of {}, and there are changes that are not committed", what, state_.path),
      state_.versions.undecided()
          ? "discard() them; or resolve() what is prepared, and persist() them then."
          : "persist() or discard() them first.");
}

// The gate is closed. What it staged lies in slots that nothing else names.
void Store::drop_open_attempt(std::shared_ptr<Attempt> next) noexcept {
  TENSORSHELF_ASSERT(next != nullptr);
  for (const auto& tensor : state_.open->dirty) {
    std::lock_guard lock(tensor->mutex);
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      if (!tensor->written.contains(chunk)) continue;
      if (tensor->whole() && !planted(Bug::discarded_labels_kept)) {
        tensor->label(tensor->working, chunk) = 0;  // the number is another attempt's from now on
      }
    }
  }
  const bool names_changed = state_.open->names_changed || state_.open->moved;
  {
    std::lock_guard lock(state_.structure);
    state_.open.swap(next);
    state_.further->attached().revive(state_.open->tree);
    if (!planted(Bug::look_outlives_discard)) state_.looked = false;
  }
  if (names_changed) update_handles(*next->names, *state_.open->names);
}

void Store::discard() {
  state_.check_writable();
  refuse_inside("discard() was called");
  const Turn turn(state_);
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  drop_open_attempt(state_.attempt_over(state_.open->base, state_.open->sequence));
}

void Store::begin_transaction() {
  state_.check_writable();
  refuse_inside("a transaction was begun");
  Turn turn(state_);
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  check_nothing_uncommitted("a transaction");
  state_.spare = state_.attempt_over(state_.open->base, state_.open->sequence);
  turn.keep();
}

Commit Store::commit_transaction(std::optional<std::uint64_t> step, bool& ended) {
  state_.check_writable();
  refuse_inside("a transaction was committed");
  auto flight = freezer_.freeze(step);
  ended = true;
  state_.spare.reset();
  Turn::give_back(state_);
  return sealer_.seal(std::move(flight));
}

// The gate is closed for a moment, as for a transaction: who abandons what is prepared takes no
// turn, and puts another attempt, with another spare one, in the place of the open one.
void Store::begin_save() {
  state_.check_writable();
  refuse_inside("a save was begun");
  Turn turn(state_);
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  state_.spare = state_.attempt_over(state_.open->base, state_.open->sequence);
  state_.saving = true;
  if (!planted(Bug::feed_turn_given_up)) turn.keep_for_any();
}

std::shared_future<Commit> Store::launch_save(std::optional<std::uint64_t> step, bool& ended) {
  state_.check_writable();
  auto future = launch_behind_turn(step);
  ended = true;
  state_.spare.reset();
  Turn::give_back(state_);
  return future;
}

// From the freeze on there is nothing to drop; and behind it nothing is frozen till it is prepared.
Prepared Store::prepare_save(std::optional<std::uint64_t> step, std::string_view id, bool& ended) {
  state_.check_writable();
  std::optional<Turn::GiveBack> at_exit;
  return decisions_.prepare_in_turn(step, id, [&] {
    if (!planted(Bug::feed_prepared_as_staging)) state_.saving = false;
    state_.spare.reset();
    ended = true;
    at_exit.emplace(state_);
  });
}

// Also after a failure, which is for the next call to tell. What cannot be dropped is committed by
// nobody: one that goes within an assignment of its own thread, within a snapshot, or what a wait
// calls, which nobody can refuse; or where there is no memory to wait for the gate.
void Store::discard_and_end_turn() {
  const Turn::GiveBack at_exit(state_);
  state_.health.check_usable();
  if (is_inside(state_) || VersionHold::around(state_)) {
    return state_.health.fail("a transaction was let go within an assignment, or a wait");
  }
  try {
    const ClosedGate closed(*state_.gate, Patience());  // it must end, whatever is heard
    state_.health.check_usable();
    state_.saving = false;
    if (planted(Bug::feed_part_kept)) return;
    drop_open_attempt(std::exchange(state_.spare, nullptr));
  } catch (const std::bad_alloc&) {
    state_.health.fail("there was no memory to drop a transaction, or a save");
    throw;
  }
}

}  // namespace tensorshelf
