// The file or device that a shelf lives in: opening it, locking it, and making a new one appear
// whole. Owns the descriptor and the lock; knows nothing of what the bytes mean.
//
// A writer holds flock(LOCK_EX) on the inode for its lifetime (I10); readers take no lock. The lock
// is taken before the path is trusted: after locking, the path must still name the locked inode.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace tensorshelf {

enum class FileKind { regular, block_device, dax_device };

class ShelfFile {
 public:
  // Errors: Errc::not_found (with how to create one), read_only (no permission, read-only mount),
  // busy (locked; the text names the holder's pid, from /proc/locks), not_a_shelf (a directory, a
  // FIFO, a symbolic link that loops, ...), io.
  // For writing, the name that led to it is durable from then on, as far as its directory can be
  // read.
  static ShelfFile open(const std::filesystem::path& path, bool writable);

  // A new, empty, locked file under a temporary name in the same directory. It takes its place
  // with publish(), and is removed by the destructor where that was never called. What it
  // `stands_for` is in its temporary name (file_temporary.hpp).
  static ShelfFile create(const std::filesystem::path& path,
                          std::optional<std::uint32_t> stands_for = {});

  // Before it has its name: what it holds so far, and its temporary name, outlive a power loss.
  void settle() const;

  // Gives the file its name, in one step and durably (fsync of the directory). replace: in place of
  // any file of that name, whose lock must be free (Errc::busy) and whose permissions stay, for
  // root its owner too; else Errc::exists if there is one. `look_again` is called under that lock,
  // before the step, and may throw. Where it throws and unpublished() is false, the file has its
  // name, which may not outlive a power loss.
  void publish(bool replace, const std::function<void()>& look_again = {});

  // The same in place of a file of 0 bytes; Errc::exists if it holds any.
  void publish_over_empty();

  // Not published, it stays beside its place when this goes: temporaries_of() finds it there.
  void leave() { temporary_path_.clear(); }

  // Errc::gone where no name leads to the file any more, or another file has its name: what is
  // written to it, opening the path would not find. Moving it harms nothing, unless another takes
  // its place. Devices, and files that had no name when they were opened, always pass. Takes one
  // system call where nothing changed. A name that is lost right after is the next call's.
  void check_name() const;

  ShelfFile(ShelfFile&& other) noexcept;
  ShelfFile& operator=(ShelfFile&&) = delete;
  ~ShelfFile();

  // Gives up the writer's lock, for another holder of a lock on the same inode that is to follow at
  // once: libpmemobj takes the same lock on a descriptor of its own.
  void release_lock() const;

  bool unpublished() const { return !temporary_path_.empty(); }
  int fd() const { return fd_; }
  FileKind kind() const { return kind_; }
  bool writable() const { return writable_; }
  const std::filesystem::path& path() const { return path_; }  // as the user named it
  std::uint64_t size_bytes() const;                            // of the file or device, now

 private:
  ShelfFile(std::filesystem::path path, int fd, FileKind kind, bool writable);
  void publish_over(bool only_empty, const std::function<void()>& look_again);
  void remember_name();
  void sync_name() const;

  std::filesystem::path path_;
  std::filesystem::path temporary_path_;  // empty once published, or never needed
  std::filesystem::path target_path_;     // of a new file: where path_'s symbolic links lead
  std::filesystem::path name_;            // absolute, without links; empty: nothing to check
  bool linked_ = false;  // to its name, from one that went: the kernel goes on to name that
  dev_t device_ = 0;     // of the file that name_ led to
  ino_t inode_ = 0;
  int creator_ = 0;  // pid; a forked child leaves the temporary file alone
  int fd_;
  FileKind kind_;
  bool writable_;
};

// Gives one of a new shelf's temporary files (file_temporary.hpp) its name, durably, in the place
// of what bears it.
void give_name(const std::filesystem::path& temporary, const std::filesystem::path& target);

}  // namespace tensorshelf
