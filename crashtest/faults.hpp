// Damage to settled bytes, on top of a crash: bit rot, a page that reads as zeros, and the same in
// two pages at once. In no case may bytes be wrong without an error.
//
//   damaged     where nothing was unsettled          after a crash with unsettled writes
//   one page    no change, but that a damaged        the same; or an error at open; or an older
//               tensor's reads throw Errc::corrupt   version, reported as degraded and whole
//   two pages   as in the column to the right
//
// For metadata has two copies, and a crash may have cost one of them already.
#pragma once

#include <vector>

#include "disk.hpp"
#include "model.hpp"
#include "recording_medium.hpp"
#include "rng.hpp"
#include "walk.hpp"

namespace tensorshelf::crash {

struct FaultScene {
  const std::vector<Model>& history;  // the versions that ever were
  std::size_t acked;                  // of these, the one acknowledged,
  std::size_t in_flight;              // and the one in flight, if another
  const Model& found;                 // what the undamaged image shows
  bool settled;                       // nothing was unsettled: both copies of everything are whole
};

// The disk holds the image, and is put back. Throws std::runtime_error on a violation.
void explore_faults(Disk& disk, const Behaviour& behaviour, const FaultScene& scene, Rng& rng,
                    Counts& counts);

}  // namespace tensorshelf::crash
