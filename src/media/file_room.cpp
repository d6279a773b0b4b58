#include "media/file_room.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "base/size_text.hpp"
#include "media/file_system.hpp"

namespace tensorshelf {

Error full_error(const FileGrowth& growth, const std::string& limit, std::string remedy,
                 int os_error) {
  return Error(Errc::full,
               fmt::format("{}: {} wanted ({} more than now), but {}", growth.path.string(),
                           size_text(growth.to_bytes),
                           size_text(growth.to_bytes - growth.from_bytes), limit),
               std::move(remedy), os_error);
}

// In pieces, because tmpfs gives up a whole call for any signal, and a program with a timer would
// otherwise never get a large one through.
int allocate(const FileGrowth& growth, int flags) {
  constexpr std::uint64_t kPiece = 64 * 1024 * 1024;
  for (std::uint64_t at = growth.from_bytes; at < growth.to_bytes;) {
    const std::uint64_t length = std::min(kPiece, growth.to_bytes - at);
    if (::fallocate(growth.fd, flags, static_cast<off_t>(at), static_cast<off_t>(length)) == 0) {
      at += length;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int set_length(int fd, std::uint64_t size_bytes) {
  for (;;) {
    if (::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

void cut_file(int fd, const std::filesystem::path& path, std::uint64_t size_bytes) {
  struct stat node {};
  int error = ::fstat(fd, &node) == 0 ? 0 : errno;
  const bool longer = error == 0 && static_cast<std::uint64_t>(node.st_size) > size_bytes;
  if (longer) error = set_length(fd, size_bytes);
  if (error == 0) return;
  throw Error(Errc::io,
              fmt::format("{} cannot be cut to {}: {}", path.native(), size_text(size_bytes),
                          std::generic_category().message(error)),
              "Check the file system (dmesg); the shelf goes on, and takes as much room as before.",
              error);
}

void ask_for_room(const FileGrowth& growth) {
  if (exceeds_free_space(growth.fd, growth.to_bytes - growth.from_bytes)) {
    refuse_if_full(growth, ENOSPC);
  }
  if (growth.to_bytes > std::numeric_limits<off_t>::max()) refuse_if_full(growth, EFBIG);
}

void refuse_if_full(const FileGrowth& growth, int os_error) {
  switch (os_error) {
    case ENOSPC:
      throw full_error(growth,
                       fmt::format("{} has {} free there", probe_file_system(growth.fd).name,
                                   size_text(free_bytes(growth.fd))),
                       "free space there, or put the shelf on a larger file system", os_error);
    case EDQUOT:
      throw full_error(growth, "the disk quota is used up", "free space, or ask for a larger quota",
                       os_error);
    case EFBIG:
      throw full_error(growth, "files cannot be that long here",
                       "raise `ulimit -f`, or use a file system with longer files", os_error);
    default:
      return;
  }
}

}  // namespace tensorshelf
