// A new shelf.
#pragma once

#include <tensorshelf/medium.hpp>

#include "store/places/split.hpp"

namespace tensorshelf {

// Makes an empty shelf at version 0, over whatever is there: that is surely no shelf any more
// before anything is written over it, and the superblocks go last (I15).
void format_shelf(Medium& medium, const Split& split);

}  // namespace tensorshelf
