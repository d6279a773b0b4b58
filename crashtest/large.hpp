// More plays (scenarios.hpp): what takes a larger shelf, or another beginning, than a workload has.
#pragma once

#include <vector>

#include "scenario.hpp"

namespace tensorshelf::crash {

const std::vector<Scenario>& large_scenarios();

}  // namespace tensorshelf::crash
