// Mapped persistent memory through libpmem2: FS-DAX file, DevDAX device, or a file on tmpfs (which
// survives a process crash only, and says so).
#pragma once

#include <memory>
#include <string>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "media/file.hpp"

namespace tensorshelf {

// Errc::not_dax for any other file. `note`, where there is one, says how it came to be chosen, and
// is one of its promises' notes.
std::unique_ptr<Medium> make_pmem_medium(std::shared_ptr<ShelfFile> file,
                                         const OpenOptions& options, std::string note = {});
bool pmem_supported();  // in this build

}  // namespace tensorshelf
