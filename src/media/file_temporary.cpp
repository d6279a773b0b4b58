#include "media/file_temporary.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"
#include "base/random_bytes.hpp"
#include "media/file_lock.hpp"
#include "media/path_errors.hpp"

namespace tensorshelf {
namespace {

namespace fs = std::filesystem;

// ".run.shelf." in front of "4211.0123456789abcdef.tmp". What a long name loses is in a checksum of
// all of it: two that begin alike do not share their temporaries.
std::string temporary_prefix(const fs::path& target) {
  constexpr std::size_t kSuffixRoom = 48;
  constexpr std::size_t kMost = kMaxFileName - kSuffixRoom;
  constexpr std::size_t kDigits = 16;
  const std::string name = target.filename().native();
  if (name.size() <= kMost) return fmt::format(".{}.", name);
  return fmt::format(".{}{:016x}.", name.substr(0, kMost - kDigits),
                     hash_bytes(std::as_bytes(std::span(name)), 0));
}

// What temporary_name() puts behind the prefix, and nothing that a person would:
// "4211.0123...ef.tmp".
bool is_temporary(std::string_view suffix) {
  const auto take = [&suffix](std::string_view allowed) {
    const std::size_t length = std::min(suffix.find_first_not_of(allowed), suffix.size());
    suffix.remove_prefix(length);
    return length;
  };
  constexpr std::size_t kMostDigits = 10;  // of a pid
  if (suffix.starts_with('0')) return false;
  const std::size_t digits = take("0123456789");
  if (digits == 0 || digits > kMostDigits || !suffix.starts_with('.')) return false;
  suffix.remove_prefix(1);
  return take("0123456789abcdef") == 16 && suffix == ".tmp";
}

}  // namespace

fs::path temporary_name(const fs::path& target, std::optional<std::uint32_t> stands_for) {
  std::uint64_t random = 0;
  random_bytes(std::as_writable_bytes(std::span(&random, 1)));
  if (stands_for) random = random >> 32 << 32 | *stands_for;
  return parent_of(target) /
         fmt::format("{}{}.{:016x}.tmp", temporary_prefix(target), ::getpid(), random);
}

bool stands_for(const fs::path& temporary, std::uint32_t which) {
  return temporary.native().ends_with(fmt::format("{:08x}.tmp", which));
}

std::vector<fs::path> temporaries_of(const fs::path& target) {
  const std::string prefix = temporary_prefix(target);
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent_of(target), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (name.starts_with(prefix) && is_temporary(name.substr(prefix.size()))) {
      found.push_back(entry->path());
    }
  }
  return found;
}

void remove_abandoned(const fs::path& target) {
  for (const fs::path& left : temporaries_of(target)) {
    const int fd = open_to_lock(left);
    if (fd < 0) continue;
    struct stat node {};
    try {
      struct stat named {};
      if (::fstat(fd, &node) == 0 && S_ISREG(node.st_mode) && try_lock(fd, left) &&
          ::lstat(left.c_str(), &named) == 0 && same_inode(node, named)) {
        ::unlink(left.c_str());
      }
    } catch (const Error&) {  // no locks here: then there is no telling, so it stays
    }
    ::close(fd);
  }
}

}  // namespace tensorshelf
