// A mutex that is given in the order in which it was asked for. Threads that read in a loop would
// keep a std::mutex, or a std::shared_mutex in shared mode, from a committer for good; here every
// thread waits for those before it and for no one else. Not recursive. Sixteen bytes at most, for
// every tensor has one.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensorshelf {

class FairMutex {
 public:
  void lock() {
    const std::uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    for (std::uint32_t now; (now = serving_.load(std::memory_order_acquire)) != mine;) {
      serving_.wait(now, std::memory_order_relaxed);
    }
  }
  void unlock() {
    serving_.fetch_add(1, std::memory_order_release);
    serving_.notify_all();  // each knows its number; a system call only where one sleeps
  }

 private:
  std::atomic<std::uint32_t> next_ = 0;     // the number that the next one to come draws
  std::atomic<std::uint32_t> serving_ = 0;  // the number whose turn it is
};

}  // namespace tensorshelf
