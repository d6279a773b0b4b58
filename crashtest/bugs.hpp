// The planted bugs by name: those in the store (base/planted.hpp) and those below the seam.
#pragma once

#include <string_view>
#include <vector>

#include "base/planted.hpp"
#include "recording_medium.hpp"

namespace tensorshelf::crash {

struct PlantedBug {
  std::string_view name;
  std::string_view invariant;  // that it breaks, by number in docs/design.md; "-": none has one
  Bug in_store = Bug::none;
  MediumBugs in_medium = {};
  std::string_view scenario = {};  // that shows it, where no image of a crash does
  std::string_view workload = {};  // that shows it, where few do
};

const std::vector<PlantedBug>& planted_bugs();

}  // namespace tensorshelf::crash
