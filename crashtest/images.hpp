// Which images of a window are worth opening. All subsets where they are few; else a plan that
// covers the ways in which systems of this kind break, topped up with random subsets:
// everything, nothing, each unit alone, each unit missing, each write alone, each write missing,
// every prefix of the writes.
//
// Only units that recovery reads are branched on: what nobody reads cannot change what is found.
// The rest lands, stays away, or lands at random, so that leftovers of every kind lie about.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "read_set.hpp"
#include "rng.hpp"
#include "window.hpp"

namespace tensorshelf::crash {

struct ImagePlan {
  std::vector<Image> images;
  bool exhaustive = false;  // all subsets of the units that are read
};

struct PlanRequest {
  const Window& window;
  const ReadSet& reads;
  std::size_t must_land_from = 0;  // at least one unit from this index on lands; earlier crash
                                   // points had the images without (units().size(): no condition)
  std::size_t cap = 0;             // images at most
};

ImagePlan plan_images(const PlanRequest& request, Rng& rng);

}  // namespace tensorshelf::crash
