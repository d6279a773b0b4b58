// Whether the name that a shelf's file had when it was opened still leads to it. Who removes the
// file of an open shelf, or renames another over it, takes nothing from the writer that a write or
// a barrier would notice: the versions go on, durably, into a file that nobody will find.
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include <tensorshelf/error.hpp>

#include "media/file.hpp"
#include "media/file_lock.hpp"

namespace tensorshelf {
namespace {

namespace fs = std::filesystem;

fs::path link_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// Renaming a file changes its ctime, so where that is as it was, its name need not be looked up: a
// commit to mapped memory takes no longer than that. The kernel counts it in ticks, in which more
// than one thing can happen, so a recent one says nothing.
constexpr std::int64_t kTicks = 200'000'000;
std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

// As the kernel knows it, so that neither a link that is turned elsewhere, nor chdir(), nor a
// descriptor's number that is used anew makes it another file's.
void ShelfFile::remember_name() {
  std::error_code error;
  name_ = fs::read_symlink(link_of(fd_), error);
  if (error) name_ = fs::absolute(path_, error);
}

void ShelfFile::check_name() const {
  if (name_.empty()) return;
  struct stat held {};
  struct stat named {};
  if (::fstat(fd_, &held) != 0) return;  // the commit will hear it too, and say more
  const std::int64_t changed = nanoseconds(held.st_ctim);
  if (held.st_nlink != 0 && changed == settled_change_) return;
  const bool other = ::stat(name_.c_str(), &named) == 0 && !same_inode(held, named);
  if (held.st_nlink != 0 && !other) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    if (nanoseconds(now) - changed > kTicks) settled_change_ = changed;
    return;
  }

  std::error_code ignored;
  const std::string own = fs::read_symlink(link_of(fd_), ignored).native();
  const std::string what =
      other ? fmt::format("another file has taken the place of {}", name_.native())
            : fmt::format("{} was deleted", name_.native());
  const std::string rest = " while the shelf was open: opening it would not find this version";
  if (held.st_nlink != 0 && !own.ends_with(" (deleted)")) {
    throw Error(Errc::gone, fmt::format("{}{}; the shelf's own is {}", what, rest, own),
                "move it back and persist() again, or copy the tensors into a new shelf", ENOENT);
  }
  throw Error(Errc::gone, what + rest,
              fmt::format("before this one is closed, copy the tensors into a new shelf; the last "
                          "version alone: `cp /proc/{}/fd/{} {}.saved`",
                          ::getpid(), fd_, name_.native()),
              ENOENT);
}

}  // namespace tensorshelf
