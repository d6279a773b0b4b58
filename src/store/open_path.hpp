// From a path and a mode to a store: what is opened, made or replaced there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "media/file.hpp"
#include "store/store.hpp"

namespace tensorshelf {

// A shelf in a file: the medium alone keeps the file, so that close() gives up its lock.
struct Opened {
  std::shared_ptr<Store> store;
  std::weak_ptr<const ShelfFile> file = {};
  bool created = false;
};

Opened open_path(const std::filesystem::path& path, const OpenOptions& options);

// `path` is for the texts of errors.
std::shared_ptr<Store> open_store(const ShelfMedia& media, const OpenOptions& options,
                                  const std::string& path);

// What a shelf is opened on: the medium itself, or for reading what the mirror of a shelf's own
// has; `note`: what is to be said of it then.
std::unique_ptr<Medium> mirror_alone(std::unique_ptr<Medium> medium, const OpenOptions& options,
                                     const std::string& note = {});

// What recovery says, it says of a medium: the same error with the path in front, where it has not
// named it itself.
Error of_path(const std::string& path, const Error& error);

// An empty shelf at version 0, with K as the options say.
void format_medium(Medium& medium, const OpenOptions& options);

// Before a commit is begun, so that the shelf stays as it is, can be read, and can try again:
// Errc::bad_argument for the step that stands for none; Errc::gone where the file has lost its
// name.
void check_step(std::optional<std::uint64_t> step);
void check_id(std::string_view id);                           // of what is prepared
void check_name(const std::weak_ptr<const ShelfFile>& file);  // none: a medium of one's own

}  // namespace tensorshelf
