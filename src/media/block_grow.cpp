#include "media/block_grow.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/size_text.hpp"
#include "media/block_os.hpp"
#include "media/file_system.hpp"

namespace tensorshelf {
namespace {

int allocate(const Growth& growth) {
  for (;;) {
    if (::fallocate(growth.fd, 0, static_cast<off_t>(growth.from_bytes),
                    static_cast<off_t>(growth.to_bytes - growth.from_bytes)) == 0) {
      return 0;
    }
    if (errno != EINTR) return errno;
  }
}

int set_length(int fd, std::uint64_t size_bytes) {
  for (;;) {
    if (::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

int fill(const Growth& growth, BlockBackend& backend, StagingBuffers& staging) {
  const int allocated = allocate(growth);
  if (allocated == EOPNOTSUPP || allocated == ENOSYS) {
    // Without it the zeros themselves allocate.
    if (const int failed = set_length(growth.fd, growth.to_bytes); failed != 0) return failed;
  } else if (allocated != 0) {
    return allocated;
  }
  const int failed = staging.write_zeros(growth.from_bytes, growth.to_bytes - growth.from_bytes);
  if (failed != 0) return failed;
  if (const int result = backend.sync(); result < 0) {
    // Whatever its number, a failed flush is no full disk: staged data may be gone with it (I8).
    const Error error = transfer_error(growth.path, {"barrier (fdatasync)", 0, 0, result});
    staging.fail(error);
    set_length(growth.fd, growth.from_bytes);
    throw Error(error);
  }
  return 0;
}

}  // namespace

Error full_error(const Growth& growth, const std::string& limit, std::string remedy) {
  return Error(Errc::full,
               fmt::format("{}: {} wanted ({} more than now), but {}", growth.path.string(),
                           size_text(growth.to_bytes),
                           size_text(growth.to_bytes - growth.from_bytes), limit),
               std::move(remedy));
}

void grow_file(const Growth& growth, BlockBackend& backend, StagingBuffers& staging) {
  const int failed = fill(growth, backend, staging);
  if (failed == 0) return;
  const std::string free = size_text(free_bytes(growth.fd));
  set_length(growth.fd, growth.from_bytes);  // best effort: a longer file is only wasted room
  switch (failed) {
    case ENOSPC:
      throw full_error(growth, fmt::format("the file system has {} free", free),
                       "free space there, or put the shelf on a larger file system");
    case EDQUOT:
      throw full_error(growth, "the disk quota is used up",
                       "free space, or ask for a larger quota");
    case EFBIG:
      throw full_error(growth, "files cannot be that long here",
                       "raise `ulimit -f`, or use a file system with longer files");
    default:
      throw transfer_error(growth.path, {"growing the file", growth.from_bytes,
                                         growth.to_bytes - growth.from_bytes, -failed});
  }
}

}  // namespace tensorshelf
