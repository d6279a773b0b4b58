#include "media/block/probe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// After the system's headers: linux/fs.h defines macros that they would trip over.
#include <linux/fs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include <tensorshelf/extent.hpp>

#include "media/block/os.hpp"
#include "media/file_room.hpp"
#include "media/file_system.hpp"

namespace tensorshelf {
namespace {

// Types of mounts whose barriers are another machine's or another process's word.
constexpr std::string_view kRemoteTypes[] = {"nfs",  "nfs4",   "cifs",     "smb3",     "9p",
                                             "ceph", "lustre", "virtiofs", "glusterfs"};

// Types of which one kernel alone has the blocks at a time: nobody comes past the lock on a file's
// inode.
constexpr std::string_view kLocalTypes[] = {"ext2", "ext3", "ext4",     "xfs", "btrfs",
                                            "f2fs", "zfs",  "bcachefs", "jfs", "tmpfs"};

bool is_local(const std::string& type) {
  return std::find(std::begin(kLocalTypes), std::end(kLocalTypes), type) != std::end(kLocalTypes);
}

bool is_remote(const std::string& type) {
  return type.starts_with("fuse") || std::find(std::begin(kRemoteTypes), std::end(kRemoteTypes),
                                               type) != std::end(kRemoteTypes);
}

// /sys/dev/block/MAJOR:MINOR/queue, or the whole disk's where that is a partition. Empty where the
// file system has no single device (btrfs, zfs, overlayfs, network).
std::filesystem::path queue_folder(dev_t device) {
  const auto folder = std::filesystem::path("/sys/dev/block") /
                      fmt::format("{}:{}", ::major(device), ::minor(device));
  std::error_code ignored;
  const auto real = std::filesystem::canonical(folder, ignored);
  if (ignored) return {};
  for (const auto& candidate : {real / "queue", real.parent_path() / "queue"}) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return {};
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::optional<std::uint64_t> number_in(const std::filesystem::path& path) {
  const std::string line = first_line(path);
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), value);
  if (parsed.ec != std::errc{}) return {};
  return value;
}

void add_device_facts(dev_t device, BlockFacts& facts) {
  const auto queue = queue_folder(device);
  if (queue.empty()) return;
  if (const auto bytes = number_in(queue / "logical_block_size")) facts.sector_bytes = *bytes;
  if (first_line(queue / "write_cache") == "write through") facts.volatile_cache = false;
  // A disk in memory flushes with success and loses all.
  const std::string disk = queue.parent_path().filename().string();
  if (disk.starts_with("zram") || disk.starts_with("ram")) {
    facts.place += fmt::format(", disk {} in memory", disk);
    facts.survives = Survives::process_crash;
    facts.in_memory = true;
  }
}

constexpr bool refuses(std::int64_t result) {
  return result == -EINVAL || result == -EOPNOTSUPP || result == -ENOTSUP;
}

std::string refusal(const char* call, std::int64_t result) {
  const std::string cause = result < 0 ? std::generic_category().message(static_cast<int>(-result))
                                       : fmt::format("{} of {} bytes", result, kPageBytes);
  return fmt::format("O_DIRECT refused by the file system ({}: {})", call, cause);
}

}  // namespace

BlockFacts probe_facts(int fd, FileKind kind) {
  BlockFacts facts;
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    facts.place = "file";
    return facts;
  }
  if (kind == FileKind::block_device) {
    facts.place = "block device";
    add_device_facts(status.st_rdev, facts);
    int sector_bytes = 0;
    if (::ioctl(fd, BLKSSZGET, &sector_bytes) == 0 && sector_bytes > 0) {
      facts.sector_bytes = static_cast<std::uint64_t>(sector_bytes);
    }
    return facts;
  }
  const FileSystem file_system = probe_file_system(fd);
  facts.place = fmt::format("file on {}", file_system.name);
  facts.one_machine = is_local(file_system.name);
  if (is_remote(file_system.name)) {
    facts.notes.push_back(
        fmt::format("On {} another machine or process decides what a barrier is worth. A local "
                    "drive keeps more promises.",
                    file_system.name));
  }
  if (file_system.tmpfs || file_system.name == "ramfs") {
    facts.survives = Survives::process_crash;
    facts.in_memory = true;
    facts.volatile_cache = false;
  } else {
    add_device_facts(status.st_dev, facts);
  }
  if (const auto option = option_without_flushes(file_system.options); !option.empty()) {
    facts.survives = Survives::process_crash;
    facts.notes.push_back(fmt::format(
        "The file system is mounted with {}: fdatasync returns before the drive has flushed, so a "
        "power loss can lose what was acknowledged. Mount it without that option.",
        option));
  }
  return facts;
}

ProbeCalls real_probe_calls() {
  return {
      .set_direct =
          [](int fd, bool direct) {
            const int flags = ::fcntl(fd, F_GETFL);
            if (flags < 0) return -errno;
            const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
            return ::fcntl(fd, F_SETFL, wanted) == 0 ? 0 : -errno;
          },
      .read = pread_once,
      .write = pwrite_once,
  };
}

// Errors that have nothing to do with O_DIRECT (a full disk, a failing drive) are not judged by
// either: the first real read or write meets them and says so.
std::string probe_direct(const ShelfFile& file, const ProbeCalls& calls) {
  // On the very description that holds the shelf's lock: see uring.cpp.
  if (const int result = calls.set_direct(file.fd(), true); result < 0) {
    return refusal("open", result);
  }
  if (file.size_bytes() < kPageBytes) return {};
  const PageMemory page(kPageBytes);
  const auto got = calls.read(file.fd(), 0, page.bytes());
  if (!refuses(got)) return {};
  calls.set_direct(file.fd(), false);
  return refusal("read", got);
}

std::string probe_direct_write(const ShelfFile& file, std::uint64_t at, const ProbeCalls& calls) {
  if (file.kind() != FileKind::regular) return {};
  const std::uint64_t size_bytes = file.size_bytes();
  const PageMemory page(kPageBytes);
  const std::uint64_t there = at < size_bytes ? std::min(size_bytes - at, kPageBytes) : 0;
  if (there != 0 && calls.read(file.fd(), at, page.bytes()) < static_cast<std::int64_t>(there)) {
    return {};  // what cannot be read whole must not be written back
  }
  const auto put = calls.write(file.fd(), at, page.bytes());
  if (size_bytes < at + kPageBytes) {
    static_cast<void>(set_length(file.fd(), size_bytes));
  }
  if (!refuses(put)) return {};
  calls.set_direct(file.fd(), false);
  return refusal("write", put);
}

}  // namespace tensorshelf
