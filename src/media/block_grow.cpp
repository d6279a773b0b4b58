#include "media/block_grow.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/size_text.hpp"
#include "media/block_os.hpp"
#include "media/file_system.hpp"

namespace tensorshelf {

Error full_error(const Growth& growth, const std::string& limit, std::string remedy) {
  return Error(Errc::full,
               fmt::format("{}: {} wanted ({} more than now), but {}", growth.path.string(),
                           size_text(growth.to_bytes),
                           size_text(growth.to_bytes - growth.from_bytes), limit),
               std::move(remedy));
}

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

int fill(const Growth& growth, StagingBuffers& staging) {
  const int allocated = allocate(growth);
  if (allocated == EOPNOTSUPP || allocated == ENOSYS) {
    // Without it the zeros themselves allocate.
    if (const int failed = set_length(growth.fd, growth.to_bytes); failed != 0) return failed;
  } else if (allocated != 0) {
    return allocated;
  }
  return staging.write_zeros(growth.from_bytes, growth.to_bytes - growth.from_bytes);
}

void sync(const Growth& growth, BlockBackend& backend, StagingBuffers& staging) {
  const int result = backend.sync();
  if (result >= 0) return;
  // Whatever its number, a failed flush is no full disk: staged data may be gone with it (I8).
  const FailedTransfer failed{"barrier (fdatasync)", 0, 0, result};
  staging.fail(failed);  // before its text, for which there may be no memory
  throw transfer_error(growth.path, failed);
}

// Writes what is there once more: harmless, whatever it is, and then it has blocks.
int rewrite(const Growth& room, BlockBackend& backend) {
  const PageMemory memory(kChunkBytes);
  for (std::uint64_t at = room.from_bytes / kPageBytes * kPageBytes; at < room.to_bytes;) {
    const auto bytes = memory.bytes().first(std::min(kChunkBytes, room.to_bytes - at));
    const auto size = static_cast<std::int64_t>(bytes.size());
    std::int64_t done = backend.read_now(at, bytes);
    if (done == size) done = backend.write_now(at, bytes);
    if (done != size) return done < 0 ? static_cast<int>(-done) : EIO;
    at += bytes.size();
  }
  return 0;
}

[[noreturn]] void throw_no_room(const Growth& growth, int failed, const std::string& free) {
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

}  // namespace

void grow_file(const Growth& growth, BlockBackend& backend, StagingBuffers& staging) {
  const int failed = fill(growth, staging);
  if (failed == 0) {
    try {
      return sync(growth, backend, staging);
    } catch (...) {
      set_length(growth.fd, growth.from_bytes);
      throw;
    }
  }
  const std::string free = size_text(free_bytes(growth.fd));
  set_length(growth.fd, growth.from_bytes);  // best effort: a longer file is only wasted room
  throw_no_room(growth, failed, free);
}

void fill_holes(const Growth& room, BlockBackend& backend, StagingBuffers& staging) {
  staging.drain(room.from_bytes, room.to_bytes - room.from_bytes);  // they fill holes themselves
  staging.check();
  bool filled = false;
  for (std::uint64_t at = room.from_bytes; at < room.to_bytes;) {
    const off_t hole = ::lseek(room.fd, static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0 || static_cast<std::uint64_t>(hole) >= room.to_bytes) break;
    const off_t data = ::lseek(room.fd, hole, SEEK_DATA);
    const std::uint64_t end =
        data < 0 ? room.to_bytes : std::min(room.to_bytes, static_cast<std::uint64_t>(data));
    const Growth part{room.fd, room.path, static_cast<std::uint64_t>(hole), end};
    int failed = allocate(part);
    if (failed == EOPNOTSUPP || failed == ENOSYS) failed = rewrite(part, backend);
    if (failed != 0) throw_no_room(part, failed, size_text(free_bytes(room.fd)));
    filled = true;
    at = end;
  }
  if (filled) sync(room, backend, staging);
}

}  // namespace tensorshelf
