#include "store/open_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "format/layout.hpp"
#include "media/media.hpp"
#include "media/shifted.hpp"
#include "store/format_shelf.hpp"
#include "store/io/medium_headers.hpp"
#include "store/media_set/older_first.hpp"
#include "store/media_set/open_media.hpp"
#include "store/places/split.hpp"
#include "store/state/unknown_pins.hpp"

namespace tensorshelf {

std::shared_ptr<Store> open_store(const ShelfMedia& media, const OpenOptions& options,
                                  const std::string& path) {
  try {
    return std::make_shared<Store>(media, options, path);
  } catch (const Error& error) {
    throw of_path(path, error);
  }
}

Error of_path(const std::string& path, const Error& error) {
  if (std::string_view(error.what()).starts_with(path)) return error;
  return Error(error.code(), fmt::format("{}: {}", path, error.what()), error.remedy(),
               error.os_error());
}

std::unique_ptr<Medium> mirror_alone(std::unique_ptr<Medium> medium, const OpenOptions& options,
                                     const std::string& note) {
  if (options.mode != Mode::read || !is_first_mirror(*medium)) return medium;
  std::vector<std::string> notes;
  if (!note.empty()) notes.push_back(note);
  if (!is_filled_mirror(*medium)) {
    notes.emplace_back(
        "this mirror was being filled, and that came to no end: it may have an older version than "
        "its shelf had, and of that one only parts; verify() tells");
  }
  return std::make_unique<ShiftedMedium>(std::move(medium), format::kMirrorAt, std::move(notes));
}

namespace {

using GivenMedia = std::vector<OfferedMedium>;

Opened open_existing(const std::filesystem::path& path, const OpenOptions& options,
                     GivenMedia offered, const std::string& note = {}) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, options.mode != Mode::read));
  auto medium = make_medium(file, options);
  const bool mirror = options.mode == Mode::read && is_first_mirror(*medium);
  const auto media = media_at(path, mirror_alone(std::move(medium), options, note), options,
                              std::move(offered), mirror);
  return {open_store(media, options, path.string()), file};
}

// For a look; nothing where it cannot be opened.
std::unique_ptr<Medium> look_at(const std::filesystem::path& path, OpenOptions options) {
  options.mode = Mode::read;
  try {
    return make_medium(std::make_shared<ShelfFile>(ShelfFile::open(path, false)), options);
  } catch (const Error&) {
    return {};
  }
}

// The first mirror that was given of the shelf's own medium and may stand for it.
std::optional<std::string> first_mirror(const std::filesystem::path& path,
                                        const OpenOptions& options) {
  for (const Mirror& each : options.mirrors) {
    if (each.of != 0) continue;
    const auto mirror = look_at(each.path, options);
    if (!mirror || !is_first_mirror(*mirror)) continue;
    const auto first = look_at(path, options);
    if (!first || !is_older(*mirror, *first)) return each.path;
  }
  return std::nullopt;
}

bool may_be_lost(const Error& error) {
  constexpr std::array kLost = {Errc::not_found, Errc::not_a_shelf, Errc::truncated, Errc::corrupt,
                                Errc::io};
  return std::ranges::find(kLost, error.code()) != kLost.end();
}

// Where the shelf's own medium cannot be opened, and its mirror was given: for reading that serves,
// and who may write hears of it.
Opened open_or_mirror(const std::filesystem::path& path, const OpenOptions& options,
                      GivenMedia offered) {
  try {
    return open_existing(path, options, std::move(offered));
  } catch (const Error& error) {
    const auto mirror = may_be_lost(error) ? first_mirror(path, options) : std::nullopt;
    if (!mirror) throw;
    if (options.mode != Mode::read) {
      throw Error(error.code(), error.what(),
                  fmt::format("{} Or go on from its mirror: mode=\"r\" opens {}, and snapshot() "
                              "makes a whole shelf of it.",
                              error.remedy(), *mirror),
                  error.os_error());
    }
    OpenOptions alone = options;
    std::erase_if(alone.mirrors, [](const Mirror& each) { return each.of == 0; });
    return open_existing(*mirror, alone, open_offered(*mirror, alone, Coming::to_shelf),
                         fmt::format("the shelf's own medium cannot be opened ({}): its mirror is "
                                     "read in its place",
                                     error.what()));
  }
}

// A regular file of 0 bytes, as touch and tempfile make them: nothing can be lost with it.
bool is_empty_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  return std::filesystem::file_size(path, error) == 0 && !error;
}

void refuse_existing(const std::filesystem::path& path) {
  std::error_code ignored;  // then making it says why
  if (!std::filesystem::exists(path, ignored) || made_as(path) == MadeAs::parts) return;
  throw Error(Errc::exists, fmt::format("there is a file at {} already", path.string()),
              "Open it with mode \"a\", or replace it with mode \"w\".");
}

GivenMedia offered_when_made(const std::filesystem::path& path, const OpenOptions& options) {
  if (options.also.empty() && options.mirrors.empty()) return {};
  if (options.mode == Mode::replace) {
    return open_offered(path, options, Coming::in_the_place, shelf_at(path, options));
  }
  if (options.mode == Mode::create) refuse_existing(path);
  return open_offered(path, options, Coming::to_new);
}

// Errc::full before anything is lost for it, or claimed.
void make_room_for(Medium& first, const GivenMedia& offered) {
  constexpr std::uint64_t kFirstPages = std::uint64_t{1} << 20;  // that a version may need
  const std::uint64_t first_bytes = std::max(first.size(), format::kHeapAt + kFirstPages);
  for (const OfferedMedium& each : offered) {
    std::uint64_t size = format::kMediumHeapAt;
    if (each.mirrors) size = format::kMirrorAt + (*each.mirrors == 0 ? first_bytes : size);
    each.found.medium->reserve(size);
  }
}

void publish(ShelfFile& file, const std::filesystem::path& path, Mode mode) {
  if (is_empty_file(path) && mode == Mode::append) return file.publish_over_empty();
  file.publish(mode == Mode::replace);
}

// First the shelf, which the others are for. Where it has its name and one of them cannot have its
// own, the rest stay beside their places, durable (I2): mode "w" goes on from that
// (offered_at.cpp).
void publish_all(ShelfFile& shelf, const std::vector<UnnamedFile>& files,
                 const std::function<void()>& publish_shelf) {
  try {
    if (planted(Bug::media_named_first)) {
      for (const UnnamedFile& each : files) each.publish();
      return publish_shelf();
    }
    for (const UnnamedFile& each : files) {
      if (!planted(Bug::media_unsettled)) each.file->settle();
    }
    publish_shelf();
    for (const UnnamedFile& each : files) each.publish();
  } catch (...) {
    if (shelf.unpublished() || files.empty()) throw;
    for (const UnnamedFile& each : files) {
      if (!planted(Bug::left_media_removed)) each.file->leave();
    }
    try {
      throw;
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}; the shelf has its name already", error.what()),
                  fmt::format("{} Then open it with mode=\"w\" again: it lacks media before.",
                              error.remedy()),
                  error.os_error());
    }
  }
}

// The file appears under its name only when it is a whole shelf. Files of other media get theirs
// behind it, once the shelf has them all, so that what takes the place of another takes it when
// nothing is in the way. A device that is a medium has a name already: it must not say that it is a
// shelf's before there is one.
Opened create_file(const std::filesystem::path& path, const OpenOptions& options) {
  auto offered = offered_when_made(path, options);
  std::vector<UnnamedFile> unnamed;
  const bool any_devices =
      std::ranges::any_of(offered, [](const auto& each) { return !each.unnamed; });
  for (auto& each : offered) {
    if (!any_devices) unnamed.push_back(*std::exchange(each.unnamed, std::nullopt));
  }
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  auto medium = make_medium(file, options);
  make_room_for(*medium, offered);
  format_shelf(*medium, split_of(options));
  if (any_devices) publish(*file, path, options.mode);
  const auto media = media_at(path, std::move(medium), options, std::move(offered));
  Opened opened{open_store(media, options, path.string()), file, true};
  if (!any_devices) publish_all(*file, unnamed, [&] { publish(*file, path, options.mode); });
  return opened;
}

// On what is there, or describes where.
Opened format_in_place(const std::filesystem::path& path, const OpenOptions& options) {
  auto offered = offered_when_made(path, options);
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, true));
  auto medium = make_medium(file, options);
  const Patience patience(options.while_waiting);
  const std::string name = path.string();
  await_unknown_pins(*medium, {options.on_pin, options.pin_timeout, patience, name}, 0, 0);
  make_room_for(*medium, offered);
  format_shelf(*medium, split_of(options));
  const auto media = media_at(path, std::move(medium), options, std::move(offered));
  return {open_store(media, options, name), file, true};
}

Opened open_or_create(const std::filesystem::path& path, const OpenOptions& options) {
  constexpr int kRaces = 100;  // that others may win, each by making the shelf or taking it away
  bool looked_again = false;
  for (int races = 0;; ++races) {
    // Their errors are not the shelf's.
    GivenMedia offered = open_offered(path, options, Coming::to_shelf);
    try {
      return open_or_mirror(path, options, std::move(offered));
    } catch (const Error& error) {
      if (error.code() != Errc::not_found && error.code() != Errc::not_a_shelf) throw;
      if (error.code() == Errc::not_a_shelf && !is_empty_file(path)) {
        if (looked_again) throw;
        looked_again = true;  // it may have been empty, and another process was faster
        continue;
      }
    }
    try {
      if (made_as(path) != MadeAs::parts) return create_file(path, options);
      OpenOptions anew = options;  // there is none of them yet
      anew.mode = Mode::create;
      return format_in_place(path, anew);
    } catch (const Error& error) {
      // Another process made it first: open that one.
      if (error.code() != Errc::exists || races == kRaces) throw;
    }
  }
}

}  // namespace

Opened open_path(const std::filesystem::path& path, const OpenOptions& options) {
  switch (options.mode) {
    case Mode::read:
    case Mode::update:
      return open_or_mirror(path, options, open_offered(path, options, Coming::to_shelf));
    case Mode::append:
      return open_or_create(path, options);
    case Mode::replace:
      return made_as(path) == MadeAs::file ? create_file(path, options)
                                           : format_in_place(path, options);
    case Mode::create:
      if (made_as(path) == MadeAs::parts) return format_in_place(path, options);
      if (made_as(path) == MadeAs::device) {
        throw Error(Errc::exists,
                    fmt::format("{} is a device, and is there already", path.string()),
                    "mode \"w\" makes a shelf of it and erases what there is.");
      }
      return create_file(path, options);
  }
  throw Error(Errc::bad_argument, "the mode is none of those that there are", "Use Mode::append.");
}

}  // namespace tensorshelf
