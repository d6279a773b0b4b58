// Damage to settled bytes, on top of a crash: bit rot, a page that reads as zeros, one that cannot
// be read (once, or until it is rewritten), and the same in two pages at once; a settled write that
// never landed, or landed elsewhere. In no case may bytes be wrong without an error.
//
//   damaged            where nothing was unsettled        after a crash with unsettled writes
//   one page           no change, but that a damaged      the same; or an error at open; or an
//                      tensor's reads throw corrupt       older version, degraded and whole
//   one write          the same                           not tried
//   pages of two       the same                           as above
//   different objects
//   both copies of     as in the column to the right      as above
//   one object
//
// For metadata has two copies, and a crash may have cost one of them already. Where nothing is
// lost, both copies are whole again after the opening, so that the other one may be damaged next;
// no tensor refuses but one whose own bytes were hit, and verify() lists it; readers open it too.
// In all cases the incarnation is a new one.
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
  std::uint64_t incarnation;          // spent
  bool settled;                       // nothing was unsettled: both copies of everything are whole
  const Log& log;                     // of all that was ever written, to the image's crash point
  std::size_t event;
  const Model* prepared;  // what the undamaged image shows as prepared, or null
};

// The disk holds the image, and is put back. Throws std::runtime_error on a violation.
void explore_faults(Disk& disk, const Behaviour& behaviour, const FaultScene& scene, Rng& rng,
                    Counts& counts);

}  // namespace tensorshelf::crash
