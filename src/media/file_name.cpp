// Whether the name that a shelf's file had when it was opened still leads to it. Who removes the
// file of an open shelf, or renames another over it, takes nothing from the writer that a write or
// a barrier would notice: the versions go on, durably, into a file that nobody will find.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include <tensorshelf/error.hpp>

#include "base/shell_quoted.hpp"
#include "media/file.hpp"
#include "media/file_lock.hpp"

namespace tensorshelf {
namespace {

namespace fs = std::filesystem;

fs::path link_of(int fd) { return fmt::format("/proc/thread-self/fd/{}", fd); }

constexpr std::string_view kDeleted = " (deleted)";  // as the kernel says of the name it had

}  // namespace

// As the kernel knows it, so that neither a link that is turned elsewhere, nor chdir(), nor a
// descriptor's number that is used anew makes it another file's.
void ShelfFile::remember_name() {
  std::error_code error;
  name_ = fs::read_symlink(link_of(fd_), error);
  linked_ = !error && name_.native().ends_with(kDeleted);
  if (linked_) name_ = target_path_;
  if (error) name_ = fs::absolute(path_, error);
  struct stat held {};
  if (::fstat(fd_, &held) != 0) return name_.clear();  // nothing to compare it with
  device_ = held.st_dev;
  inode_ = held.st_ino;
}

void ShelfFile::check_name() const {
  if (name_.empty()) return;
  // Not stat(): where somebody has asked for a file's times, the kernel (6.13 and later) notes a
  // finer one at the next write, and a small commit then waits for the file system's journal too.
  struct statx named {};
  const bool found = ::statx(AT_FDCWD, name_.c_str(), 0, STATX_INO, &named) == 0;
  const bool ours = found && named.stx_ino == inode_ &&
                    ::makedev(named.stx_dev_major, named.stx_dev_minor) == device_;
  if (ours) return;
  struct stat held {};
  if (::fstat(fd_, &held) != 0) return;  // the commit will hear it too, and say more
  std::error_code ignored;
  const std::string own = fs::read_symlink(link_of(fd_), ignored).native();
  const bool deleted = own.ends_with(kDeleted) && !linked_;  // another name may lead to it
  if (held.st_nlink != 0 && !found && !deleted) return;  // moved aside, and nothing in its place

  const std::string last = deleted ? own.substr(0, own.size() - kDeleted.size()) : name_.native();
  const std::string what =
      found ? fmt::format("another file has taken the place of {}", name_.native())
            : fmt::format("{} was deleted", last);
  const std::string rest = " while the shelf was open: opening it would not find this version";
  if (!writable_) {
    throw Error(Errc::gone, what + rest,
                "what was read stays, and this version can be read until the shelf is closed; open "
                "it again for what lies there now",
                ENOENT);
  }
  if (held.st_nlink != 0 && !deleted) {
    throw Error(
        Errc::gone, fmt::format("{}{}; the shelf's own is {}", what, rest, own),
        "move it back and persist() again; or discard(), and copy the tensors, which are then "
        "those of its last version, into a new shelf",
        ENOENT);
  }
  throw Error(
      Errc::gone, what + rest,
      fmt::format("before this one is closed, discard(), and copy the tensors, which are then "
                  "those of its last version, into a new shelf; or "
                  "`cp /proc/{}/fd/{} {}`",
                  ::getpid(), fd_, shell_quoted(last + ".saved")),
      ENOENT);
}

}  // namespace tensorshelf
