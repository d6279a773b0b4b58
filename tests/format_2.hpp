// Shelves as releases made them whose format was 2: their roots name no leaves themselves. This one
// reads them and goes on with them, within that format.
#pragma once

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "raw_pages.hpp"

namespace tensorshelf::testing {

// Of a shelf of K slots that was made this moment, and never opened.
inline void make_format_2(Medium& medium, unsigned slot_count) {
  auto superblock = format::read_superblock(raw_at(medium, 0), 0).superblock.value();
  superblock.format_version = 2;
  const format::Seeds seeds(superblock.shelf_id);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const std::uint64_t at = format::root_at(0, copy);
    auto root = format::read_root(raw_at(medium, at), seeds, {0, copy, slot_count}).value();
    root.flags = 0;
    format::seal_root(root, seeds, copy);
    write_page(medium, at, format::as_page(root));
    write_page(medium, format::superblock_at(copy), format::encode_superblock(superblock, copy));
  }
  medium.barrier();
}

}  // namespace tensorshelf::testing
