// A lock that is given in the order in which it was asked for, and whose wait can be given up: for
// what is held long. One byte, for every tensor has one; those who wait do so in a queue that many
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
  void lock(WaitQueue& queue, const Patience& patience) {
    State free = State::free;
    if (!state_.compare_exchange_strong(free, State::held)) wait(queue, patience);
  }
  void unlock(WaitQueue& queue) {
    State held = State::held;
    if (state_.compare_exchange_strong(held, State::free)) return;
    const std::lock_guard lock(queue.mutex_);
    hand_on(queue);
  }

 private:
  // Awaited: held, and there are waiters. It becomes so, and ceases to be, with the queue locked.
  enum class State : std::uint8_t { free, held, awaited };

  void wait(WaitQueue& queue, const Patience& patience) {
    std::unique_lock lock(queue.mutex_);
    const auto me = queue.waiters_.insert(queue.waiters_.end(), {this});
    me->given = state_.exchange(State::awaited) == State::free;  // let go meanwhile
    if (me->given) update(queue);
    try {
      patience.wait(queue.changed_, lock, [&] { return me->given; });
    } catch (...) {
      if (me->given) {
        hand_on(queue);
      } else {
        me->given = true;  // waits no more
        update(queue);
      }
      queue.waiters_.erase(me);
      throw;
    }
    queue.waiters_.erase(me);
  }

  auto next(WaitQueue& queue) const {
    return std::find_if(queue.waiters_.begin(), queue.waiters_.end(), [this](const auto& waiter) {
      return waiter.lock == this && !waiter.given;
    });
  }
  void hand_on(WaitQueue& queue) {
    const auto to = next(queue);
    if (to == queue.waiters_.end()) {
      state_ = State::free;
      return;
    }
    to->given = true;
    update(queue);
    queue.changed_.notify_all();
  }
  void update(WaitQueue& queue) {  // while somebody holds it
    state_ = next(queue) == queue.waiters_.end() ? State::held : State::awaited;
  }

  std::atomic<State> state_ = State::free;
};

class QueueScope {
 public:
  QueueScope(QueueLock& lock, WaitQueue& queue, const Patience& patience)
      : lock_(&lock), queue_(queue) {
    lock_->lock(queue_, patience);
  }
  ~QueueScope() {
    if (lock_ != nullptr) lock_->unlock(queue_);
  }
  QueueScope(const QueueScope&) = delete;
  QueueScope& operator=(const QueueScope&) = delete;

  // In a forked child, where the queue may be locked for good.
  void forsake() { lock_ = nullptr; }

 private:
  QueueLock* lock_;
  WaitQueue& queue_;
};

}  // namespace tensorshelf
