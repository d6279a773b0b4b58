// What a store has done since it was opened, for Shelf::stats(). Each is any thread's.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensorshelf {

struct Counters {
  std::atomic<std::uint64_t> commits = 0;
  // Bytes: assigned, found unchanged, copied from slot to slot, of manifests and roots, and read.
  std::atomic<std::uint64_t> staged = 0, unchanged = 0, forward = 0, metadata = 0, read = 0;
  std::atomic<std::uint64_t> verified = 0, healed = 0;  // chunks
  std::atomic<std::uint64_t> nanoseconds = 0;           // that commits took
};

}  // namespace tensorshelf
