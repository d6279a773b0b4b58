#include "store/open_path.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include <tensorshelf/error.hpp>

#include "format/layout.hpp"
#include "media/media.hpp"
#include "media/shifted.hpp"
#include "store/format_shelf.hpp"
#include "store/medium_headers.hpp"
#include "store/pinned.hpp"
#include "store/split.hpp"

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

void format_medium(Medium& medium, const OpenOptions& options) {
  const Split split = split_of(options);
  format_shelf(medium, split.keep, split.in_flight);
}

std::unique_ptr<Medium> mirror_alone(std::unique_ptr<Medium> medium, const OpenOptions& options) {
  if (options.mode != Mode::read || !is_first_mirror(*medium)) return medium;
  std::string note;
  if (!is_filled_mirror(*medium)) {
    note =
        "this mirror was being filled, and that came to no end: it may have an older version than "
        "its shelf had, and of that one only parts; verify() tells";
  }
  return std::make_unique<ShiftedMedium>(std::move(medium), format::kMirrorAt, note);
}

namespace {

using OfferedMedia = std::vector<OfferedMedium>;

Opened open_existing(const std::filesystem::path& path, const OpenOptions& options,
                     OfferedMedia offered) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, options.mode != Mode::read));
  auto medium = make_medium(file, options);
  const auto media =
      media_at(path, mirror_alone(std::move(medium), options), options, std::move(offered));
  return {open_store(media, options, path.string()), file};
}

// A regular file of 0 bytes, as touch and tempfile make them: nothing can be lost with it.
bool is_empty_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  return std::filesystem::file_size(path, error) == 0 && !error;
}

OfferedMedia offered_when_made(const std::filesystem::path& path, const OpenOptions& options) {
  if (options.also.empty() && options.mirrors.empty()) return {};
  const bool replaces = options.mode == Mode::replace;
  return offered_media(options, replaces, replaces ? shelf_at(path, options) : std::nullopt);
}

// Before a shelf is made where there is none: media of one that should be there.
void refuse_orphans(const std::filesystem::path& path, const OfferedMedia& offered) {
  for (const OfferedMedium& each : offered) {
    if (!each.found.medium || each.anew) continue;
    const auto header = read_medium_headers(*each.found.medium, 0).best();
    if (!header) continue;
    const bool mirrors = format::mirrored_by(*header) == 0U;
    throw Error(Errc::not_found,
                fmt::format("there is no shelf at {}, and {} is medium {} of the shelf {}",
                            path.string(), each.path, header->index, id_text(header->shelf_id)),
                mirrors ? "Where that shelf is lost, mode=\"r\" opens its mirror, and snapshot() "
                          "makes a new one of it."
                        : "Give the path of that shelf, or media that are no other's.");
  }
}

// The file appears under its name only when it is a whole shelf.
Opened create_file(const std::filesystem::path& path, const OpenOptions& options) {
  auto offered = offered_when_made(path, options);
  refuse_orphans(path, offered);
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  auto medium = make_medium(file, options);
  format_medium(*medium, options);
  if (is_empty_file(path) && options.mode == Mode::append) {
    file->publish_over_empty();
  } else {
    file->publish(options.mode == Mode::replace);
  }
  const auto media = media_at(path, std::move(medium), options, std::move(offered));
  return {open_store(media, options, path.string()), file, true};
}

// A device, or a pool set.
Opened format_in_place(const std::filesystem::path& path, const OpenOptions& options) {
  auto offered = offered_when_made(path, options);
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, true));
  auto medium = make_medium(file, options);
  const Patience patience(options.while_waiting);
  const std::string name = path.string();
  check_pin_timeout(options.pin_timeout);
  await_unknown_pins(*medium, {options.on_pin, options.pin_timeout, patience, name}, 0, 0);
  format_medium(*medium, options);
  const auto media = media_at(path, std::move(medium), options, std::move(offered));
  return {open_store(media, options, name), file, true};
}

bool is_device(const std::filesystem::path& path) {
  std::error_code ignored;  // a path that cannot be asked about is none
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::is_block_file(status) || std::filesystem::is_character_file(status);
}

Opened open_or_create(const std::filesystem::path& path, const OpenOptions& options) {
  for (bool looked_again = false;;) {
    OfferedMedia offered = offered_media(options, false);  // whose errors are not the shelf's
    try {
      return open_existing(path, options, std::move(offered));
    } catch (const Error& error) {
      if (error.code() != Errc::not_found && error.code() != Errc::not_a_shelf) throw;
      if (error.code() == Errc::not_a_shelf && !is_empty_file(path)) {
        if (looked_again) throw;
        looked_again = true;  // it may have been empty, and another process was faster
        continue;
      }
    }
    try {
      if (!is_pool_set(path)) return create_file(path, options);
      OpenOptions anew = options;  // a pool set whose parts are to be made
      anew.mode = Mode::create;
      return format_in_place(path, anew);
    } catch (const Error& error) {
      if (error.code() != Errc::exists) throw;  // another process made it first: open that one
    }
  }
}

}  // namespace

Opened open_path(const std::filesystem::path& path, const OpenOptions& options) {
  switch (options.mode) {
    case Mode::read:
    case Mode::update:
      return open_existing(path, options, offered_media(options, false));
    case Mode::append:
      return open_or_create(path, options);
    case Mode::replace:
      return is_device(path) || is_pool_set(path) ? format_in_place(path, options)
                                                  : create_file(path, options);
    case Mode::create:
      if (is_pool_set(path)) return format_in_place(path, options);
      if (is_device(path)) {
        throw Error(Errc::exists,
                    fmt::format("{} is a device, and is there already", path.string()),
                    "mode \"w\" makes a shelf of it and erases what there is.");
      }
      return create_file(path, options);
  }
  throw Error(Errc::bad_argument, "the mode is none of those that there are", "Use Mode::append.");
}

void check_id(std::string_view id) {
  if (id.size() <= format::kMaxIdBytes) return;
  throw Error(Errc::bad_argument, fmt::format("an id of {} bytes", id.size()),
              fmt::format("Use {} bytes at most.", format::kMaxIdBytes));
}

void check_step(std::optional<std::uint64_t> step) {
  if (step != format::kNoStep) return;
  throw Error(Errc::bad_argument, fmt::format("the step {} is what stands for none", *step),
              "Use 0 to 2^64 - 2, or none.");
}

void check_name(const std::weak_ptr<const ShelfFile>& file) {
  if (const auto there = file.lock()) there->check_name();
}

}  // namespace tensorshelf
