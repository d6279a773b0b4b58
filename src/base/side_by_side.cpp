#include "base/side_by_side.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/signals_blocked.hpp"

namespace tensorshelf {
namespace {

// What the threads share.
class Round {
 public:
  Round(std::size_t parts, PartJob job) : parts_(parts), job_(job) {}

  void take_part() noexcept {
    try {
      for (std::size_t part = next_++; part < parts_; part = next_++) job_(part);
    } catch (...) {
      next_ = parts_;
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
  // When all have ended.
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const std::size_t parts_;
  const PartJob job_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first
};

class Helpers {
 public:
  Helpers() = default;
  ~Helpers() {
    for (unsigned i = 0; i < count_; ++i) threads_[i].join();
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  void start(unsigned count, Round& round) {
    const SignalsBlocked blocked;
    try {
      for (; count_ < count; ++count_) threads_[count_] = std::thread([&] { round.take_part(); });
    } catch (const std::exception&) {  // no more threads, or no memory: it takes longer
    }
  }

 private:
  std::array<std::thread, kMostThreads - 1> threads_;
  unsigned count_ = 0;
};

}  // namespace

void side_by_side(unsigned threads, std::size_t parts, PartJob job) {
  Round round(parts, job);
  {
    Helpers helpers;
    const std::size_t used = std::min<std::size_t>({threads, parts, kMostThreads});
    if (used > 1) helpers.start(static_cast<unsigned>(used - 1), round);
    round.take_part();
  }
  round.check();
}

unsigned default_threads() {
  constexpr int kMostMeasured = 2;
  cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof mine, &mine) != 0) return kMostMeasured;  // over a thousand
  return static_cast<unsigned>(std::clamp(CPU_COUNT(&mine), 1, kMostMeasured));
}

}  // namespace tensorshelf
