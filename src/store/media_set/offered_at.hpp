// A medium that is given by its path: what lies there, and whether it may go, or else a file that
// gets its name once it bears whose it is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <tensorshelf/options.hpp>

#include "format/layout.hpp"
#include "store/media_set/offered_media.hpp"

namespace tensorshelf {

// What the media that are given come to.
enum class Coming {
  to_shelf,      // that is there
  to_new,        // to a shelf that is made: they are blank, or not there yet
  in_the_place,  // to one that takes the place of another, whose media may go with it
};

// Which shelf media are given to, and what for; `of`: the one that is replaced there.
struct Target {
  std::string home;
  Coming coming;
  std::optional<format::ShelfId> of;
};

// For a shelf that is made, or anew, files are others, which get their names once they are whole.
// What goes for them is blank, or was of the shelf that is replaced: a wrong path costs nobody
// anything else. Errors as opening.
OfferedMedium offered_at(const std::string& path, const OpenOptions& options, const Target& target);

FoundMedium open_there(const std::string& path, const OpenOptions& options);
bool is_there(const std::filesystem::path& path);

// Paths are kept as they lead to a place from anywhere.
std::string absolute(const std::string& path);

// Where links lead, also to what does not exist yet. Those of a device stay, for udev makes them to
// last longer than what they lead to.
std::string home_of(const std::filesystem::path& path);

}  // namespace tensorshelf
