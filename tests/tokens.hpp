// Calls of a medium that wait until they are let through: a test goes on step by step beside them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "format/format.hpp"
#include "forwarding_medium.hpp"

namespace tensorshelf::testing {

class Tokens {
 public:
  void set(long left) {
    const std::lock_guard lock(mutex_);
    left_ = left;
    changed_.notify_all();
  }
  void let_all() { set(kAll); }
  void take() {
    std::unique_lock lock(mutex_);
    ++waiting;
    changed_.wait(lock, [&] { return left_ > 0; });
    --waiting;
    --left_;
  }
  std::atomic<int> waiting = 0;

 private:
  static constexpr long kAll = 1L << 60;

  std::mutex mutex_;
  std::condition_variable changed_;
  long left_ = kAll;
};

// Its barriers, or its reads of what is no metadata at fixed places, take one each.
class CountedMedium final : public ForwardingMedium {
 public:
  enum class What { barriers, reads };
  CountedMedium(std::shared_ptr<Medium> medium, Tokens& tokens, What what)
      : ForwardingMedium(std::move(medium)), tokens_(tokens), what_(what) {}
  void barrier() override {
    if (what_ == What::barriers) tokens_.take();
    ForwardingMedium::barrier();
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (what_ == What::reads && at >= format::kHeapAt) tokens_.take();
    ForwardingMedium::read(at, bytes);
  }

 private:
  Tokens& tokens_;
  What what_;
};

}  // namespace tensorshelf::testing
