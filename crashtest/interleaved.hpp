// Threads that assign while others persist, step by step of the medium, in an order that a seed
// chooses. Each version holds of each tensor one whole value, whose assignment began before
// persist() returned and was followed by none that had returned when persist() was called (I9); and
// the log of every such run is crashed like any other (sampled.hpp).
#pragma once

#include <string>

namespace tensorshelf::crash {

// Plays (scenarios.hpp). In the first each writer has a tensor of its own, and there is one
// committer: a seed leads to the same log every time. In the second they contend for tensors and
// for the gate, where the kernel says who of several is let in.
std::string interleaved_writers();
std::string contending_writers();

}  // namespace tensorshelf::crash
