// Images at sampled crash points, for runs that are too large, or too many, to open every image
// of: each is opened by the real recovery, verified and read whole; in samples the recovery is
// crashed too, and work after it, to the depth that is asked for. By seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "disk.hpp"
#include "recording_medium.hpp"
#include "runner.hpp"

namespace tensorshelf::crash {

struct Sampling {
  Behaviour behaviour = {};
  std::uint64_t seed = 1;
  std::size_t images = 40;      // of the run itself
  unsigned depth = 1;           // crashes one after the other
  std::size_t deep_images = 4;  // of each recovery, and of each piece of work after one
};

// The disk is empty, and is put back. Throws std::runtime_error on a violation.
void sample_images(Disk& disk, const Recording& recording, const Sampling& sampling);

// Runs the program (workload.hpp) on an empty disk first.
void sample_program(Disk& disk, std::string_view program, const Sampling& sampling);

}  // namespace tensorshelf::crash
