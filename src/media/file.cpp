// Opening, locking and publishing the file or device of a shelf. The order matters twice:
//
//   open     stat -> open -> lock -> stat again: the path must still name the locked inode, or a
//            writer could lock a file that was just replaced and write where nobody looks (I10).
//   publish  open the directory -> fsync the file -> rename -> fsync the directory: the name never
//            leads to less than the whole file, and the old file keeps its name until that one
//            step.
//
// Whoever gave a file its name may have been killed before that was durable: an opening for writing
// syncs the directory too, before anything is acknowledged (I12).
#include "media/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "media/file_lock.hpp"
#include "media/file_temporary.hpp"
#include "media/path_errors.hpp"

namespace tensorshelf {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 100;  // each lost to another process that replaced the file meanwhile

bool is_dax_device(const struct stat& node) {
  std::error_code error;
  const fs::path subsystem = fs::read_symlink(
      fmt::format("/sys/dev/char/{}:{}/subsystem", major(node.st_rdev), minor(node.st_rdev)),
      error);
  return !error && subsystem.filename() == "dax";
}

FileKind kind_of(const fs::path& path, const struct stat& node) {
  if (S_ISREG(node.st_mode)) return FileKind::regular;
  if (S_ISBLK(node.st_mode)) return FileKind::block_device;
  if (S_ISCHR(node.st_mode) && is_dax_device(node)) return FileKind::dax_device;
  if (S_ISDIR(node.st_mode)) throw_path_error(path, "opened", EISDIR);
  const char* what = S_ISFIFO(node.st_mode)   ? "a FIFO"
                     : S_ISSOCK(node.st_mode) ? "a socket"
                                              : "a character device, and not a DAX one";
  throw Error(Errc::not_a_shelf, fmt::format("{} is {}", path.native(), what),
              "name a file, a block device or a DevDAX device");
}

bool lies_in_proc(const fs::path& path) {
  struct statfs system {};
  return ::statfs(parent_of(path).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

// Where the name leads: links followed, also to a file that does not exist yet. A link of /proc may
// lead to a file without a name, and reads as if it had one.
fs::path follow_links(const fs::path& path, bool* through_proc = nullptr) {
  fs::path place = path;
  for (int hops = 0; hops < 40; ++hops) {
    std::error_code error;
    const fs::path next = fs::read_symlink(place, error);
    if (error) return place;
    if (through_proc != nullptr && lies_in_proc(place)) *through_proc = true;
    place = next.is_absolute() ? next : place.parent_path() / next;
  }
  throw_path_error(path, "created", ELOOP);
}

fs::path whole_path(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error);
  if (!error) return whole;
  throw Error(Errc::not_found,
              fmt::format("{} is relative, and the working directory is gone", path.native()),
              "Give an absolute path, or change to a directory that exists.", error.value());
}

void sync_or_throw(int fd, const fs::path& path) {
  if (::fsync(fd) == 0) return;  // I2: behind the name there is never less than version 0
  const int error = errno;
  throw Error(
      Errc::io,
      fmt::format("{} cannot be synced: {}", path.native(), std::generic_category().message(error)),
      "check the device (dmesg), then try again", error);
}

// Opened before a name in it changes: what may refuse that, refuses while nothing has changed.
class Directory {
 public:
  enum class Unreadable { refused, let_be };
  explicit Directory(fs::path path, Unreadable unreadable = Unreadable::refused)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // ENOENT: it was moved meanwhile, and what is in it with it.
    const bool let_be = unreadable == Unreadable::let_be && (errno == EACCES || errno == ENOENT);
    if (fd_ < 0 && !let_be) throw_path_error(path_, kForReading, errno);
  }
  ~Directory() {
    if (fd_ >= 0) ::close(fd_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  void sync() const {
    if (fd_ < 0 || ::fsync(fd_) == 0) return;  // I2, I12: the name that is told of stays
    // EINVAL: a file system (some of FUSE's) whose directories have nothing to sync.
    if (errno == EINVAL) return;
    const int error = errno;
    throw Error(Errc::io,
                fmt::format("{} cannot be synced: {}", path_.native(),
                            std::generic_category().message(error)),
                "check the device (dmesg): a name in it may not outlive a power loss", error);
  }

 private:
  fs::path path_;
  int fd_;
};

// 0, or an errno; EEXIST where there is a file of that name.
int rename_no_replace(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
  if (::link(from.c_str(), to.c_str()) != 0) return errno;  // NFS, older kernels
  ::unlink(from.c_str());
  return 0;
}

[[noreturn]] void throw_exists(const fs::path& path) {
  throw Error(Errc::exists, fmt::format("there is a file at {} already", path.native()),
              "open it with mode=\"a\", or replace it with mode=\"w\"", EEXIST);
}

// Whoever made the old file chose who may read it. Only root may give files away, and the group
// may be one that we are not in: then ours gets no more than all others have.
void take_over_permissions(const ShelfFile& file, const struct stat& old) {
  struct stat fresh {};
  mode_t mode = old.st_mode & 0777;
  if (::fstat(file.fd(), &fresh) == 0 && fresh.st_uid == old.st_uid && fresh.st_gid == old.st_gid &&
      (fresh.st_mode & 0777) == mode) {
    return;
  }
  if (::fchown(file.fd(), old.st_uid, old.st_gid) != 0 &&
      ::fchown(file.fd(), static_cast<uid_t>(-1), old.st_gid) != 0) {
    mode &= ~070U | (mode & 07U) << 3;
  }
  static_cast<void>(
      ::fchmod(file.fd(), mode));  // else it keeps those of a new file, which are fewer
  sync_or_throw(file.fd(), file.path());
}

struct Replacement {
  const ShelfFile& file;
  const fs::path& from;
  const fs::path& to;
  const fs::path& shown;  // as the user named `to`
  bool only_empty;        // Errc::exists where there is a byte in it
  const std::function<void()>& look_again;
};

// Renames over the file at `to`, whose lock it holds meanwhile: a writer that opens the old file
// either finds it locked, or sees after locking that the path names another inode. False: the file
// at `to` went or changed, look again.
bool replace_unlocked(const Replacement& replacement) {
  const auto& [file, from, to, shown, only_empty, look_again] = replacement;
  const int fd = open_to_lock(to);
  if (fd < 0 && errno == ENOENT) {
    const int error = rename_no_replace(from, to);
    if (error != 0 && error != EEXIST) throw_path_error(shown, "created", error);
    return error == 0;
  }
  if (fd < 0) throw_path_error(shown, "replaced", errno);
  const std::unique_ptr<const int, void (*)(const int*)> closer(
      &fd, [](const int* owned) { ::close(*owned); });
  struct stat node {};
  if (::fstat(fd, &node) != 0) throw_path_error(shown, "replaced", errno);
  if (kind_of(shown, node) != FileKind::regular) {
    throw Error(Errc::not_a_shelf, fmt::format("{} is a device, not a file", shown.native()),
                "open it with mode=\"w\"");
  }
  if (!try_lock(fd, shown)) throw_busy(shown, node);
  struct stat now {};
  if (::lstat(to.c_str(), &now) != 0 || !same_inode(node, now)) return false;
  if (only_empty && now.st_size != 0) throw_exists(shown);  // seen under the lock: ours to lose
  if (look_again) look_again();
  take_over_permissions(file, now);
  if (planted(Bug::replaced_in_two_steps)) ::unlink(to.c_str());
  if (::rename(from.c_str(), to.c_str()) != 0) throw_path_error(shown, "replaced", errno);
  return true;
}

}  // namespace

ShelfFile::ShelfFile(std::filesystem::path path, int fd, FileKind kind, bool writable)
    : path_(std::move(path)), fd_(fd), kind_(kind), writable_(writable) {}

ShelfFile::ShelfFile(ShelfFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, {})),
      target_path_(std::move(other.target_path_)),
      name_(std::move(other.name_)),
      linked_(other.linked_),
      device_(other.device_),
      inode_(other.inode_),
      creator_(other.creator_),
      fd_(std::exchange(other.fd_, -1)),
      kind_(other.kind_),
      writable_(other.writable_) {}

ShelfFile::~ShelfFile() {
  // A forked child destroys what it inherited, but the file is its parent's. Neither does it
  // unlock: close() drops the lock with the last descriptor, LOCK_UN would drop the parent's.
  if (!temporary_path_.empty() && creator_ == ::getpid()) ::unlink(temporary_path_.c_str());
  if (planted(Bug::child_unlocks)) ::flock(fd_, LOCK_UN);
  if (fd_ >= 0) ::close(fd_);
}

ShelfFile ShelfFile::open(const std::filesystem::path& path, bool writable) {
  if (path.empty()) throw Error(Errc::bad_argument, "the path is empty", "name a file or device");
  const std::string_view verb = writable ? kForWriting : kForReading;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    struct stat named {};
    if (::stat(path.c_str(), &named) != 0) throw_path_error(path, verb, errno);
    const FileKind kind = kind_of(path, named);  // before open(): a FIFO's has effects

    int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    // On a block device O_EXCL refuses one that is mounted or part of another.
    if (writable && kind == FileKind::block_device) flags |= O_EXCL;
    const int fd = ::open(path.c_str(), flags);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0 && errno == EBUSY && kind == FileKind::block_device) {
      throw Error(Errc::busy, fmt::format("{} is mounted or in use", path.native()),
                  "unmount it or stop what uses it; a file system on it would be erased", EBUSY);
    }
    if (fd < 0) throw_path_error(path, verb, errno);
    ShelfFile file(path, fd, kind, writable);
    struct stat opened {};
    if (::fstat(fd, &opened) != 0) throw_path_error(path, "opened", errno);
    if (!same_inode(named, opened)) continue;
    if (::fcntl(fd, F_SETFL, flags & ~(O_NONBLOCK | O_EXCL)) != 0) {  // io_uring gave EAGAIN
      throw_path_error(path, "opened", errno);
    }
    if (writable) {
      if (!planted(Bug::lock_not_taken) && !try_lock(fd, path)) throw_busy(path, opened);
      if (::stat(path.c_str(), &named) != 0 || !same_inode(named, opened)) continue;
    }
    if (kind == FileKind::regular && named.st_nlink > 0) file.remember_name();
    if (writable && !planted(Bug::found_name_unsynced)) file.sync_name();
    return file;
  }
  throw Error(Errc::busy, fmt::format("{} is being replaced again and again", path.native()),
              "stop the process that does so");
}

void give_name(const fs::path& temporary, const fs::path& target) {
  const Directory directory(parent_of(target));
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    throw_path_error(target, "replaced", errno);
  }
  directory.sync();
}

// I12. Where the directory may not be read nobody can.
void ShelfFile::sync_name() const {
  if (!name_.empty()) Directory(parent_of(name_), Directory::Unreadable::let_be).sync();
}

ShelfFile ShelfFile::create(const std::filesystem::path& path,
                            std::optional<std::uint32_t> stands_for) {
  if (path.empty()) throw Error(Errc::bad_argument, "the path is empty", "name a file");
  const fs::path target = whole_path(follow_links(path));  // wherever chdir() leads by then
  if (!target.has_filename()) throw_path_error(path, "created", EISDIR);
  mode_t mode = 0644;
  struct stat node {};
  if (::lstat(target.c_str(), &node) == 0) {
    if (kind_of(path, node) != FileKind::regular) {
      throw Error(Errc::not_a_shelf, fmt::format("{} is a device, not a file", path.native()),
                  "open it with mode=\"w\"");
    }
    mode &= node.st_mode;  // from the start no wider than the file that it may replace
  }
  remove_abandoned(target);
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    fs::path temporary = temporary_name(target, stands_for);
    const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) throw_path_error(path, "created", errno);
    ShelfFile file(path, fd, FileKind::regular, true);
    file.temporary_path_ = std::move(temporary);
    file.target_path_ = target;
    file.creator_ = ::getpid();
    // Before the lock is held, remove_abandoned() of another creator may have taken the file for
    // an abandoned one; then this one is gone and the next attempt makes another.
    if (!try_lock(fd, path)) continue;
    struct stat opened {};
    if (::fstat(fd, &opened) == 0 && opened.st_nlink == 1) return file;
  }
  throw Error(Errc::busy, fmt::format("{} is being created again and again", path.native()),
              "stop the process that does so");
}

void ShelfFile::settle() const {
  TENSORSHELF_ASSERT(!temporary_path_.empty());
  const Directory directory(parent_of(temporary_path_));
  sync_or_throw(fd_, path_);
  directory.sync();
}

void ShelfFile::publish(bool replace, const std::function<void()>& look_again) {
  if (replace) return publish_over(false, look_again);
  TENSORSHELF_ASSERT(!temporary_path_.empty());
  const Directory directory(parent_of(target_path_));
  sync_or_throw(fd_, path_);
  if (const int error = rename_no_replace(temporary_path_, target_path_); error != 0) {
    if (error != EEXIST) throw_path_error(path_, "created", error);
    throw_exists(path_);
  }
  temporary_path_.clear();
  if (!planted(Bug::name_unsynced)) directory.sync();
  remember_name();
}

void ShelfFile::publish_over(bool only_empty, const std::function<void()>& look_again) {
  TENSORSHELF_ASSERT(!temporary_path_.empty());
  const Directory directory(parent_of(target_path_));
  sync_or_throw(fd_, path_);
  int attempt = 0;
  while (!replace_unlocked({*this, temporary_path_, target_path_, path_, only_empty, look_again})) {
    if (++attempt < kMaxAttempts) continue;
    throw Error(Errc::busy, fmt::format("{} is being replaced again and again", path_.native()),
                "stop the process that does so");
  }
  temporary_path_.clear();
  if (!planted(Bug::replaced_name_unsynced)) directory.sync();
  remember_name();
}

void ShelfFile::publish_over_empty() {
  // Asked only there: elsewhere a rival's rename between the two looks would be taken for it.
  bool through_proc = false;
  follow_links(path_, &through_proc);
  struct stat empty {};
  struct stat named {};
  if (through_proc && ::stat(path_.c_str(), &named) == 0 &&
      (::stat(target_path_.c_str(), &empty) != 0 || !same_inode(named, empty))) {
    throw Error(Errc::not_a_shelf,
                fmt::format("{} is empty, and a file without a name", path_.native()),
                "name a file by its path");
  }
  publish_over(true, {});
}

void ShelfFile::release_lock() const { ::flock(fd_, LOCK_UN); }

std::uint64_t ShelfFile::size_bytes() const {
  struct stat node {};
  if (::fstat(fd_, &node) != 0) throw_path_error(path_, "measured", errno);
  switch (kind_) {
    case FileKind::regular:
      return static_cast<std::uint64_t>(node.st_size);
    case FileKind::block_device: {
      std::uint64_t bytes = 0;
      if (::ioctl(fd_, BLKGETSIZE64, &bytes) != 0) throw_path_error(path_, "measured", errno);
      return bytes;
    }
    case FileKind::dax_device: {
      std::uint64_t bytes = 0;
      std::ifstream size(
          fmt::format("/sys/dev/char/{}:{}/size", major(node.st_rdev), minor(node.st_rdev)));
      if (!(size >> bytes)) throw_path_error(path_, "measured", EIO);
      return bytes;
    }
  }
  TENSORSHELF_ASSERT(false);
}

}  // namespace tensorshelf
