// Calls that read the medium without passing the commit gate: any number at once. Closing the shelf
// keeps new ones out and waits for those inside.
#pragma once

#include <atomic>

namespace tensorshelf {

class UseCount {
 public:
  // False, with nothing entered, once it was closed.
  bool enter() {
    ++inside_;  // sequentially consistent, as all here: either we see it closed, or it sees us
    if (!closed_) return true;
    leave();
    return false;
  }
  void leave() {
    if (--inside_ == 0 && closed_) inside_.notify_all();
  }
  void close() {
    closed_ = true;
    for (int now; (now = inside_) != 0;) inside_.wait(now);
  }

 private:
  std::atomic<int> inside_ = 0;
  std::atomic<bool> closed_ = false;
};

}  // namespace tensorshelf
