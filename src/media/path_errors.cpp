#include "media/path_errors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include <tensorshelf/error.hpp>

#include "base/shell_quoted.hpp"

namespace tensorshelf {

namespace fs = std::filesystem;

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

namespace {

std::string message(int error) { return std::generic_category().message(error); }

[[noreturn]] void throw_missing(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(path, ignored))) {
    throw Error(Errc::not_found,
                fmt::format("{} is a symbolic link to {}, which does not exist", path.native(),
                            fs::read_symlink(path, ignored).native()),
                "correct the link, or create a shelf there with mode=\"a\"", ENOENT);
  }
  const fs::path parent = parent_of(path);
  if (!fs::exists(parent, ignored)) {
    throw Error(Errc::not_found,
                fmt::format("no shelf at {}: the directory {} does not exist", path.native(),
                            parent.native()),
                fmt::format("make it first: `mkdir -p {}`", shell_quoted(parent.native())), ENOENT);
  }
  if (path.native().find_first_of("*?") != std::string::npos) {
    throw Error(Errc::not_found, fmt::format("no shelf at {}", path.native()),
                "no file matches: a shell leaves such a pattern as it is then", ENOENT);
  }
  throw Error(Errc::not_found, fmt::format("no shelf at {}", path.native()),
              "check the path, or create one with mode=\"a\" or mode=\"x\"", ENOENT);
}

// What to ask for, of whoever may give it.
std::string permission_needed(const fs::path& path, std::string_view verb) {
  const auto may = [](const fs::path& place, int what) {
    return ::faccessat(AT_FDCWD, place.c_str(), what, AT_EACCESS) == 0;
  };
  fs::path outer;
  for (fs::path place = parent_of(path); !may(place, X_OK); place = outer) {
    outer = parent_of(place);
    if (outer == place || may(outer, X_OK)) {
      return fmt::format("get permission to enter {}", place.native());
    }
  }
  if (verb == kForReading) return fmt::format("get permission to read {}", path.native());
  if (verb != kForWriting) {
    return fmt::format("get permission to write to {}", parent_of(path).native());
  }
  return may(path, R_OK) ? "get permission to write to it; mode=\"r\" needs to read it only"
                         : "get permission to read it and to write to it";
}

}  // namespace

void throw_path_error(const fs::path& path, std::string_view verb, int error) {
  const std::string& name = path.native();
  switch (error) {
    case ENOENT:
      throw_missing(path);
    case ENOTDIR:
      throw Error(Errc::not_found,
                  fmt::format("no shelf at {}: a part of it is no directory", name),
                  "correct the path", error);
    case EISDIR:
      throw Error(Errc::not_a_shelf, fmt::format("{} is a directory", name),
                  "name a file in it, such as run.shelf", error);
    case ELOOP:
      throw Error(Errc::not_a_shelf, fmt::format("{} is a symbolic link that loops", name),
                  "correct the link", error);
    case ENAMETOOLONG:
      throw Error(Errc::bad_argument, fmt::format("the name {} is too long", name),
                  fmt::format("use at most {} bytes between two slashes", kMaxFileName), error);
    case EACCES:
    case EPERM:
    case EROFS:
      throw Error(Errc::read_only, fmt::format("{} cannot be {}: {}", name, verb, message(error)),
                  error == EROFS ? "use mode=\"r\", or mount the file system writable"
                                 : permission_needed(path, verb),
                  error);
    case ENOSPC:
    case EDQUOT:
      throw Error(Errc::full, fmt::format("{} cannot be {}: {}", name, verb, message(error)),
                  "free some space there", error);
    case EMFILE:
    case ENFILE:
      throw Error(Errc::io, fmt::format("{} cannot be {}: {}", name, verb, message(error)),
                  "close some files, or raise the limit (ulimit -n)", error);
    default:
      throw Error(Errc::io, fmt::format("{} cannot be {}: {}", name, verb, message(error)),
                  "check the file system, and dmesg", error);
  }
}

}  // namespace tensorshelf
