// Which files a pool consists of, replica by replica, and what can be seen of them without opening
// the pool. Reads poolset(5) files as far as that needs; libpmemobj judges the rest.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "media/file.hpp"

namespace tensorshelf {

struct PoolPart {
  unsigned replica;  // 0 is the one that is read
  std::filesystem::path path;
};

struct PoolParts {
  std::vector<PoolPart> parts;
  unsigned replicas = 1;

  bool any_made() const;  // a file that is there, or a device on which a pool begins
  bool any_directory() const;
};

// The parts that a set names; of a pool file, itself.
PoolParts parts_of(const ShelfFile& file);

// Errc::corrupt for a part that is not there or does not begin as a pool's does, naming it, its
// replica and what mends it. Without a word where all begin well.
void check_parts(const ShelfFile& file, const PoolParts& parts);

// "`pmempool sync run.set`", or where there is nothing to sync from, to take a copy.
std::string mending(const ShelfFile& file, const PoolParts& parts);

// Where the parts lie, all of them alike or else the weakest.
struct PoolPlace {
  std::string systems;  // "tmpfs", "ext4, DAX and DevDAX"
  bool dax = true;      // every part
  bool tmpfs = true;    // every part
  bool no_adr = false;  // some part lies where nothing flushes at a power loss
};
// `file`: that names them, or is the one part, and has no name yet where it is being made.
PoolPlace place_of(const PoolParts& parts, const ShelfFile& file);

}  // namespace tensorshelf
