// Walks a log event by event and hands out each image that a power loss at that point could leave.
// The disk holds the image while the visitor runs, and is put back afterwards, whatever the visitor
// wrote to it.
//
// An image is visited once per `context` (what the oracle allows there): the legal images only grow
// between two barriers, so an event adds those in which something of its own landed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>

#include "disk.hpp"
#include "images.hpp"
#include "read_set.hpp"
#include "recording_medium.hpp"
#include "rng.hpp"

namespace tensorshelf::crash {

struct Counts {
  std::uint64_t crash_points = 0;
  std::uint64_t exhaustive_points = 0;  // of these: every subset of what recovery reads
  std::uint64_t images = 0;             // built
  std::uint64_t distinct = 0;           // not seen before under the same expectation
  std::uint64_t recoveries = 0;         // opened by the real recovery, at every depth
  std::uint64_t failures = 0;           // runs in which one call of the medium failed
  std::uint64_t deaths = 0;             // of the process alone, with another one after it
  std::uint64_t readers = 0;            // opened for reading while their writer went on

  Counts& operator+=(const Counts& other);
};

struct WalkOptions {
  Personality personality = Personality::pmem;
  bool trash = false;
  std::size_t cap = 64;        // images per crash point
  std::size_t from_event = 0;  // earlier events are taken as settled history
};

struct CrashPoint {
  std::size_t event = 0;  // the crash comes after this one
  const Window& window;
  const Image& image;
};

// Which expectation holds after an event; a change (an acknowledgement) makes all images new.
using ContextOf = std::function<std::uint64_t(std::size_t event)>;
// Fills `reads` with what it looked at.
using Visitor = std::function<void(const CrashPoint& point, ReadSet& reads)>;

void walk_images(Disk& disk, const Log& log, const WalkOptions& options, const ContextOf& context,
                 Rng& rng, Counts& counts, const Visitor& visit);

// One line per event around the crash: what it was and how much of it landed.
std::string describe(const Log& log, const CrashPoint& point);

}  // namespace tensorshelf::crash
