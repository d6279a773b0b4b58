// Growing the regular file under a block medium, so that new room reads as zero, its blocks are
// allocated, and, with zeros, its extents are written: later flushes then convert none (each
// conversion makes an fdatasync a journal commit).
#pragma once

#include "media/block/backend.hpp"
#include "media/block/buffers.hpp"
#include "media/file_room.hpp"

namespace tensorshelf {

// From one page's edge to another's. Throws Errc::full where the file system or a quota ends, with
// the file as long as before; any other error likewise, as Errc::io. What cannot fit is refused
// before any of it is taken.
void grow_file(const FileGrowth& growth, BlockBackend& backend, StagingBuffers& staging,
               bool with_zeros = true);

// Puts blocks behind the holes of what is there already, and keeps every byte. A growth that
// crashed leaves a longer file, and where there is no fallocate one of holes, which are no room:
// the file system may be full when they are written to. Errors as above. The caller asks for no
// more than becomes room: somebody else may have made the file as long as he likes.
void fill_holes(const FileGrowth& room, BlockBackend& backend, StagingBuffers& staging);

}  // namespace tensorshelf
