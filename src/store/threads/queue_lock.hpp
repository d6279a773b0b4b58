// A lock that is given in the order in which it was asked for, and whose wait can be given up: for
// what is held long. One byte, for every tensor has one; those who wait do so in a room that many
// locks share.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>

#include "store/threads/patience.hpp"

namespace tensorshelf {

class QueueLock;

class WaitQueue {
  friend class QueueLock;
  struct Waiter {
    const QueueLock* lock;
    bool given = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Waiter> waiters_;  // of all locks, in the order in which they came
};

class QueueLock {
 public:
  // Where it throws, which it does while it waits alone, nothing is held.
  void lock(WaitQueue& room, const Patience& patience) {
    State free = State::free;
    if (!state_.compare_exchange_strong(free, State::held)) wait(room, patience);
  }
  void unlock(WaitQueue& room) {
    State held = State::held;
    if (state_.compare_exchange_strong(held, State::free)) return;
    const std::lock_guard lock(room.mutex_);
    hand_on(room);
  }

 private:
  // Awaited: held, and there are waiters. It becomes so, and ceases to be, with the room locked.
  enum class State : std::uint8_t { free, held, awaited };

  void wait(WaitQueue& room, const Patience& patience) {
    std::unique_lock lock(room.mutex_);
    const auto me = room.waiters_.insert(room.waiters_.end(), {this});
    me->given = state_.exchange(State::awaited) == State::free;  // let go meanwhile
    if (me->given) update(room);
    try {
      patience.wait(room.changed_, lock, [&] { return me->given; });
    } catch (...) {
      if (me->given) {
        hand_on(room);
      } else {
        me->given = true;  // waits no more
        update(room);
      }
      room.waiters_.erase(me);
      throw;
    }
    room.waiters_.erase(me);
  }

  auto next(WaitQueue& room) const {
    return std::find_if(room.waiters_.begin(), room.waiters_.end(), [this](const auto& waiter) {
      return waiter.lock == this && !waiter.given;
    });
  }
  void hand_on(WaitQueue& room) {
    const auto to = next(room);
    if (to == room.waiters_.end()) {
      state_ = State::free;
      return;
    }
    to->given = true;
    update(room);
    room.changed_.notify_all();
  }
  void update(WaitQueue& room) {  // while somebody holds it
    state_ = next(room) == room.waiters_.end() ? State::held : State::awaited;
  }

  std::atomic<State> state_ = State::free;
};

class QueueScope {
 public:
  QueueScope(QueueLock& lock, WaitQueue& room, const Patience& patience)
      : lock_(&lock), room_(room) {
    lock_->lock(room_, patience);
  }
  ~QueueScope() {
    if (lock_ != nullptr) lock_->unlock(room_);
  }
  QueueScope(const QueueScope&) = delete;
  QueueScope& operator=(const QueueScope&) = delete;

  // In a forked child, where the room may be locked for good.
  void forsake() { lock_ = nullptr; }

 private:
  QueueLock* lock_;
  WaitQueue& room_;
};

}  // namespace tensorshelf
