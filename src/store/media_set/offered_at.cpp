#include "store/media_set/offered_at.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "media/file_temporary.hpp"
#include "media/media.hpp"
#include "store/io/head.hpp"
#include "store/io/medium_headers.hpp"

namespace tensorshelf {

FoundMedium open_there(const std::string& path, const OpenOptions& options) {
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, options.mode != Mode::read));
  return {make_medium(file, options), file, path};
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;  // then opening it says why
  return std::filesystem::exists(path, ignored);
}

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

namespace {

// What is at a path that a medium of a new shelf is to have.
struct Before {
  bool may_go = false;
  std::optional<format::MediumHeader> header = {};  // of the medium that it is, if it is one
};

Before look_at(const FoundMedium& found, const Target& target) {
  const MediumHeaders headers = read_medium_headers(*found.medium, 0);
  const auto& header = headers.best();
  const auto file = found.file.lock();
  const bool of_replaced =
      target.coming == Coming::in_the_place && header && header->shelf_id == target.of;
  return {of_replaced || may_become_medium(*found.medium, headers, file.get()), header};
}

std::string whose(const std::string& path, const format::MediumHeader& header) {
  return fmt::format("{} is medium {} of the shelf {}", path, header.index,
                     id_text(header.shelf_id));
}

std::uint32_t name_tag_of(const format::MediumHeader& header) {
  return static_cast<std::uint32_t>(hash_bytes(std::as_bytes(std::span(header.medium_id)), 0));
}

// Who put a shelf in the place of another was killed when the shelf had its name, and this medium
// had not: all were durable by then, and that lies beside it, named for what it replaces. It gets
// its name now. False where there is none.
bool finish_replacing(const std::string& path, const OpenOptions& options, const Target& target,
                      const format::MediumHeader& replaced) {
  if (planted(Bug::replacement_left_half_way)) return false;
  const std::string home = home_of(path);
  std::optional<Error> busy;
  const auto is_left = [&](const std::filesystem::path& left) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(left, ignored)) return false;  // no maker leaves one
    if (!stands_for(left, name_tag_of(replaced)) && !planted(Bug::any_left_taken)) return false;
    try {
      const FoundMedium found = open_there(left.string(), options);  // locked: nobody makes it
      const auto header = read_medium_headers(*found.medium, 0).best();
      return header && header->shelf_id == target.of;
    } catch (const Error& error) {  // else it is none
      if (error.code() == Errc::busy) busy = error;
      return false;
    }
  };
  for (const auto& left : temporaries_of(home)) {
    if (!is_left(left)) continue;
    give_name(left, home);
    return true;
  }
  if (!busy) return false;
  throw Error(Errc::busy, fmt::format("{} is made by another process now", path),
              "Let one process at a time make the shelf.", busy->os_error());
}

// Its lock has to be free, as that of the shelf. Returns what is replaced.
Before check_may_go(const FoundMedium& found, const OpenOptions& options, const Target& target) {
  const Before before = look_at(found, target);
  if (before.may_go) return before;
  const auto& header = before.header;
  if (!header) throw_no_medium(*found.medium, found.path);
  if (target.coming == Coming::in_the_place) {
    if (finish_replacing(found.path, options, target, *header)) {
      return look_at(open_there(found.path, options), target);
    }
    throw Error(
        Errc::not_a_shelf,
        fmt::format("{}, which is not the one that is replaced", whose(found.path, *header)),
        "Check the path. Delete it first where that shelf is gone.");
  }
  throw Error(
      Errc::not_found,
      fmt::format("there is no shelf at {}, and {}", target.home, whose(found.path, *header)),
      format::mirrored_by(*header) == 0U
          ? "Where that shelf is lost, mode=\"r\" opens its mirror, and snapshot() makes a "
            "new one of it."
          : "Give the path of that shelf, or media that are no other's.");
}

// Under the lock of what is replaced: another process may have made it a medium of its own shelf.
void look_again(const std::string& path, OpenOptions options, const Target& target) {
  options.mode = Mode::read;
  const Before before = look_at(open_there(path, options), target);
  if (before.may_go) return;
  throw Error(Errc::exists,
              before.header ? fmt::format("meanwhile {}", whose(path, *before.header))
                            : fmt::format("{} is not blank any more", path),
              "Let one process at a time make shelves there, or give another path.");
}

OfferedMedium made(const std::string& path, const OpenOptions& options, const Target& target,
                   const std::optional<Before>& before) {
  std::optional<std::uint32_t> stands_for;
  if (before && before->header) stands_for = name_tag_of(*before->header);
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path, stands_for));
  return {
      .path = path,
      .found = {make_medium(file, options), file, path},
      .anew = true,
      .unnamed = UnnamedFile{file, before.has_value(), [=] { look_again(path, options, target); }}};
}

}  // namespace

OfferedMedium offered_at(const std::string& path, const OpenOptions& options,
                         const Target& target) {
  std::error_code ignored;
  const bool there = is_there(path);
  const bool made_now = target.coming != Coming::to_shelf;
  std::optional<Before> before;
  if (there && made_now) before = check_may_go(open_there(path, options), options, target);
  const bool is_file =
      std::filesystem::is_regular_file(path, ignored) && made_as(path) == MadeAs::file;
  if (options.mode != Mode::read && (!there || (made_now && is_file))) {
    return made(path, options, target, before);
  }
  const bool anew = target.coming == Coming::in_the_place;
  return {.path = path, .found = open_there(path, options), .anew = anew};
}

}  // namespace tensorshelf
