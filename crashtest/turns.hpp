// Threads that take turns: one at a time goes on, from one call of step() to the next, and the seed
// says which. So the interleaving of threads that really overlap is chosen, not met by chance. A
// thread that waits for a lock of another is left alone until the kernel has woken it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "rng.hpp"

namespace tensorshelf::crash {

class Turns {
 public:
  // In a thread of run(): waits for its next turn. In any other it does nothing.
  static void step();

  // Runs them all to their end; throws what the first of them threw.
  void run(const std::vector<std::function<void()>>& bodies, Rng& rng);

 private:
  enum State { waiting, chosen, running, finished };
  struct Member {
    std::atomic<int> state = running;
    std::atomic<int> thread = 0;
    std::exception_ptr failure;
  };
  static thread_local Member* self_;

  static void take_turn(Member& member);
  static std::optional<std::uint64_t> sleeps(const Member& member);
  // Those who wait for a turn, once nobody runs.
  std::vector<Member*> settled() const;

  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tensorshelf::crash
