// A writer that lives to be killed: eight tensors, all stamped with the step, one version per step.
// Owns the stamping, and the check that a reopened shelf holds one step and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf::killtest {

// Where the writer is, in memory that it shares with the one who kills it.
enum class Phase : std::uint32_t { opening, between_steps, assigning, persisting };
struct Pulse {
  std::atomic<Phase> phase = Phase::opening;
  std::atomic<std::uint64_t> acknowledged = 0;  // steps in this life; for pacing, not for judging
};
static_assert(std::atomic<Phase>::is_always_lock_free);

struct Writer {
  std::filesystem::path path;
  OpenOptions options;
  int acknowledge_fd = -1;  // gets each step, 8 bytes, after persist() returned
  Pulse* pulse = nullptr;
};

// Opens, and writes step after step until it is killed. Returns only by throwing.
[[noreturn]] void write_forever(const Writer& writer);

// Reopens as a writer would. Returns the step that all tensors hold, 0 for a shelf without any;
// throws std::runtime_error naming the tensor and the byte where they do not hold one step.
std::uint64_t reopen_and_check(const std::filesystem::path& path, const OpenOptions& options);

}  // namespace tensorshelf::killtest
