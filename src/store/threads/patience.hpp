// What a thread does while it waits long: now and then it calls what OpenOptions::while_waiting
// gave, which may end the wait by throwing. Without that, and where a wait must come to its end, it
// only waits.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace tensorshelf {

class Patience {
 public:
  Patience() = default;  // hears nothing
  explicit Patience(std::function<void()> call,
                    std::chrono::milliseconds between = std::chrono::milliseconds(50))
      : call_(std::move(call)), between_(between) {}
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // Until done(). The lock is held again when it returns, and when it throws what was called.
  template <typename Condition, typename Lock, typename Done>
  void wait(Condition& changed, Lock& lock, Done done) const {
    if (!call_) return changed.wait(lock, done);
    while (!changed.wait_for(lock, between_, done)) {
      const Released released(lock);
      const Calling calling(*this);
      call_();
    }
  }

  // Whether this thread is inside such a call. If it waited again, it might do so for itself.
  bool is_calling() const {
    const Calling* inside = Calling::innermost;
    while (inside != nullptr && &inside->patience != this) inside = inside->outer;
    return inside != nullptr;
  }

  // So long, where there is nothing of this process to wait for.
  void pause(std::chrono::nanoseconds time) const {
    if (call_) {
      const Calling calling(*this);
      call_();
    }
    std::this_thread::sleep_for(time);
  }

 private:
  template <typename Lock>
  struct Released {
    explicit Released(Lock& held) : lock(held) { lock.unlock(); }
    ~Released() { lock.lock(); }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;
    Lock& lock;
  };
  struct Calling {
    explicit Calling(const Patience& whose) : patience(whose) { innermost = this; }
    ~Calling() { innermost = outer; }
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;
    inline static constinit thread_local const Calling* innermost = nullptr;
    const Patience& patience;
    const Calling* outer = innermost;  // of the same thread, in a wait for another shelf
  };

  std::function<void()> call_;
  std::chrono::milliseconds between_{};
};

}  // namespace tensorshelf
