// Small writes through the kernel's page cache, beside large ones that go around it. A commit of a
// few pages then costs the device one trip for each barrier, in which the kernel sends them all,
// where each trip of their own would cost more than they do.
//
// The two ways agree, because the kernel sees to it: a read or write with O_DIRECT first writes
// back, and then drops, what the cache holds of its range; fdatasync covers both, and tells of a
// page that could not be written back to every descriptor that was open before.
#pragma once

#include <memory>

#include "media/block/backend.hpp"

namespace tensorshelf {

// `inner` with write_cached() and read_cached(), on a descriptor of its own of the same file; the
// shelf's lock stays with the first. `inner` itself, where no second one can be had.
std::unique_ptr<BlockBackend> make_cached_backend(std::unique_ptr<BlockBackend> inner, int fd);

}  // namespace tensorshelf
