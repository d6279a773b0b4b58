// The thread that commits in the background, one attempt after the other. It is started by the
// first that comes.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/signals_blocked.hpp"

namespace tensorshelf {

class Committer {
 public:
  Committer() {
    const SignalsBlocked blocked;  // one of the caller's could end a flush, which is not repeated
    thread_ = std::thread([this] { run(); });
  }
  ~Committer() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();  // after all that was posted
  }
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // In two steps, of which the second needs no memory.
  using Work = std::list<std::function<void()>>;
  static Work prepare(std::function<void()> work) {
    Work list;
    list.push_back(std::move(work));
    return list;
  }
  void post(Work work) noexcept {
    const std::lock_guard lock(mutex_);
    work_.splice(work_.end(), work);
    changed_.notify_one();  // within: once it is done, all of this may be gone
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Work work_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tensorshelf
