// Whether a thread sleeps, as the kernel tells it: the way to know that it waits for a lock.
#pragma once

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace tensorshelf::testing {

inline bool asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] == 'S';
}

// A thread whose call is expected to wait for a lock that another holds.
class Waiter {
 public:
  explicit Waiter(std::function<void()> call)
      : thread_([this, body = std::move(call)] {
          id_ = ::gettid();
          body();
          returned_ = true;
        }) {}
  ~Waiter() {
    if (thread_.joinable()) thread_.join();
  }

  // Whether the call waits; false where it has returned. Comes back when it is either.
  bool waits() const {
    while (!returned_ && (id_ == 0 || !asleep(id_))) std::this_thread::yield();
    return !returned_;
  }
  void join() { thread_.join(); }

 private:
  std::atomic<pid_t> id_ = 0;
  std::atomic<bool> returned_ = false;
  std::thread thread_;
};

}  // namespace tensorshelf::testing
