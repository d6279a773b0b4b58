// For the facts of the fault model: a disk of a few pages, and what a power loss may leave of it.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "recording_medium.hpp"
#include "walk.hpp"

namespace tensorshelf::crash {

inline constexpr std::uint64_t kToyBytes = 4 * kPageBytes;

// All contents that the first `size` bytes can have after a crash at the end of the log.
inline std::set<std::string> contents(const Log& log, Personality personality, bool trash,
                                      std::size_t size) {
  Disk disk(kToyBytes);
  std::set<std::string> all;
  Counts counts;
  Rng rng(3);
  walk_images(
      disk, log, {personality, trash, 1 << 16, log.events.size() - 1},
      [](std::size_t) { return 0; }, rng, counts,
      [&](const CrashPoint&, ReadSet& reads) {
        reads.add(0, size);
        const auto bytes = disk.bytes().first(std::min<std::uint64_t>(size, disk.size_bytes()));
        all.insert(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      });
  return all;
}

}  // namespace tensorshelf::crash
