#include "store/media_set/open_media.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "media/file_temporary.hpp"
#include "media/media.hpp"
#include "store/io/head.hpp"
#include "store/io/medium_headers.hpp"
#include "store/media_set/offered_media.hpp"

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

OfferedMedium made(const std::string& path, const OpenOptions& options, bool replaces) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  return {.path = path,
          .found = {make_medium(file, options), file, path},
          .anew = true,
          .unnamed = UnnamedFile{file, replaces}};
}

// Behind its heads a mirror has all of another.
OpenOptions as_mirror(OpenOptions options) {
  if (options.max_size_bytes != 0) options.max_size_bytes += format::kMirrorAt;
  return options;
}

// Where media are given to, and what for.
struct Target {
  const std::string home;
  Coming coming;
  std::optional<format::ShelfId> of;
};

// Where links lead, also to what does not exist yet. Those of a device stay, for udev makes them to
// last longer than what they lead to.
std::string home_of(const std::filesystem::path& path);

// Who put a shelf in the place of another was killed when the shelf had its name, and this medium
// had not: all were whole by then, and that lies beside it. It gets its name now. False where there
// is none.
bool finish_replacing(const std::string& path, const OpenOptions& options, const Target& target) {
  if (planted(Bug::replacement_left_half_way)) return false;
  const std::string home = home_of(path);
  std::optional<Error> busy;
  for (const auto& left : temporaries_of(home)) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(left, ignored)) continue;  // no maker leaves one
    try {
      const FoundMedium found = open_there(left.string(), options);  // locked: nobody makes it
      const auto header = read_medium_headers(*found.medium, 0).best();
      if (!header || header->shelf_id != target.of) continue;
      give_name(left, home);
      return true;
    } catch (const Error& error) {  // else it is none
      if (error.code() == Errc::busy) busy = error;
    }
  }
  if (!busy) return false;
  throw Error(Errc::busy, fmt::format("{} is made by another process now", path),
              "Let one process at a time make the shelf.", busy->os_error());
}

// What becomes a medium of a new shelf is blank; of one that is replaced its own go with it. A
// wrong path costs nobody anything else. Its lock has to be free, as that of the shelf.
void check_may_be_new(const FoundMedium& found, const OpenOptions& options, const Target& target) {
  const MediumHeaders headers = read_medium_headers(*found.medium, 0);
  const auto& header = headers.best();
  const auto file = found.file.lock();
  if (may_become_medium(*found.medium, headers, file.get())) return;
  if (!header) throw_no_medium(*found.medium, found.path);
  const std::string whose = fmt::format("{} is medium {} of the shelf {}", found.path,
                                        header->index, id_text(header->shelf_id));
  if (target.coming == Coming::in_the_place) {
    if (header->shelf_id == target.of || finish_replacing(found.path, options, target)) return;
    throw Error(Errc::not_a_shelf, fmt::format("{}, which is not the one that is replaced", whose),
                "Check the path. Delete it first where that shelf is gone.");
  }
  throw Error(Errc::not_found, fmt::format("there is no shelf at {}, and {}", target.home, whose),
              format::mirrored_by(*header) == 0U
                  ? "Where that shelf is lost, mode=\"r\" opens its mirror, and snapshot() makes a "
                    "new one of it."
                  : "Give the path of that shelf, or media that are no other's.");
}

// What is offered at a path. For a shelf that is made, or anew, files are others, which get their
// names once they are whole.
OfferedMedium offered_at(const std::string& path, const OpenOptions& options,
                         const Target& target) {
  std::error_code ignored;
  const bool there = is_there(path);
  const bool made_now = target.coming != Coming::to_shelf;
  if (there && made_now) check_may_be_new(open_there(path, options), options, target);
  const bool is_file =
      std::filesystem::is_regular_file(path, ignored) && made_as(path) == MadeAs::file;
  if (options.mode != Mode::read && (!there || (made_now && is_file))) {
    return made(path, options, there);
  }
  const bool anew = target.coming == Coming::in_the_place;
  return {.path = path, .found = open_there(path, options), .anew = anew};
}

// Paths are kept as they lead to a place from anywhere.
std::string absolute(const std::string& path) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return whole.empty() ? path : whole.string();
}

std::string home_of(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool there = std::filesystem::exists(path, ignored);
  if (there && !std::filesystem::is_regular_file(path, ignored)) return absolute(path.string());
  std::filesystem::path place = absolute(path.string());
  for (int hops = 0; hops < 40; ++hops) {
    std::error_code error;
    const auto next = std::filesystem::read_symlink(place, error);
    if (error) break;
    place = next.is_absolute() ? next : place.parent_path() / next;
  }
  const auto whole = std::filesystem::weakly_canonical(place, ignored);
  return whole.empty() ? absolute(path.string()) : whole.string();
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
