// Pins without a file: of all who open what they share.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "forwarding_medium.hpp"
#include "media/memory/medium.hpp"
#include "media/pins.hpp"

namespace tensorshelf::testing {

struct SharedPins {
  std::mutex mutex;
  std::multiset<std::uint64_t> versions;
  std::size_t all = 0;  // who holds all of them
  std::size_t firm = 0;
  std::size_t outrunning = 0;
  std::size_t refusals = 0;  // of outrunning, so many, each by a firm hold that is gone at once
};

class MemoryPins : public PinTable {
 public:
  explicit MemoryPins(std::shared_ptr<SharedPins> shared) : shared_(std::move(shared)) {}
  ~MemoryPins() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->outrunning -= outruns_;
  }

  std::chrono::steady_clock::time_point appear() override { return {}; }
  void take(std::uint64_t version) override {
    const std::lock_guard lock(shared_->mutex);
    shared_->versions.insert(version);
  }
  void drop(std::uint64_t version) noexcept override {
    const std::lock_guard lock(shared_->mutex);
    shared_->versions.erase(shared_->versions.find(version));
  }
  void take_all() override {
    const std::lock_guard lock(shared_->mutex);
    ++shared_->all;
  }
  void drop_all() noexcept override {
    const std::lock_guard lock(shared_->mutex);
    --shared_->all;
  }
  bool take_firm() override {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->outrunning > 0) return false;
    ++shared_->firm;
    return true;
  }
  void drop_firm() noexcept override {
    const std::lock_guard lock(shared_->mutex);
    --shared_->firm;
  }
  bool is_outrun() const noexcept override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->outrunning > 0;
  }
  bool any_readers() noexcept override {
    const std::lock_guard lock(shared_->mutex);
    return !shared_->versions.empty() || shared_->all > 0;
  }
  std::optional<std::uint64_t> find(std::uint64_t first,
                                    std::uint64_t last) const noexcept override {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->all > 0) return first;
    const auto there = shared_->versions.lower_bound(first);
    if (there == shared_->versions.end() || *there > last) return std::nullopt;
    return *there;
  }
  PinHolder holder(std::uint64_t) const noexcept override { return {}; }
  bool outrun() override {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->firm > 0) return false;
    if (shared_->refusals > 0) {
      --shared_->refusals;
      return false;
    }
    shared_->outrunning += !std::exchange(outruns_, true);
    return true;
  }

 private:
  std::shared_ptr<SharedPins> shared_;
  bool outruns_ = false;
};

inline std::shared_ptr<Medium> memory_of(std::uint64_t size_bytes) {
  return make_memory_medium(0, size_bytes);
}

// A medium whose openings share pins.
class PinnedMedium final : public LendingMedium {
 public:
  PinnedMedium(std::shared_ptr<Medium> inner, std::shared_ptr<SharedPins> shared)
      : LendingMedium(std::move(inner)), pins_(std::move(shared)) {}
  PinTable* pins() override { return &pins_; }

 private:
  MemoryPins pins_;
};

}  // namespace tensorshelf::testing
