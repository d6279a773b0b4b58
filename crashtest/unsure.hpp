// What a block medium that failed shows of what no barrier covered: of each sector what lay there
// before, or what was written. The next read may give the other, and so may any read of the next
// process, until the sector is written anew (tensorshelf/medium.hpp). A seed chooses; all and
// nothing are among it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "log.hpp"

namespace tensorshelf::crash {

class Unsure {
 public:
  Unsure() = default;

  enum class What { no_barrier_covered, no_barrier_will_cover };
  // At the end of the log, which began with an empty disk. The medium that failed is unsure of what
  // no barrier covered; those after it of what none will cover, for the kernel has all the rest.
  Unsure(const Log& log, std::uint64_t capacity_bytes, What what, std::uint64_t seed);

  bool empty() const { return sectors_.empty(); }
  void begin_process() { ++process_; }

  // `bytes`, as they are visible from `at` on, become what a read gives.
  void show(std::uint64_t at, std::span<std::byte> bytes);
  void settle(std::uint64_t at, std::uint64_t size_bytes);  // written anew

 private:
  static constexpr std::uint64_t kBytes = 512;
  struct Sector {
    std::array<std::byte, kBytes> before = {};
    std::uint64_t reads = 0;
  };
  bool shows_older(std::uint64_t at, Sector& sector) const;

  std::map<std::uint64_t, Sector> sectors_;  // by place
  std::uint64_t seed_ = 0;
  std::uint64_t process_ = 0;
};

}  // namespace tensorshelf::crash
