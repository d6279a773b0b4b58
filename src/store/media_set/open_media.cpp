#include "store/media_set/open_media.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"
#include "media/media.hpp"
#include "store/io/head.hpp"
#include "store/media_set/offered_at.hpp"
#include "store/media_set/offered_media.hpp"

namespace tensorshelf {
namespace {

// Behind its heads a mirror has all of another.
OpenOptions as_mirror(OpenOptions options) {
  if (options.max_size_bytes != 0) options.max_size_bytes += format::kMirrorAt;
  return options;
}

bool is_same(const std::string& one, const std::string& other) {
  std::error_code ignored;  // then they are told apart by their paths
  return home_of(one) == home_of(other) || std::filesystem::equivalent(one, other, ignored);
}

void check_paths(const std::string& home, const std::vector<std::string>& paths) {
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    if (is_same(*path, home)) {
      throw Error(Errc::bad_argument, fmt::format("{} is the shelf itself", *path),
                  "Give other media by also= and mirror=.");
    }
    const bool twice =
        std::any_of(paths.begin(), path, [&](const auto& other) { return is_same(*path, other); });
    if (twice) {
      throw Error(Errc::bad_argument, fmt::format("{} is given twice", *path), "Give it once.");
    }
  }
}

// Errc::bad_argument where a shelf that is made lacks what is to be mirrored, or that has a mirror
// already: the other media get the numbers from 1 on, in their order.
void check_mirrored(const OpenOptions& options) {
  for (auto mirror = options.mirrors.begin(); mirror != options.mirrors.end(); ++mirror) {
    const bool there = mirror->of <= options.also.size();
    const bool taken = std::any_of(options.mirrors.begin(), mirror,
                                   [&](const Mirror& other) { return other.of == mirror->of; });
    if (there && !taken) continue;
    throw Error(Errc::bad_argument,
                fmt::format("{} is to mirror medium {}, which {}", mirror->path, mirror->of,
                            there ? "has a mirror" : "the shelf does not have"),
                "A new shelf has medium 0, its own, and those of also=, from 1 on.");
  }
}

}  // namespace

std::vector<OfferedMedium> open_offered(const std::filesystem::path& path,
                                        const OpenOptions& options, Coming coming,
                                        const std::optional<format::ShelfId>& of) {
  const std::size_t given = options.also.size() + options.mirrors.size();
  if (given >= kMaxMedia) {
    throw Error(
        Errc::full,
        fmt::format("{} media are given, and a shelf has {} with its own", given, kMaxMedia),
        "Use a second shelf.");
  }
  if (coming != Coming::to_shelf) check_mirrored(options);
  std::vector<std::string> paths;
  for (const std::string& each : options.also) paths.push_back(absolute(each));
  for (const Mirror& mirror : options.mirrors) paths.push_back(absolute(mirror.path));
  const Target target{absolute(path.string()), coming, of};
  check_paths(target.home, paths);
  std::vector<OfferedMedium> offered;
  const OpenOptions for_mirrors = as_mirror(options);
  // Who reads needs one of a medium and its mirror.
  const auto may_be_missing = [&](const std::string& medium) {
    return options.mode == Mode::read && !options.mirrors.empty() && !is_there(medium);
  };
  for (std::size_t i = 0; i < options.also.size(); ++i) {
    if (may_be_missing(paths[i])) continue;
    offered.push_back(offered_at(paths[i], options, target));
  }
  for (std::size_t i = 0; i < options.mirrors.size(); ++i) {
    const std::string& mirror = paths[options.also.size() + i];
    if (may_be_missing(mirror)) continue;
    offered.push_back(offered_at(mirror, for_mirrors, target));
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
                    const OpenOptions& options, std::vector<OfferedMedium> offered, bool mirror) {
  const std::string home = home_of(path);
  std::vector<std::string> given;
  for (const OfferedMedium& each : offered) given.push_back(each.path);
  const auto find = [options, home, given](const std::string& last, bool is_mirror) {
    const std::filesystem::path folder = std::filesystem::path(home).parent_path();
    const auto beside = (folder / std::filesystem::path(last).filename()).string();
    const std::string& there = is_there(beside) ? beside : last;
    const auto is_given = [&](const std::string& one) { return is_same(one, there); };
    // Then it is open, and locked.
    if (is_there(there) && std::ranges::any_of(given, is_given)) return FoundMedium{{}, {}, there};
    return open_there(there, is_mirror ? as_mirror(options) : options);
  };
  return shelf_media(std::move(first), std::move(offered), find,
                     mirror ? 0 : hash_bytes(std::as_bytes(std::span(home)), 0), options.without);
}

}  // namespace tensorshelf
