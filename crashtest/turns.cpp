#include "turns.hpp"

#include <unistd.h>

#include <algorithm>

#include "tests/asleep.hpp"

namespace tensorshelf::crash {

thread_local Turns::Member* Turns::self_ = nullptr;

void Turns::take_turn(Member& member) {
  member.state = waiting;
  member.state.wait(waiting);
  member.state = running;  // by itself: until then it is not asleep for a lock
}

void Turns::step() {
  if (self_ != nullptr) take_turn(*self_);
}

std::vector<Turns::Member*> Turns::settled() const {
  while (true) {
    std::vector<Member*> ready;
    bool all = true;
    for (const auto& member : members_) {
      const int state = member->state;
      if (state == waiting) ready.push_back(member.get());
      const bool runs = state == chosen || (state == running && !testing::asleep(member->thread));
      all = all && !runs;
    }
    const bool over = std::all_of(members_.begin(), members_.end(),
                                  [](const auto& member) { return member->state == finished; });
    if (over || (all && !ready.empty())) return ready;
    std::this_thread::yield();
  }
}

void Turns::run(const std::vector<std::function<void()>>& bodies, Rng& rng) {
  for (std::size_t i = 0; i < bodies.size(); ++i) members_.push_back(std::make_unique<Member>());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&member = *members_[i], &body = bodies[i]] {
      member.thread = ::gettid();
      self_ = &member;
      take_turn(member);
      try {
        body();
      } catch (...) {
        member.failure = std::current_exception();
      }
      member.state = finished;
    });
  }
  for (auto ready = settled(); !ready.empty(); ready = settled()) {
    Member& next = *ready[rng.below(ready.size())];
    next.state = chosen;
    next.state.notify_one();
  }
  threads.clear();
  for (const auto& member : members_) {
    if (member->failure) std::rethrow_exception(member->failure);
  }
}

}  // namespace tensorshelf::crash
