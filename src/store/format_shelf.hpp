// A new shelf.
#pragma once

#include <tensorshelf/medium.hpp>

#include "store/places/split.hpp"

namespace tensorshelf {

// Makes an empty shelf at version 0 of what is now no shelf: the superblocks go last.
void format_shelf(Medium& medium, const Split& split);

}  // namespace tensorshelf
