// Threads that assign while others persist, step by step of the medium, in an order that a seed
// chooses. Each version holds of each tensor one whole value, whose assignment began before
// persist() returned and was followed by none that had returned when persist() was called (I9); and
// the log of every such run is crashed like any other (sampled.hpp).
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string interleaved_writers();  // a play (scenarios.hpp)

}  // namespace tensorshelf::crash
