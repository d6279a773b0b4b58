// How the slots of a shelf are shared between versions that stay and attempts on their way.
#pragma once

#include <tensorshelf/options.hpp>

#include "format/format.hpp"

namespace tensorshelf {

struct Split {
  unsigned keep = 0;
  unsigned in_flight = 1;
};

// The split of a new shelf. Errc::bad_argument where it has more slots than the format knows.
Split split_of(const OpenOptions& options);
// The split of one that is there: as it is stored where nothing is said. Errc::bad_argument for
// another sum.
Split split_of(const format::Root& root, const OpenOptions& options);

}  // namespace tensorshelf
