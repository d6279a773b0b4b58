// A directory that a test may fill, and a child process that a test may lose.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>

#include "catch.hpp"

namespace scratch {

// A new directory with a name of its own beneath `parent`.
inline std::filesystem::path make_directory(const std::filesystem::path& parent) {
  std::string name = (parent / "tensorshelf-test-XXXXXX").native();
  if (::mkdtemp(name.data()) == nullptr) {
    FAIL("cannot make " << name << ": " << std::strerror(errno));
  }
  return name;
}

// Removed with all that is in it. /dev/shm is tmpfs on every Linux; TMPDIR should be a disk.
class Directory {
 public:
  explicit Directory(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(make_directory(parent)) {
    std::filesystem::permissions(path_, std::filesystem::perms(0755));
  }
  Directory(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline void put(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::size_t entries(const std::filesystem::path& directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

// The wait status of a forked child that runs `body` and exits with 0 where it returns true. Its
// signals kill it, whatever handlers the test program has.
inline int in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
    bool good = false;
    try {
      good = body();
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  while (::waitpid(child, &status, 0) < 0) {
  }
  return status;
}

inline bool exited_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace scratch
