#include "media/pool/parts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>

#include <tensorshelf/error.hpp>

#include "base/fault_guard.hpp"
#include "base/shell_quoted.hpp"
#include "media/file_system.hpp"
#include "media/pool/recognise.hpp"

namespace tensorshelf {
namespace {

constexpr std::string_view kSignature = "PMEM";  // of an object pool, and of no damaged header

// "-1" where it cannot be opened.
class OpenPart {
 public:
  explicit OpenPart(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  OpenPart(const OpenPart&) = delete;
  OpenPart& operator=(const OpenPart&) = delete;
  ~OpenPart() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Whether a file that is there begins otherwise than a pool: a device cannot be read, and a part
// without a header of its own (OPTION SINGLEHDR) has none.
bool lacks_signature(const std::filesystem::path& path) {
  const OpenPart part(path);
  std::array<char, 4096> begin{};
  const ssize_t got = ::pread(part.fd(), begin.data(), begin.size(), 0);
  return got == static_cast<ssize_t>(begin.size()) &&
         !std::string_view(begin.data(), begin.size()).starts_with(kSignature);
}

// A DevDAX device cannot be read, and is mapped by multiples of its alignment.
bool device_has_pool(const std::filesystem::path& path) {
  const OpenPart part(path);
  struct stat node {};
  if (::fstat(part.fd(), &node) != 0) return false;
  std::size_t align_bytes = 0;
  std::ifstream align(
      fmt::format("/sys/dev/char/{}:{}/align", major(node.st_rdev), minor(node.st_rdev)));
  if (!(align >> align_bytes)) align_bytes = 2 << 20;
  void* const map = ::mmap(nullptr, align_bytes, PROT_READ, MAP_SHARED, part.fd(), 0);
  if (map == MAP_FAILED) return false;
  arm_fault_guard();
  const std::span<const std::byte> begin(static_cast<const std::byte*>(map), kSignature.size());
  bool same = false;
  const bool readable = touch_mapped(
      begin, [&] { same = std::memcmp(begin.data(), kSignature.data(), kSignature.size()) == 0; });
  ::munmap(map, align_bytes);
  return same || !readable;
}

[[noreturn]] void throw_part(const ShelfFile& file, const PoolParts& parts, const PoolPart& part,
                             std::string_view what, int os_error) {
  throw Error(Errc::corrupt,
              fmt::format("{}: of replica {} the part {} {}", file.path().native(), part.replica,
                          part.path.native(), what),
              mending(file, parts), os_error);
}

}  // namespace

bool PoolParts::any_made() const {
  return std::ranges::any_of(parts, [](const PoolPart& part) {
    std::error_code ignored;
    if (std::filesystem::is_character_file(part.path, ignored)) return device_has_pool(part.path);
    return std::filesystem::exists(part.path, ignored);
  });
}

bool PoolParts::any_directory() const {
  return std::ranges::any_of(parts, [](const PoolPart& part) {
    std::error_code ignored;
    return std::filesystem::is_directory(part.path, ignored);
  });
}

PoolParts parts_of(const ShelfFile& file) {
  PoolParts found;
  if (!is_pool_set(file)) {
    found.parts.push_back({0, file.path()});
    return found;
  }
  std::ifstream set(fmt::format("/proc/self/fd/{}", file.fd()));
  for (std::string line; std::getline(set, line);) {
    std::istringstream words(line.substr(0, line.find('#')));  // words, and behind them a comment
    std::string first;
    std::string path;
    words >> first;
    if (first == "REPLICA") ++found.replicas;
    if (first.empty() || first.find_first_not_of("0123456789") == 0) {
      if (first != "AUTO") continue;  // "PMEMPOOLSET", "OPTION", a comment
    }
    if (words >> path) {
      found.parts.push_back({found.replicas - 1, path});
    }
  }
  return found;
}

void check_parts(const ShelfFile& file, const PoolParts& parts) {
  if (!is_pool_set(file)) return;
  std::set<unsigned> headed;
  for (const PoolPart& part : parts.parts) {
    struct stat node {};
    if (::stat(part.path.c_str(), &node) != 0) {
      if (errno == ENOENT) throw_part(file, parts, part, "is not there", ENOENT);
      continue;  // libpmemobj will say why
    }
    const bool first = headed.insert(part.replica).second;
    if (first && S_ISREG(node.st_mode) && lacks_signature(part.path)) {
      throw_part(file, parts, part, "does not begin as a pool does", 0);
    }
  }
}

std::string mending(const ShelfFile& file, const PoolParts& parts) {
  const std::string path = shell_quoted(file.path().native());
  if (parts.replicas > 1) {
    return fmt::format(
        "`pmempool sync {}` makes lost and damaged parts anew from a replica that is whole "
        "(`pmempool sync --bad-blocks` where blocks are bad)",
        path);
  }
  return fmt::format("`pmempool check -v {}` says more; bring the part back, or restore a copy",
                     path);
}

PoolPlace place_of(const PoolParts& parts, const ShelfFile& file) {
  PoolPlace place;
  std::set<std::string> systems;
  for (const PoolPart& part : parts.parts) {
    const OpenPart open(part.path);
    const int fd = file.unpublished() ? file.fd() : open.fd();  // it has no name yet
    struct stat node {};
    if (fd < 0 || ::fstat(fd, &node) != 0) {
      place.dax = place.tmpfs = false;  // nothing is known of it
      continue;
    }
    place.no_adr |= power_fail_domain(fd) == PowerFailDomain::none;
    if (S_ISCHR(node.st_mode)) {
      systems.insert("DevDAX");
      place.tmpfs = false;
      continue;
    }
    const FileSystem system = probe_file_system(fd);
    systems.insert(system.dax ? system.name + " with DAX" : system.name);
    place.dax &= system.dax;
    place.tmpfs &= system.tmpfs;
  }
  place.systems = fmt::format("{}", fmt::join(systems, " and "));
  return place;
}

}  // namespace tensorshelf
