// For the facts of the fault model: a disk of a few pages, and what a power loss may leave of it.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "recording_medium.hpp"
#include "walk.hpp"

namespace tensorshelf::crash {

inline constexpr std::uint64_t kToyBytes = 4 * kPageBytes;

// All contents that the first `size` bytes can have after a crash at the end of the log, or those
// of a sample, where there are more than `max_images`.
inline std::set<std::string> contents(const Log& log, Personality personality, bool trash,
                                      std::size_t size, std::size_t max_images = 1 << 16) {
  Disk disk(kToyBytes);
  std::set<std::string> all;
  Counts counts;
  Rng rng(3);
  walk_images(
      disk, log, {personality, trash, max_images, log.events.size() - 1},
      [](std::size_t) { return 0; }, rng, counts,
      [&](const CrashPoint&, ReadSet& reads) {
        reads.add(0, size);
        const auto bytes = disk.bytes().first(std::min<std::uint64_t>(size, disk.size_bytes()));
        all.insert(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      });
  return all;
}

}  // namespace tensorshelf::crash
