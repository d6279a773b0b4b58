// A medium in memory with doors, behind which a thread that writes or flushes can be kept.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "store_bench.hpp"

namespace tensorshelf::testing {

// Where a thread can be kept for a while.
class Door {
 public:
  void shut() { shut_ = true; }
  void pass() {
    if (!shut_) return;
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !shut_; });
    --waiting_;
  }
  void await_someone() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    shut_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> shut_ = false;
  int waiting_ = 0;
};

struct Doors {
  Door read;  // on which every view and read waits
  Door write;
  Door barrier;
};

// Memory with doors in it.
class HeldMedium final : public SharedMedium {
 public:
  HeldMedium(std::shared_ptr<Medium> medium, std::shared_ptr<Doors> doors, bool mapped = true)
      : SharedMedium(std::move(medium), mapped), doors_(std::move(doors)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    doors_->write.pass();
    return SharedMedium::write(at, bytes, seed);
  }
  void barrier() override {
    doors_->barrier.pass();
    SharedMedium::barrier();
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (at >= format::kHeapAt) doors_->read.pass();
    SharedMedium::read(at, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    if (extent.at >= format::kHeapAt) doors_->read.pass();
    return SharedMedium::view(extent);
  }

 private:
  std::shared_ptr<Doors> doors_;
};

}  // namespace tensorshelf::testing
