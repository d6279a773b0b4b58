#include "store/commit/open_attempt.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/turn.hpp"

namespace tensorshelf {

bool has_uncommitted(const State& state) {
  state.health.check_usable();
  refuse_inside(state, "what is not committed was asked for");
  if (!state.writable) return false;
  const ClosedGate closed(*state.gate, Patience());  // for who is about to close the shelf
  state.health.check_usable();
  return state.open->changed();
}

void check_nothing_uncommitted(const State& state, const char* what) {
  state.check_not_abandoned();
  if (!state.open->changed()) return;
  std::lock_guard lock(state.structure);
  throw Error(
      Errc::uncommitted,
      fmt::format("{} of {}, and there are changes that are not committed", what, state.path),
      state.versions.undecided()
          ? "discard() them; or resolve() what is prepared, and persist() them then."
          : "persist() or discard() them first.");
}

// What it staged lies in slots that nothing else names.
void drop_open_attempt(State& state, std::shared_ptr<Attempt> next) noexcept {
  TENSORSHELF_ASSERT(next != nullptr);
  for (const auto& tensor : state.open->dirty) {
    std::lock_guard lock(tensor->mutex);
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      if (!tensor->written.contains(chunk)) continue;
      if (tensor->whole() && !planted(Bug::discarded_labels_kept)) {
        tensor->label(tensor->working, chunk) = 0;  // the number is another attempt's from now on
      }
    }
  }
  const bool names_changed = state.open->names_changed || state.open->moved;
  {
    std::lock_guard lock(state.structure);
    state.replace_open(next);
  }
  if (names_changed) update_handles(*next->names, *state.open->names);
}

void discard(State& state) {
  state.check_writable();
  refuse_inside(state, "discard() was called");
  const Turn turn(state);
  const ClosedGate closed(*state.gate, state.patience);
  state.check_writable();
  drop_open_attempt(state, state.attempt_over(state.open->base, state.open->sequence));
}

}  // namespace tensorshelf
