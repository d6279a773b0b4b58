// A drive that takes its time, in memory: copying goes at a given rate, and a flush takes as long
// as copying what was written since the last one, or always the same time. Both wait and compute
// nothing, so they overlap on any machine. For what a shelf does between the two; a figure on it
// says nothing about real drives.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "base/copy_hash.hpp"

namespace tensorshelf::bench {

class SimulatedDrive final : public Medium {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  SimulatedDrive(std::uint64_t size_bytes, double bytes_per_second,
                 std::optional<Nanoseconds> flush = {})
      : bytes_(size_bytes), rate_(bytes_per_second), flush_(flush) {}

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    const auto end = std::chrono::steady_clock::now() + time_for(bytes.size());
    std::memcpy(&bytes_[at], bytes.data(), bytes.size());
    const Ticket ticket{++sequence_, hash_bytes(bytes, seed)};
    std::this_thread::sleep_until(end);
    unflushed_ += bytes.size();
    return ticket;
  }
  void wait(const Ticket&) override {}
  void barrier() override {
    const std::uint64_t unflushed = unflushed_.exchange(0);
    std::this_thread::sleep_for(flush_.value_or(time_for(unflushed)));
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    std::memcpy(&bytes_[at], &word, sizeof word);
    unflushed_ += sizeof word;
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), &bytes_[at], bytes.size());
  }
  std::span<const std::byte> view(const Extent&) override { return {}; }
  std::uint64_t size() override { return room_; }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (size_bytes > bytes_.size()) {
      throw Error(Errc::full, "the simulated drive is full", "Make it larger.");
    }
    room_ = std::max(room_, size_bytes);
    return room_;
  }
  Promises promises() const override {
    Promises promises;
    promises.medium = "simulated";
    promises.detail = "memory";
    return promises;
  }

 private:
  Nanoseconds time_for(std::uint64_t bytes) const {
    return Nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) / rate_ * 1e9));
  }

  std::vector<std::byte> bytes_;
  double rate_;
  std::optional<Nanoseconds> flush_;
  std::uint64_t room_ = 0;
  std::atomic<std::uint64_t> sequence_ = 0;
  std::atomic<std::uint64_t> unflushed_ = 0;
};

}  // namespace tensorshelf::bench
