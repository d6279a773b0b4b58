// The lock that makes a writer the only one (I10): flock(LOCK_EX) on the inode, held by the open
// descriptor. Never fcntl(F_SETLK), which any close() of the same file in the process releases.
#pragma once

#include <sys/stat.h>

#include <filesystem>

namespace tensorshelf {

// Opens a file, and follows no link, to lock it: flock() of NFS asks for a descriptor that may
// write. -1 and errno where it cannot.
int open_to_lock(const std::filesystem::path& path);

// Takes the lock; false where another descriptor holds it. Waits only for a holder whose process
// has ended, seconds at most. Throws Errc::io where the file system has no locks.
bool try_lock(int fd, const std::filesystem::path& path);

// The pid that holds the lock on this inode, as far as /proc/locks shows it; else 0.
long lock_holder(const struct stat& inode);

// Errc::busy, naming the holder of the lock on this inode where /proc/locks shows it. With the
// errno EDEADLK where that is this process: no waiting would help.
[[noreturn]] void throw_busy(const std::filesystem::path& path, const struct stat& inode);

// Opens the folder in sysfs of the DevDAX device open at `fd`, for locks on it: all nodes that lead
// to the device have it in common. -1 where there is no sysfs.
int open_device_folder(int fd);

// A writer's second lock where several device nodes, each an inode with a lock of its own, may lead
// to one DevDAX device: on the device's folder in sysfs, which they have in common. Containers see
// one sysfs as long as they share the network namespace; else only the incarnation tells them
// apart (I10).
class DeviceLock {
 public:
  // Takes it for the device open at `fd`. Errc::busy where another holds it.
  DeviceLock(int fd, const std::filesystem::path& path);
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
  ~DeviceLock();

  bool held() const { return fd_ >= 0; }  // false where there is no sysfs

 private:
  int fd_ = -1;
};

inline bool same_inode(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace tensorshelf
