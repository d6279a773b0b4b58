// Growing is fallocate, then on DAX one pass of zeros: fallocate alone leaves unwritten extents,
// and each would be converted by a journal commit inside the first store that touches it. On tmpfs
// the pages that fallocate makes are there already.
#include "media/pmem/room.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/size_text.hpp"
#include "media/file_room.hpp"

namespace tensorshelf {
namespace {

FileGrowth growth_of(const ShelfFile& file, const Extent& extent) {
  return {file.fd(), file.path(), extent.at, extent.end()};
}

int write_all(int fd, std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done < 0 && errno != EINTR) return errno;
    if (done == 0) return EIO;  // what is no error and no progress would never end
    if (done < 0) continue;
    at += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return 0;
}

int write_zeros(int fd, const Extent& extent) {
  const std::vector<std::byte> zeros(std::min(extent.end() - extent.at, kChunkBytes));
  for (std::uint64_t at = extent.at; at < extent.end(); at += zeros.size()) {
    const std::size_t size = std::min<std::uint64_t>(zeros.size(), extent.end() - at);
    if (const int error = write_all(fd, at, std::span(zeros).first(size)); error != 0) return error;
  }
  return 0;
}

[[noreturn]] void throw_failed(const FileGrowth& growth, int os_error) {
  refuse_if_full(growth, os_error);
  if (os_error == ENOMEM) {
    throw full_error(growth, "the memory that tmpfs may take is used up",
                     "free some, raise the limit (cgroup memory.max), or keep the shelf on a drive",
                     os_error);
  }
  throw Error(Errc::io,
              fmt::format("{} cannot grow by {}: {}", growth.path.native(),
                          size_text(growth.to_bytes - growth.from_bytes),
                          std::generic_category().message(os_error)),
              "check the device (dmesg)", os_error);
}

bool shares_blocks(int fd, std::uint64_t size_bytes) {
  constexpr unsigned kBatch = 64;
  std::vector<std::uint64_t> memory((sizeof(fiemap) + kBatch * sizeof(fiemap_extent)) / 8 + 1);
  auto* const map = reinterpret_cast<fiemap*>(memory.data());
  for (std::uint64_t at = 0; at < size_bytes;) {
    std::fill(memory.begin(), memory.end(), 0);
    map->fm_start = at;
    map->fm_length = size_bytes - at;
    map->fm_extent_count = kBatch;
    if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0 || map->fm_mapped_extents == 0) return false;
    for (unsigned i = 0; i < map->fm_mapped_extents; ++i) {
      const fiemap_extent& extent = map->fm_extents[i];
      if ((extent.fe_flags & FIEMAP_EXTENT_SHARED) != 0) return true;
      if ((extent.fe_flags & FIEMAP_EXTENT_LAST) != 0) return false;
      at = extent.fe_logical + extent.fe_length;
    }
  }
  return false;
}

}  // namespace

std::uint64_t grown_size(const ShelfFile& file, std::uint64_t wanted, const GrowthBounds& bounds) {
  const std::uint64_t least = round_up(wanted, kPageBytes);
  const std::string path = file.path().native();
  if (bounds.cap_bytes != 0 && least > bounds.cap_bytes) {
    throw Error(Errc::full,
                fmt::format("{} would grow to {}, and its cap is {}", path, size_text(least),
                            size_text(bounds.cap_bytes)),
                "open it with a larger size=, or erase tensors");
  }
  if (least > bounds.address_bytes) {
    throw Error(Errc::full,
                fmt::format("{} would grow to {}, and {} of addresses were reserved when it was "
                            "opened",
                            path, size_text(least), size_text(bounds.address_bytes)),
                "close the shelf and open it again");
  }
  std::uint64_t most = bounds.address_bytes;
  if (bounds.cap_bytes != 0) most = std::min(most, bounds.cap_bytes / kPageBytes * kPageBytes);
  return std::min(round_up(wanted, bounds.step_bytes), most);
}

void check_may_grow(const ShelfFile& file, std::uint64_t now, std::uint64_t wanted,
                    const GrowthBounds& bounds) {
  if (!file.writable()) {
    throw Error(Errc::read_only, fmt::format("{} is open for reading", file.path().native()),
                "open it with mode=\"a\"");
  }
  if (file.kind() == FileKind::dax_device) {
    throw Error(Errc::full,
                fmt::format("{} has {}, and {} are needed", file.path().native(), size_text(now),
                            size_text(wanted)),
                "erase tensors, or make a larger namespace (ndctl create-namespace)");
  }
  if (bounds.cap_bytes == 0) ask_for_room({file.fd(), file.path(), now, wanted});
  static_cast<void>(grown_size(file, wanted, bounds));
}

void add_room(const ShelfFile& file, const FileSystem& system, const Extent& extent) {
  const std::uint64_t old_size = file.size_bytes();
  const FileGrowth growth = growth_of(file, extent);
  ask_for_room(growth);
  int error = allocate(growth);
  if (error == EOPNOTSUPP && system.dax) error = 0;  // then the zeros allocate
  if (error == 0) {
    Extent zeroed = extent;
    if (!system.dax) zeroed.size_bytes = round_up(old_size, kPageBytes) - extent.at;
    error = write_zeros(file.fd(), zeroed);
  }
  if (error == 0) return sync_room(file);
  remove_room(file, old_size);
  throw_failed(growth, error);
}

void sync_room(const ShelfFile& file) {
  // I1: length and blocks, too, are durable before a root can name what lies in them.
  if (::fsync(file.fd()) == 0) return;
  const int failed = errno;  // no full disk, whatever its number (I8)
  throw Error(Errc::io,
              fmt::format("{} cannot be synced: {}", file.path().native(),
                          std::generic_category().message(failed)),
              "Close it, check the device (dmesg), and open it again.", failed);
}

void remove_room(const ShelfFile& file, std::uint64_t old_size_bytes) {
  static_cast<void>(set_length(file.fd(), old_size_bytes));  // else it is only wasted room
}

bool has_gaps(const ShelfFile& file, const FileSystem& system, std::uint64_t size_bytes) {
  if (system.dax) {
    const off_t hole = ::lseek(file.fd(), 0, SEEK_HOLE);
    if (hole >= 0 && static_cast<std::uint64_t>(hole) < size_bytes) return true;
    return shares_blocks(file.fd(), size_bytes);
  }
  // On tmpfs SEEK_HOLE would look at every page; the count of blocks is exact and free.
  struct stat node {};
  return ::fstat(file.fd(), &node) == 0 &&
         static_cast<std::uint64_t>(node.st_blocks) * 512 < size_bytes;
}

void allocate_holes(const ShelfFile& file, std::uint64_t size_bytes) {
  struct stat node {};
  const bool known = ::fstat(file.fd(), &node) == 0;
  const std::uint64_t blocks = known ? static_cast<std::uint64_t>(node.st_blocks) * 512 : 0;
  const FileGrowth missing{file.fd(), file.path(), std::min(blocks, size_bytes), size_bytes};
  if (known) ask_for_room(missing);
  const int error = allocate(growth_of(file, {0, size_bytes}));
  if (error != 0 && error != EOPNOTSUPP) throw_failed(missing, error);
  sync_room(file);
}

void write_bytes(const ShelfFile& file, std::uint64_t at, std::span<const std::byte> bytes) {
  const int error = write_all(file.fd(), at, bytes);
  if (error == 0) return;
  throw Error(Errc::io,
              fmt::format("{} bytes cannot be written to {} at {}: {}", bytes.size(),
                          file.path().native(), at, std::generic_category().message(error)),
              "Check what limits its memory (dmesg), and try again.", error);
}

void fill_gaps(const ShelfFile& file, const Extent& extent) {
  int error = allocate(growth_of(file, extent));
  if (error == 0) {
    error = allocate(growth_of(file, extent), FALLOC_FL_UNSHARE_RANGE);
    if (error == EOPNOTSUPP || error == EINVAL) error = 0;  // nothing is ever shared there
  }
  if (error == 0) return;
  throw Error(Errc::io,
              fmt::format("{} has holes and no blocks for them at {}: {}", file.path().native(),
                          extent.at, std::generic_category().message(error)),
              "free some space there; a copy by cp --sparse=never --reflink=never has no holes",
              error);
}

}  // namespace tensorshelf
