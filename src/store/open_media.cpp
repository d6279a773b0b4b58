// The media of a shelf beside its first, from the paths that were given (OpenOptions::also), or
// where a version says that they were.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"
#include "media/media.hpp"
#include "store/head.hpp"
#include "store/medium_headers.hpp"
#include "store/open_path.hpp"

namespace tensorshelf {
namespace {

FoundMedium open_there(const std::string& path, const OpenOptions& options) {
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, options.mode != Mode::read));
  return {make_medium(file, options), file, path};
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;  // then opening it says why
  return std::filesystem::exists(path, ignored);
}

// A file appears under its name when it bears whose it is.
OfferedMedium made(const std::string& path, const OpenOptions& options, bool replaces) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  OfferedMedium offered{
      .path = path, .found = {make_medium(file, options), file, path}, .anew = true};
  offered.published = [file, replaces] { file->publish(replaces); };
  return offered;
}

// What goes with a shelf that is replaced: its own media, and what is blank. A wrong path costs
// nobody anything else. Its lock has to be free, as that of the shelf.
void check_replaceable(const std::string& path, const OpenOptions& options,
                       const std::optional<format::ShelfId>& of) {
  const FoundMedium found = open_there(path, options);
  const MediumHeaders headers = read_medium_headers(*found.medium, 0);
  const auto file = found.file.lock();
  if (may_become_medium(*found.medium, headers, file.get())) return;
  if (headers.best() && headers.best()->shelf_id == of) return;
  throw Error(Errc::not_a_shelf,
              fmt::format("{} is no medium of the shelf that is replaced, and not empty", path),
              "Check the path, or wipe it first.");
}

OfferedMedium offered_at(const std::string& path, const OpenOptions& options, bool replaced,
                         const std::optional<format::ShelfId>& of) {
  std::error_code ignored;
  const bool there = is_there(path);
  if (there && replaced) check_replaceable(path, options, of);
  const bool is_file = std::filesystem::is_regular_file(path, ignored) && !is_pool_set(path);
  if (options.mode != Mode::read && (!there || (replaced && is_file))) {
    return made(path, options, there);
  }
  return {.path = path, .found = open_there(path, options), .anew = replaced};
}

// Paths are kept as they lead to a place from anywhere.
std::string absolute(const std::string& path) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return whole.empty() ? path : whole.string();
}

}  // namespace

std::vector<OfferedMedium> offered_media(const OpenOptions& options, bool replaced,
                                         const std::optional<format::ShelfId>& of) {
  const std::size_t given = options.also.size() + options.mirrors.size();
  if (given >= kMaxMedia) {
    throw Error(
        Errc::full,
        fmt::format("{} media are given, and a shelf has {} with its own", given, kMaxMedia),
        "Use a second shelf.");
  }
  std::vector<std::string> paths;
  const auto note = [&](const std::string& path) {
    paths.push_back(absolute(path));
    if (std::ranges::count(paths, paths.back()) == 1) return;
    throw Error(Errc::bad_argument, fmt::format("{} is given twice", path), "Give it once.");
  };
  for (const std::string& path : options.also) note(path);
  for (const Mirror& mirror : options.mirrors) note(mirror.path);
  std::vector<OfferedMedium> offered;
  for (std::size_t i = 0; i < options.also.size(); ++i) {
    offered.push_back(offered_at(paths[i], options, replaced, of));
  }
  for (std::size_t i = 0; i < options.mirrors.size(); ++i) {
    const std::string& path = paths[options.also.size() + i];
    if (options.mode == Mode::read && !is_there(path)) continue;  // which needs none
    offered.push_back(offered_at(path, options, replaced, of));
    offered.back().mirrors = options.mirrors[i].of;
  }
  return offered;
}

std::optional<format::ShelfId> shelf_at(const std::filesystem::path& path,
                                        const OpenOptions& options) {
  try {
    OpenOptions reading = options;
    reading.mode = Mode::read;
    return read_head(*open_there(path, reading).medium).superblock.shelf_id;
  } catch (const Error&) {
    return std::nullopt;  // none that could be opened, or nothing at all
  }
}

// Media that moved together with the shelf, or were copied with it, lie beside it: these come
// first, so that a copy does not write to what it was copied from.
ShelfMedia media_at(const std::filesystem::path& path, std::unique_ptr<Medium> first,
                    const OpenOptions& options, std::vector<OfferedMedium> offered) {
  const std::string home = absolute(path.string());
  const auto find = [options, home](const std::string& last) {
    const std::filesystem::path folder = std::filesystem::path(home).parent_path();
    const auto beside = folder / std::filesystem::path(last).filename();
    return open_there(is_there(beside) ? beside.string() : last, options);
  };
  return shelf_media(std::move(first), std::move(offered), find,
                     hash_bytes(std::as_bytes(std::span(home)), 0), options.without);
}

}  // namespace tensorshelf
