// The media of a shelf beside its first, from the paths that were given (OpenOptions::also), or
// where a version says that they were.
#include <utility>

#include <tensorshelf/error.hpp>

#include "media/media.hpp"
#include "store/open_path.hpp"

namespace tensorshelf {
namespace {

FoundMedium open_there(const std::string& path, const OpenOptions& options) {
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, options.mode != Mode::read));
  return {make_medium(file, options), file};
}

bool is_there(const std::string& path) {
  std::error_code ignored;  // then opening it says why
  return std::filesystem::exists(path, ignored);
}

// A file appears under its name when it bears whose it is.
OfferedMedium made(const std::string& path, const OpenOptions& options, bool replaces) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  OfferedMedium offered{.path = path, .found = {make_medium(file, options), file}, .anew = true};
  offered.published = [file, replaces] { file->publish(replaces); };
  return offered;
}

OfferedMedium offered_at(const std::string& path, const OpenOptions& options, bool replaced) {
  std::error_code ignored;
  const bool makes = options.mode != Mode::read;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  if (makes && (!is_there(path) || (replaced && is_file))) return made(path, options, replaced);
  return {.path = path, .found = open_there(path, options), .anew = replaced};
}

// Paths are kept as they lead to a place from anywhere.
std::string absolute(const std::string& path) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return whole.empty() ? path : whole.string();
}

}  // namespace

ShelfMedia media_of(std::unique_ptr<Medium> first, const OpenOptions& options, bool replaced) {
  std::vector<OfferedMedium> offered;
  for (const std::string& path : options.also) {
    offered.push_back(offered_at(absolute(path), options, replaced));
  }
  const auto find = [options](const std::string& path) { return open_there(path, options); };
  return shelf_media(std::move(first), std::move(offered), find);
}

}  // namespace tensorshelf
