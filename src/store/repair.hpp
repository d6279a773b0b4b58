// What recovery writes: second copies and the incarnation, and nothing that a valid root names
// (I6).
#pragma once

#include <cstdint>
#include <vector>

#include "store/load_root.hpp"
#include "store/root_scan.hpp"

namespace tensorshelf {

// Makes every second copy of what `root` stands on good again. Durable with the next barrier.
void repair_copies(Medium& medium, const format::Seeds& seeds, const ShelfHead& head,
                   const RootScan& scan, const format::Root& root, const LoadedRoot& loaded);

// Takes the next incarnation number, durably, and returns it. Its barrier covers the repairs.
std::uint64_t bump_incarnation(Medium& medium, const format::Seeds& seeds, const RootScan& scan);

// Makes an empty shelf at version 0 of what is now no shelf: the superblocks go last.
void format_shelf(Medium& medium);

}  // namespace tensorshelf
