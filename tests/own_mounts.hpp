// File systems that a test's child mounts for itself: they end with it, and nobody else sees them.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>

namespace tensorshelf::testing {

// In a child (refused_call.hpp). False where mounting is not permitted.
inline bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// A tmpfs of so many MiB at `folder`, which is made.
inline bool mount_small(const std::filesystem::path& folder, int mib) {
  std::filesystem::create_directory(folder);
  const std::string size = "size=" + std::to_string(mib) + "m";
  return own_mounts() && ::mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace tensorshelf::testing
