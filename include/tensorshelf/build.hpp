// What this build of the library was given, and what it lacks for want of it.
#pragma once

#include <string>
#include <vector>

namespace tensorshelf {

struct BuildInfo {
  bool libpmem2 = false;
  bool liburing = false;
  bool cuda = false;
  std::vector<std::string> lacks;  // a sentence for each that is missing: what works otherwise
};

BuildInfo build_info();

}  // namespace tensorshelf
