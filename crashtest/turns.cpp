#include "turns.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

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

// How often it went to sleep so far, where it sleeps now: for a lock, as it does not wait for a
// turn.
std::optional<std::uint64_t> Turns::sleeps(const Member& member) {
  std::ifstream status("/proc/self/task/" + std::to_string(member.thread) + "/status");
  bool asleep = false;
  for (std::string key; status >> key; status.ignore(256, '\n')) {
    std::string value;
    if (key == "State:") asleep = status >> value && value == "S";
    if (key == "voluntary_ctxt_switches:" && status >> value && asleep) return std::stoull(value);
  }
  return std::nullopt;
}

// Of two looks one after the other that show the same: a single one takes time, in which a thread
// that runs may wake one that was looked at before, and be asleep itself when it is looked at.
std::vector<Turns::Member*> Turns::settled() const {
  std::vector<std::uint64_t> before;
  while (true) {
    std::vector<Member*> ready;
    std::vector<std::uint64_t> now;
    std::size_t over = 0;
    for (const auto& member : members_) {
      const int state = member->state;
      std::optional<std::uint64_t> slept;
      if (state == waiting) ready.push_back(member.get());
      over += state == finished;
      if (state == running) slept = sleeps(*member);
      if (state == chosen || (state == running && !slept)) break;
      now.push_back(state);
      now.push_back(slept.value_or(0));
    }
    if (over == members_.size()) return {};
    const bool all = now.size() == 2 * members_.size() && !ready.empty();
    if (all && now == before) return ready;
    before = all ? now : std::vector<std::uint64_t>();
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
