#include "media/block/grow.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "media/block/os.hpp"

namespace tensorshelf {

namespace {

int fill(const FileGrowth& growth, StagingBuffers& staging, bool with_zeros) {
  const int allocated = allocate(growth);
  if (allocated == EOPNOTSUPP || allocated == ENOSYS) {
    // Without it the zeros themselves allocate.
    if (const int failed = set_length(growth.fd, growth.to_bytes); failed != 0) return failed;
  } else if (allocated != 0) {
    return allocated;
  } else if (!with_zeros) {
    return 0;
  }
  return staging.write_zeros(growth.from_bytes, growth.to_bytes - growth.from_bytes);
}

void sync(const FileGrowth& growth, BlockBackend& backend, StagingBuffers& staging) {
  // I1: new room is durable before anything may rely on it.
  const int result = backend.sync();
  if (result >= 0) return;
  // Whatever its number, a failed flush is no full disk: staged data may be gone with it (I8).
  const FailedTransfer failed{"barrier (fdatasync)", 0, 0, result};
  staging.fail(failed);  // before its text, for which there may be no memory
  throw transfer_error(growth.path, failed);
}

std::uint64_t pages_done(std::int64_t done) {
  return done < 0 ? 0 : static_cast<std::uint64_t>(done) / kPageBytes * kPageBytes;
}

// Writes what is there once more: harmless, whatever it is, and then it has blocks. What comes
// short goes on at a page boundary.
int rewrite(const FileGrowth& room, BlockBackend& backend) {
  const PageMemory memory(kChunkBytes);
  const std::uint64_t end = round_up(room.to_bytes, kPageBytes);
  for (std::uint64_t at = room.from_bytes / kPageBytes * kPageBytes; at < end;) {
    const auto bytes = memory.bytes().first(std::min(kChunkBytes, end - at));
    std::int64_t done = backend.read_now(at, bytes);
    if (pages_done(done) > 0) done = backend.write_now(at, bytes.first(pages_done(done)));
    if (pages_done(done) == 0) return done < 0 ? static_cast<int>(-done) : EIO;
    at += pages_done(done);
  }
  return 0;
}

[[noreturn]] void throw_failed(const FileGrowth& growth, int os_error) {
  refuse_if_full(growth, os_error);
  throw transfer_error(growth.path, {"growing the file", growth.from_bytes,
                                     growth.to_bytes - growth.from_bytes, -os_error});
}

// (A block that was allocated and never written counts as a hole.)
std::vector<FileGrowth> holes_of(const FileGrowth& room) {
  std::vector<FileGrowth> holes;
  for (std::uint64_t at = room.from_bytes; at < room.to_bytes;) {
    const off_t hole = ::lseek(room.fd, static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0 || static_cast<std::uint64_t>(hole) >= room.to_bytes) break;
    const off_t data = ::lseek(room.fd, hole, SEEK_DATA);
    at = data < 0 ? room.to_bytes : std::min(room.to_bytes, static_cast<std::uint64_t>(data));
    holes.push_back({room.fd, room.path, static_cast<std::uint64_t>(hole), at});
  }
  return holes;
}

// An estimate that is never too high: blocks of the file that lie elsewhere count too.
std::uint64_t bytes_to_fill(const FileGrowth& room, const std::vector<FileGrowth>& holes) {
  std::uint64_t bytes = 0;
  for (const FileGrowth& hole : holes) bytes += hole.to_bytes - hole.from_bytes;
  struct stat status {};
  if (::fstat(room.fd, &status) != 0) return 0;
  const std::uint64_t there = static_cast<std::uint64_t>(status.st_blocks) * 512;
  return std::min(bytes, room.to_bytes - std::min(there, room.to_bytes));
}

}  // namespace

void grow_file(const FileGrowth& growth, BlockBackend& backend, StagingBuffers& staging,
               bool with_zeros) {
  ask_for_room(growth);
  const int failed = fill(growth, staging, with_zeros);
  if (failed == 0) {
    try {
      return sync(growth, backend, staging);
    } catch (...) {
      static_cast<void>(set_length(growth.fd, growth.from_bytes));  // as below
      throw;
    }
  }
  // Best effort: a longer file is only wasted room.
  static_cast<void>(set_length(growth.fd, growth.from_bytes));
  throw_failed(growth, failed);
}

void fill_holes(const FileGrowth& room, BlockBackend& backend, StagingBuffers& staging) {
  staging.drain(room.from_bytes, room.to_bytes - room.from_bytes);  // they fill holes themselves
  staging.check();
  const std::vector<FileGrowth> holes = holes_of(room);
  if (holes.empty()) return;
  const std::uint64_t needed = bytes_to_fill(room, holes);
  ask_for_room({room.fd, room.path, room.to_bytes - needed, room.to_bytes});
  for (const FileGrowth& hole : holes) {
    int failed = allocate(hole);
    if (failed == EOPNOTSUPP || failed == ENOSYS) failed = rewrite(hole, backend);
    if (failed != 0) throw_failed(hole, failed);
  }
  sync(room, backend, staging);
}

}  // namespace tensorshelf
