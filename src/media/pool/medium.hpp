// A pool of libpmemobj: one file, or a pool set, whose parts may lie on several devices and whose
// replicas mirror each other. Its size is fixed when it is made, as a device's is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "media/file.hpp"

namespace tensorshelf {

// Opens the pool; makes it where the file is new, or where the mode makes a shelf and no part of
// the set exists yet. Errc::not_a_shelf for any other file, and for another application's pool,
// which stays as it is but for what libpmemobj notes in its
// descriptor at each opening; Errc::not_found for a set without parts; Errc::busy where another
// process has it open, for reading too; Errc::corrupt where a part is lost or damaged.
std::unique_ptr<Medium> make_pool_medium(std::shared_ptr<ShelfFile> file,
                                         const OpenOptions& options, std::string note = {});
bool pool_supported();  // in this build

// The same with room in objects of this size at most, for tests; 0: as large as libpmemobj has.
std::unique_ptr<Medium> make_pool_medium_of(std::shared_ptr<ShelfFile> file,
                                            const OpenOptions& options, std::string note,
                                            std::uint64_t largest_object_bytes);

}  // namespace tensorshelf
