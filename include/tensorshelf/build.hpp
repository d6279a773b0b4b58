// Which optional libraries this build has, and what it does instead of each that it lacks.
#pragma once

#include <string>
#include <vector>

namespace tensorshelf {

// A library that a build may do without.
struct BuildPart {
  std::string name;  // "libpmem2", "liburing", "hwloc", "cuda"
  bool there = false;
  std::string without;  // a sentence: what a build that lacks it does otherwise
};

std::vector<BuildPart> build_parts();

}  // namespace tensorshelf
