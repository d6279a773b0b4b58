// Keeps writers apart from whoever freezes, creates or erases: any number of writers, or one of
// those. Writers wait for nothing else here, and come in whenever it is open. Passing the gate
// orders every writer's drained stores before the committer's barrier (I7).
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/planted.hpp"
#include "store/threads/patience.hpp"
#include "store/threads/queue_lock.hpp"

namespace tensorshelf {

class CommitGate {
 public:
  void enter(const Patience& patience) {
    while (true) {
      ++writers_;  // sequentially consistent, as all here: either we see it closed, or it sees us
      if (!closed_) return;
      leave();
      std::unique_lock lock(mutex_);
      patience.wait(changed_, lock, [&] { return !closed_; });
    }
  }
  void leave() {
    if (--writers_ > 0 || !closed_) return;
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  // Returns when no writer is inside, and nobody else has it closed: those who close it do so in
  // the order in which they came. Where it throws, it is open.
  void close(const Patience& patience) {
    if (!planted(Bug::commits_overlap)) closers_.lock(room_, patience);
    std::unique_lock lock(mutex_);
    closed_ = true;
    try {
      patience.wait(changed_, lock, [&] { return writers_ == 0; });
    } catch (...) {
      lock.unlock();
      open();
      throw;
    }
  }
  void open() {
    admit();
    if (!planted(Bug::commits_overlap)) closers_.unlock(room_);
  }
  void admit() {  // writers; others that close it still wait
    std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;  // of changed_; writers take it only while a commit is closing or closed
  std::condition_variable changed_;
  WaitQueue room_;
  QueueLock closers_;
  std::atomic<int> writers_ = 0;
  std::atomic<bool> closed_ = false;
};

class WriterScope {
 public:
  WriterScope(CommitGate& gate, const Patience& patience) : gate_(&gate) { gate_->enter(patience); }
  ~WriterScope() {
    if (gate_ != nullptr) gate_->leave();
  }
  WriterScope(const WriterScope&) = delete;
  WriterScope& operator=(const WriterScope&) = delete;

  // In a forked child, whose gate nobody opens: whoever was at it stayed in the parent.
  void forsake() { gate_ = nullptr; }

 private:
  CommitGate* gate_;
};

// Closes the gate for its lifetime.
class ClosedGate {
 public:
  ClosedGate(CommitGate& gate, const Patience& patience) : gate_(&gate) { gate_->close(patience); }
  ClosedGate(ClosedGate&& from) noexcept : gate_(std::exchange(from.gate_, nullptr)) {}
  ClosedGate& operator=(ClosedGate&&) = delete;
  ~ClosedGate() {
    if (gate_ != nullptr) gate_->open();
  }

 private:
  CommitGate* gate_;  // none when it was moved from
};

}  // namespace tensorshelf
