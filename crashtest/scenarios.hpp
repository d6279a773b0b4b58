// What no image of a crash can show: leases, locks and threads that must wait, as short plays on
// the public face, each of which ends in the fact that an invariant promises.
#pragma once

#include <string>
#include <vector>

#include "scenario.hpp"

namespace tensorshelf::crash {

const std::vector<Scenario>& scenarios();

// Plays it; an exception is a violation too.
std::string violation_of(const Scenario& scenario);

}  // namespace tensorshelf::crash
