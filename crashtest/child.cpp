#include "child.hpp"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>

namespace tensorshelf::crash {
namespace {

struct Position {
  std::string_view where = "the beginning";
  const Counts* counts = nullptr;
  const char* what = "starting";
  std::uint64_t depth = 0;
  std::uint64_t event = 0;
};
Position position;
int report_fd = -1;

struct Header {
  Counts counts;
  double seconds;
};

void write_all(int fd, const void* bytes, std::size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = ::write(fd, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(71);
    at += count;
    size -= static_cast<std::size_t>(count);
  }
}

// The process is lost and nobody else holds its locks: formatting here is safe enough.
void on_death(int signal) {
  const Header header{position.counts ? *position.counts : Counts{}, 0};
  const std::string text = fmt::format(
      "{}\n  the store died of signal {} ({}) while {}, depth {}, crash after event {}\n",
      position.where, signal, strsignal(signal), position.what, position.depth, position.event);
  write_all(report_fd, &header, sizeof header);
  write_all(report_fd, text.data(), text.size());
  ::_exit(70);
}

[[noreturn]] void be_child(const Task& task, int fd) {
  report_fd = fd;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_death);
  const Result result = task();
  const Header header{result.counts, result.seconds};
  write_all(fd, &header, sizeof header);
  write_all(fd, result.violation.data(), result.violation.size());
  ::_exit(0);
}

struct Running {
  std::size_t index;
  int fd;
};

pid_t start(const Task& task, int& fd) {
  std::array<int, 2> ends;
  if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe failed");
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    ::close(ends[0]);
    be_child(task, ends[1]);
  }
  ::close(ends[1]);
  fd = ends[0];
  return pid;
}

// The report fits a pipe's buffer (64 KiB), so that a child never waits for its reader.
Result collect(int fd, int status) {
  std::string bytes;
  std::array<char, 4096> block;
  for (ssize_t count; (count = ::read(fd, block.data(), block.size())) > 0;) {
    bytes.append(block.data(), static_cast<std::size_t>(count));
  }
  ::close(fd);
  Result result;
  if (bytes.size() < sizeof(Header)) {
    result.violation = fmt::format("the explorer died with wait status {:#x}\n", status);
    return result;
  }
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  result.counts = header.counts;
  result.seconds = header.seconds;
  result.violation = bytes.substr(sizeof header);
  return result;
}

}  // namespace

void note_workload(std::string_view where, const Counts* counts) {
  position.where = where;
  position.counts = counts;
}

void note_position(const char* what, std::uint64_t depth, std::uint64_t event) {
  position.what = what;
  position.depth = depth;
  position.event = event;
}

void keep_freed_memory() {
  constexpr int kMost = 1 << 30;
  ::mallopt(M_MMAP_THRESHOLD, kMost);
  ::mallopt(M_TRIM_THRESHOLD, kMost);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

void run_in_children(const std::vector<Task>& tasks, unsigned jobs,
                     const std::function<void(std::size_t, const Result&)>& done) {
  std::map<pid_t, Running> running;
  std::map<std::size_t, Result> finished;  // waiting for an earlier one
  std::size_t started = 0;
  std::size_t handed_out = 0;
  while (handed_out < tasks.size()) {
    while (started < tasks.size() && running.size() < jobs) {
      int fd = -1;
      const pid_t pid = start(tasks[started], fd);
      running[pid] = {started++, fd};
    }
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, 0);
    const auto child = running.find(pid);
    if (child == running.end()) continue;
    finished[child->second.index] = collect(child->second.fd, status);
    running.erase(child);
    for (auto next = finished.find(handed_out); next != finished.end();
         next = finished.find(handed_out)) {
      done(handed_out++, next->second);
      finished.erase(next);
    }
  }
}

}  // namespace tensorshelf::crash
