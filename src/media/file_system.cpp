// Probes through statfs, a MAP_SYNC mapping and sysfs. Assumes Linux >= 4.15; where /proc or /sys
// is missing, answers are "unknown" and nothing fails.
#include "media/file_system.hpp"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <tensorshelf/extent.hpp>

namespace tensorshelf {
namespace {

namespace fs = std::filesystem;

// The id of the mount that the file was opened through; empty where the kernel does not say.
std::string mount_id(int fd) {
  std::ifstream facts(fmt::format("/proc/thread-self/fdinfo/{}", fd));
  for (std::string field; facts >> field;) {
    if (field == "mnt_id:" && facts >> field) return field;
  }
  return {};
}

// Fills in type and options of the mount that holds the file. A line of mountinfo reads
// "36 25 254:0 / /mnt rw,noatime shared:1 - ext4 /dev/vda rw,nobarrier": id first, device third,
// type, source and the file system's own options after the dash. The device is looked at only where
// the mount is not among ours (a descriptor from another mount namespace).
void add_mount(int fd, const struct stat& node, FileSystem& found) {
  const std::string device = fmt::format("{}:{}", major(node.st_dev), minor(node.st_dev));
  const std::string mount = mount_id(fd);
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, field, source;
    fields >> id >> field >> field;
    const bool certain = id == mount;
    if (!certain && (field != device || !found.name.empty())) continue;
    while (fields >> field && field != "-") {
    }
    if (fields >> found.name >> source) fields >> found.options;
    if (certain) return;
  }
}

// MAP_SHARED_VALIDATE makes the kernel refuse a MAP_SYNC that it cannot keep, so a granted mapping
// is proof of DAX. Nothing is touched through it, hence it works on an empty file too.
bool grants_map_sync(int fd) {
  void* const probe = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (probe == MAP_FAILED) return false;
  ::munmap(probe, kPageBytes);
  return true;
}

}  // namespace

FileSystem probe_file_system(int fd) {
  FileSystem found;
  struct stat node {};
  if (::fstat(fd, &node) == 0) add_mount(fd, node, found);
  struct statfs system {};
  if (::fstatfs(fd, &system) == 0) {
    const auto unit = static_cast<std::uint64_t>(system.f_bsize);
    found.tmpfs = system.f_type == TMPFS_MAGIC;
    found.total_bytes = system.f_blocks * unit;
    if (found.name.empty() && found.tmpfs) found.name = "tmpfs";
    if (found.name.empty()) {
      found.name = fmt::format("a file system of type {:#x}",
                               static_cast<std::uint64_t>(system.f_type) & 0xffffffffU);
    }
  }
  if (found.name.empty()) found.name = "an unknown file system";
  found.dax = grants_map_sync(fd);
  return found;
}

std::string_view option_without_flushes(std::string_view options) {
  // ext4, btrfs, f2fs, ... and older XFS; ext3; reiserfs; f2fs; overlayfs, which then syncs
  // nothing.
  constexpr std::string_view kWithout[] = {"nobarrier", "barrier=0", "barrier=none",
                                           "fsync_mode=nobarrier", "volatile"};
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find(','));
    if (std::find(std::begin(kWithout), std::end(kWithout), option) != std::end(kWithout)) {
      return option;
    }
    options.remove_prefix(std::min(option.size() + 1, options.size()));
  }
  return {};
}

std::uint64_t free_bytes(int fd) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return 0;
  return system.f_bavail * static_cast<std::uint64_t>(system.f_bsize);
}

bool exceeds_free_space(int fd, std::uint64_t needed_bytes) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0 || system.f_blocks == 0) return false;
  const std::uint64_t blocks = ::geteuid() == 0 ? system.f_bfree : system.f_bavail;
  return needed_bytes > blocks * static_cast<std::uint64_t>(system.f_bsize);
}

PowerFailDomain power_fail_domain(int fd, const fs::path& sysfs) {
  struct stat node {};
  if (::fstat(fd, &node) != 0) return PowerFailDomain::unknown;
  const bool device = S_ISCHR(node.st_mode);
  const dev_t number = device ? node.st_rdev : node.st_dev;
  std::error_code error;
  fs::path place = fs::canonical(
      sysfs / fmt::format("dev/{}/{}:{}", device ? "char" : "block", major(number), minor(number)),
      error);
  if (error) return PowerFailDomain::unknown;  // a stacked or network file system
  while (place.has_relative_path() && !place.filename().native().starts_with("region")) {
    place = place.parent_path();
  }
  if (!place.has_relative_path()) return PowerFailDomain::unknown;
  // The kernel shows this file for a region only where the platform declared a domain.
  std::ifstream file(place / "persistence_domain");
  std::string domain;
  if (!(file >> domain)) return PowerFailDomain::none;
  if (domain == "cpu_cache") return PowerFailDomain::cpu_cache;
  if (domain == "memory_controller") return PowerFailDomain::memory_controller;
  return PowerFailDomain::none;
}

}  // namespace tensorshelf
