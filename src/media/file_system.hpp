// What the operating system says about the place a shelf's file lies in: which file system, DAX or
// not, how much room, and how far its persistence reaches. Probed on the open file, not guessed
// from the path; asks, and changes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tensorshelf {

struct FileSystem {
  std::string name;               // "ext4", "tmpfs", ...; "an unknown file system" at worst
  std::string options;            // of its mount: "rw,data=ordered"; empty where unknown
  bool tmpfs = false;             // memory: outlives a process only
  bool dax = false;               // a MAP_SYNC mapping of the file is granted
  std::uint64_t total_bytes = 0;  // 0 where the file system has no limit of its own
};

FileSystem probe_file_system(int fd);

// Which of a mount's options makes fdatasync return before the drive has flushed, such as
// "nobarrier"; empty: none.
std::string_view option_without_flushes(std::string_view options);

// Room left for an ordinary user, in bytes.
std::uint64_t free_bytes(int fd);

// Whether that is surely too little, also for root, whom some file systems keep room back for.
// False where the file system does not say, or has no limit of its own.
bool exceeds_free_space(int fd, std::uint64_t needed_bytes);

// Whether the kernel knows the NVDIMM region below an FS-DAX file or a DevDAX device to be flushed
// by the platform at power loss (ADR or eADR). sysfs: where it is mounted.
enum class PowerFailDomain { unknown, none, memory_controller, cpu_cache };
PowerFailDomain power_fail_domain(int fd, const std::filesystem::path& sysfs = "/sys");

}  // namespace tensorshelf
