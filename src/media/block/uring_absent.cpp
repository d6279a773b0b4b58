// io_uring in a build without it: says so.
#include "media/block/backend.hpp"

namespace tensorshelf {

std::unique_ptr<BlockBackend> make_uring_backend(int /*fd*/, const StagingShape& /*shape*/,
                                                 std::vector<std::string>& notes) {
  notes.push_back(
      "This build lacks io_uring (liburing): writing with pwrite, which is slower. Install "
      "liburing-dev and build again.");
  return nullptr;
}

std::unique_ptr<BlockBackend> make_read_backend(int fd) { return make_pwrite_backend(fd, {}); }

bool io_uring_supported() { return false; }

}  // namespace tensorshelf
