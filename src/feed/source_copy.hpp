// Copies of sources into the open attempt: eager ones together, a lazy one by itself, at a rate.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include <tensorshelf/pipeline.hpp>

#include "feed/save.hpp"

namespace tensorshelf {

// Keeps copies to a rate.
class Pace {
 public:
  Pace(Save& save, std::uint64_t bytes_per_second)
      : save_(save), rate_(bytes_per_second), begin_(Save::Clock::now()) {}

  bool limited() const { return rate_ != 0; }
  // By any thread; returns when so much may have been copied.
  void copied(std::uint64_t bytes) {
    if (!limited()) return;
    const double all = static_cast<double>(done_ += bytes);
    constexpr double kLongest = 1e9;  // seconds; a duration of the clock holds 9.2e9 at most
    const std::chrono::duration<double> due(std::min(all / static_cast<double>(rate_), kLongest));
    save_.rest_until(begin_ + std::chrono::duration_cast<Save::Clock::duration>(due));
  }

 private:
  Save& save_;
  const std::uint64_t rate_;
  const Save::Clock::time_point begin_;
  std::atomic<std::uint64_t> done_ = 0;
};

// Queues the copies of as many of the eager sources on a device as can be copied together. The host
// need not wait for the device: what it does there next comes behind them.
void queue_eager(Save& save);
// Copies the others, by as many of the pipeline's workers as pay.
void copy_eager(Save& save, const PipelineOptions& options);
void take_queued(Save& save, bool trace);  // assigns what they brought

void copy(const Source& source, Save& save, Pace& pace, const PipelineOptions& options);

}  // namespace tensorshelf
