// Taking the writer's lock, and finding out who holds it. Assumes nothing of /proc: where it is
// missing, or the holder lives in another PID namespace, the text just does not name a process.
#include "media/file_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <tensorshelf/error.hpp>

namespace tensorshelf {
// The pid that took the lock, or 0. Lines read "7: FLOCK  ADVISORY  WRITE 4211 fe:00:1234 0 EOF";
// those of processes still waiting read "7: -> FLOCK ..." and do not match.
long lock_holder(const struct stat& inode) {
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    long pid = 0;
    unsigned device_major = 0;
    unsigned device_minor = 0;
    unsigned long number = 0;
    const int fields = std::sscanf(line.c_str(), "%*d: FLOCK %*s WRITE %ld %x:%x:%lu", &pid,
                                   &device_major, &device_minor, &number);
    if (fields == 4 && pid > 0 && number == inode.st_ino && device_major == major(inode.st_dev) &&
        device_minor == minor(inode.st_dev)) {
      return pid;
    }
  }
  return 0;
}

namespace {

// Which living process has a descriptor with that lock: the taker itself, or who inherited it. 0
// where /proc shows none, as of other users' processes. Each descriptor's text in /proc has the
// locks of its open file: "lock:\t1: FLOCK  ADVISORY  WRITE 4211 fe:00:1234 0 EOF".
long who_keeps_lock(const struct stat& inode) {
  const auto node =
      fmt::format(" {:02x}:{:02x}:{} ", major(inode.st_dev), minor(inode.st_dev), inode.st_ino);
  std::error_code ignored;
  for (std::filesystem::directory_iterator processes("/proc", ignored), end; processes != end;
       processes.increment(ignored)) {
    const long pid = std::atol(processes->path().filename().c_str());
    if (pid <= 0) continue;
    std::filesystem::directory_iterator each(processes->path() / "fdinfo", ignored);
    for (; each != end; each.increment(ignored)) {
      std::ifstream descriptor(each->path());
      for (std::string line; std::getline(descriptor, line);) {
        if (line.starts_with("lock:") && line.find(" FLOCK ") != std::string::npos &&
            line.find(node) != std::string::npos) {
          return pid;
        }
      }
    }
  }
  return 0;
}

bool has_ended(long pid) { return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

// A killed writer's io_uring keeps its file, and so the lock, until the kernel has torn the ring
// down, some milliseconds after the process is gone. That is as it should be: its writes in flight
// may land until then (I10). It is waited for, so that a restart right after a kill finds the
// shelf.
constexpr auto kTearDownLimit = std::chrono::seconds(10);
constexpr auto kTearDownPoll = std::chrono::milliseconds(5);
// Within a PID namespace the kernel shows no lock whose taker is gone, nor does it show one that
// was let go since: an unseen holder may be such a one, or lives elsewhere.
constexpr auto kUnseenLimit = std::chrono::seconds(2);

bool worth_waiting(int fd, std::chrono::steady_clock::time_point since) {
  struct stat inode = {};
  if (::fstat(fd, &inode) != 0) return false;
  const long pid = lock_holder(inode);
  const auto waited = std::chrono::steady_clock::now() - since;
  return pid == 0 ? waited < kUnseenLimit : has_ended(pid) && waited < kTearDownLimit;
}

}  // namespace

bool try_lock(int fd, const std::filesystem::path& path) {
  const auto begin = std::chrono::steady_clock::now();
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      if (!worth_waiting(fd, begin)) return false;
      std::this_thread::sleep_for(kTearDownPoll);
      continue;
    }
    const int error = errno;
    throw Error(Errc::io,
                fmt::format("{} cannot be locked: {}", path.native(),
                            std::generic_category().message(error)),
                "keep the shelf on a file system that has flock", error);
  }
  return true;
}

void throw_busy(const std::filesystem::path& path, const struct stat& inode) {
  const long pid = lock_holder(inode);
  if (pid == 0) {
    throw Error(Errc::busy, fmt::format("{} is open for writing by another process", path.native()),
                "use mode=\"r\" or stop it");
  }
  if (pid == ::getpid()) {
    throw Error(Errc::busy,
                fmt::format("{} is still open for writing in this process", path.native()),
                "close its Shelf; if that is closed, drop the views of its tensors (leases, arrays "
                "over them), which keep the file locked; or use mode=\"r\"",
                EDEADLK);
  }
  if (has_ended(pid)) {
    // The lock belongs to the descriptor, which a forked child shares and keeps open.
    const long child = who_keeps_lock(inode);
    const auto kept_by = child == 0 ? "a child" : fmt::format("pid {}, a child", child);
    throw Error(Errc::busy,
                fmt::format("{} is open for writing by {} of pid {}, which itself has ended",
                            path.native(), kept_by, pid),
                "use mode=\"r\" or stop that child");
  }
  throw Error(Errc::busy, fmt::format("{} is open for writing by pid {}", path.native(), pid),
              "use mode=\"r\" or stop it");
}

int open_to_lock(const std::filesystem::path& path) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  const int fd = ::open(path.c_str(), O_RDWR | kFlags);
  return fd >= 0 || errno == ENOENT ? fd : ::open(path.c_str(), O_RDONLY | kFlags);
}

int open_device_folder(int fd) {
  struct stat node = {};
  if (::fstat(fd, &node) != 0) return -1;
  const auto folder = fmt::format("/sys/dev/char/{}:{}", major(node.st_rdev), minor(node.st_rdev));
  return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

DeviceLock::DeviceLock(int fd, const std::filesystem::path& path) : fd_(open_device_folder(fd)) {
  if (fd_ < 0) return;
  struct stat common = {};
  if (::fstat(fd_, &common) != 0) {
    ::close(std::exchange(fd_, -1));  // or held() would say that it is locked
    return;
  }
  try {
    if (!try_lock(fd_, path)) throw_busy(path, common);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tensorshelf
