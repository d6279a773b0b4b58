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

}  // namespace tensorshelf
