// The open attempt as one whole: what was assigned, created and erased since the last freeze.
#pragma once

#include <memory>

#include "store/manifest/attempt.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

// Whether a commit would have anything in it. Waits for assignments that are under way.
bool has_uncommitted(const State& state);

// Errc::uncommitted where it has; the gate is closed. `what` is refused then.
void check_nothing_uncommitted(const State& state, const char* what);

// Puts `next` in its place; the gate is closed. Handles go back to the names of before.
void drop_open_attempt(State& state, std::shared_ptr<Attempt> next) noexcept;

// Drops it, when the turn comes.
void discard(State& state);

}  // namespace tensorshelf
