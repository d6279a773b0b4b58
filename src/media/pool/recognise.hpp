// Which files are pools of libpmemobj, and which describe one.
#pragma once

#include <filesystem>

#include "media/file.hpp"

namespace tensorshelf {

// Whether a pool begins there, or a pool set is described: a text that names the pool's parts,
// which are other files. Ask the file alone, in every build.
bool is_pool(const ShelfFile& file);
bool is_pool_set(const ShelfFile& file);
bool is_pool_set(const std::filesystem::path& path);  // false where there is none to read

}  // namespace tensorshelf
