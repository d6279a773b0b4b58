#include "recorded_names.hpp"

#include <fcntl.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <exception>
#include <fstream>
#include <mutex>
#include <ranges>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tensorshelf::crash {
namespace {

namespace fs = std::filesystem;

std::atomic<RecordedNames*> watching = nullptr;
std::mutex one_call;               // at a time
thread_local bool within = false;  // the watch, which is not watched itself

std::vector<std::byte> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(fs::file_size(path));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("cannot be read: " + path.native());
  return bytes;
}

std::vector<fs::path> files_below(const fs::path& root) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) found.push_back(entry.path().lexically_relative(root));
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

RecordedNames::RecordedNames(fs::path root, unsigned fails_at)
    : root_(fs::canonical(root)), fails_at_(fails_at) {
  for (const fs::path& name : files_below(root_)) {
    names_.made(name);
    names_.holds(name, bytes_of(root_ / name));
    names_.synced_file(name);
    names_.synced_folder(name.parent_path());
  }
  keep_cuts();
  watching = this;
}

RecordedNames::~RecordedNames() { watching = nullptr; }

void RecordedNames::told() {
  told_ = true;
  hears([this] { before(); });
}

void RecordedNames::gave_up() {
  hears([this] { before(); });
}

void RecordedNames::hears(const std::function<void()>& of) {
  try {
    of();
  } catch (const std::exception& error) {
    if (problem_.empty()) problem_ = error.what();
  }
}

// What the files hold now, writes through a mapping included.
void RecordedNames::look() {
  const std::vector<fs::path> found = files_below(root_);
  if (!std::ranges::equal(found, std::views::keys(names_.now()))) {
    throw std::logic_error("a name came about, or went, by no call that is watched");
  }
  for (const fs::path& name : found) names_.holds(name, bytes_of(root_ / name));
}

void RecordedNames::keep_cuts() {
  names_.each_cut([&](const Tree& tree) { cuts_.insert({told_, tree}); });
}

std::optional<fs::path> RecordedNames::below(const fs::path& path) const {
  const fs::path name = fs::weakly_canonical(path.parent_path()).lexically_relative(root_);
  if (name.empty() || *name.begin() == "..") return std::nullopt;
  return (name / path.filename()).lexically_normal();
}

void RecordedNames::before() {
  look();
  keep_cuts();
}

void RecordedNames::opened(const fs::path& path) {
  const auto name = below(path);
  if (!name || names_.now().contains(*name)) return;
  names_.made(*name);
  keep_cuts();
}

void RecordedNames::moved(const fs::path& from, const fs::path& to) {
  const auto old = below(from);
  const auto now = below(to);
  if (old && now) names_.moved(*old, *now);
  keep_cuts();
}

void RecordedNames::linked(const fs::path& from, const fs::path& to) {
  const auto old = below(from);
  const auto now = below(to);
  if (old && now) names_.linked(*old, *now);
  keep_cuts();
}

void RecordedNames::removed(const fs::path& path) {
  if (const auto name = below(path)) names_.removed(*name);
  keep_cuts();
}

void RecordedNames::synced(int fd) {
  const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
  const fs::path name = path.lexically_relative(root_);
  if (names_.now().contains(name)) names_.synced_file(name);
  if (fs::is_directory(path)) names_.synced_folder(name == "." ? fs::path{} : name);
  keep_cuts();
}

namespace {

// The watch throws nothing into functions that are said not to throw.
template <typename Call, typename Note>
int watched(Call call, Note note) {
  RecordedNames* const watch = watching;
  if (watch == nullptr || within) return call();
  const std::lock_guard lock(one_call);
  within = true;
  watch->hears([&] { watch->before(); });
  const bool fails = watch->fails();
  const int result = fails ? -1 : call();
  const int error = fails ? EIO : errno;
  if (result >= 0) watch->hears([&] { note(*watch); });
  within = false;
  errno = error;
  return result;
}

}  // namespace
}  // namespace tensorshelf::crash

using tensorshelf::crash::RecordedNames;
using tensorshelf::crash::watched;

extern "C" {

int __real_open(const char* path, int flags, mode_t mode);
int __real_rename(const char* from, const char* to);
int __real_renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags);
int __real_link(const char* from, const char* to);
int __real_unlink(const char* path);
int __real_fsync(int fd);
int __real_fdatasync(int fd);

int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) == 0) return __real_open(path, flags, mode);
  return watched([&] { return __real_open(path, flags, mode); },
                 [&](RecordedNames& watch) { watch.opened(path); });
}

int __wrap_rename(const char* from, const char* to) {
  return watched([&] { return __real_rename(from, to); },
                 [&](RecordedNames& watch) { watch.moved(from, to); });
}

int __wrap_renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  return watched([&] { return __real_renameat2(from_at, from, to_at, to, flags); },
                 [&](RecordedNames& watch) { watch.moved(from, to); });
}

int __wrap_link(const char* from, const char* to) {
  return watched([&] { return __real_link(from, to); },
                 [&](RecordedNames& watch) { watch.linked(from, to); });
}

int __wrap_unlink(const char* path) {
  return watched([&] { return __real_unlink(path); },
                 [&](RecordedNames& watch) { watch.removed(path); });
}

int __wrap_fsync(int fd) {
  return watched([&] { return __real_fsync(fd); }, [&](RecordedNames& watch) { watch.synced(fd); });
}

int __wrap_fdatasync(int fd) {
  return watched([&] { return __real_fdatasync(fd); },
                 [&](RecordedNames& watch) { watch.synced(fd); });
}
}
