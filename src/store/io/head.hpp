// The superblocks: whether this is a shelf, which, and whether we may open it. Reads only.
#pragma once

#include <vector>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/io/page_io.hpp"

namespace tensorshelf {

struct ShelfHead {
  format::Superblock superblock = {};  // the good one
  std::vector<unsigned> bad_copies;    // of it
  bool writes_allowed = true;          // no ro_compat feature that we do not know
  Unread unread;
};

// Errors: not_a_shelf, truncated, newer_format, unsupported, corrupt.
ShelfHead read_head(Medium& medium);

}  // namespace tensorshelf
