// Whose turn it is to freeze or drop the open attempt. A transaction keeps the turn from its begin
// to its end; what its own thread asks for meanwhile is refused, for it would wait for itself.
#pragma once

#include <fmt/format.h>

#include <thread>

#include "store/state/state.hpp"

namespace tensorshelf {

class Turn {
 public:
  explicit Turn(State& state) : state_(&state) {
    if (state.transacting.load() == std::this_thread::get_id()) {
      throw Error(Errc::transaction,
                  fmt::format("{} is in a transaction of this thread", state.path),
                  "Let it end: it commits, or discards, all that was changed within it.");
    }
    state.turns.lock(*state.waiters, state.patience);
  }
  ~Turn() {
    if (state_ != nullptr) state_->turns.unlock(*state_->waiters);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Beyond this scope, until give_back(): for this thread, or for whichever gives it back.
  void keep() { keep_for(std::this_thread::get_id()); }
  void keep_for_any() { keep_for(std::thread::id()); }
  static void give_back(State& state) {
    if (state.health.in_child()) return;  // where nobody waits
    state.transacting = std::thread::id();
    state.turns.unlock(*state.waiters);
  }
  class GiveBack {
   public:
    explicit GiveBack(State& state) : state_(state) {}
    ~GiveBack() { give_back(state_); }
    GiveBack(const GiveBack&) = delete;
    GiveBack& operator=(const GiveBack&) = delete;

   private:
    State& state_;
  };

 private:
  void keep_for(std::thread::id thread) {
    state_->transacting = thread;
    state_ = nullptr;
  }

  State* state_;
};

}  // namespace tensorshelf
