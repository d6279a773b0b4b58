// A new shelf.
#pragma once

#include <tensorshelf/medium.hpp>

namespace tensorshelf {

// Makes an empty shelf at version 0 of what is now no shelf: the superblocks go last.
void format_shelf(Medium& medium, unsigned keep, unsigned in_flight);

}  // namespace tensorshelf
