// Media that were given when the shelf was opened, until they are attached: told apart by what they
// bear, for paths bind nobody; and those that a version names, found where it says they were last.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "media/media.hpp"

namespace tensorshelf {

// The medium alone keeps its file, so that close() gives up the lock.
struct FoundMedium {
  std::unique_ptr<Medium> medium;
  std::weak_ptr<const ShelfFile> file = {};
  std::string path = {};
};

// A file that gets its name when it bears whose it is.
struct UnnamedFile {
  std::shared_ptr<ShelfFile> file;
  bool replaces = false;
  std::function<void()> look_again = {};  // at what it replaces: throws where that may not go

  // Who opens what it replaces locks that for a moment, whatever it is then told.
  void publish() const;
};

// One that may be of the shelf, or is to become one of it.
struct OfferedMedium {
  std::string path;
  FoundMedium found;
  std::optional<unsigned> mirrors = {};  // what it is to mirror
  bool anew = false;                     // whatever lies there may go
  std::optional<UnnamedFile> unnamed = {};
};

// What to do about one that is missing.
inline constexpr const char* kGiveMedium =
    "Give its path by also=, wherever it is now. Without it, mode=\"r\", salvage=True shows what "
    "the other media have.";

// Where a version says that one was last, or a mirror. Errc::not_found where nothing is there; no
// medium where what is there was offered, and is another's.
using FindMedium = std::function<FoundMedium(const std::string& path, bool mirror)>;

// Errc::not_a_shelf, with what lies there.
[[noreturn]] void throw_no_medium(Medium& medium, const std::string& path);

// For who opens alone.
class OfferedMedia {
 public:
  OfferedMedia(std::vector<OfferedMedium> given, FindMedium find);

  // What belongs to another shelf is refused, and what is there twice: Errc::medium_missing;
  // not_a_shelf where something else lies there; newer_format. Where mirrors may be missing, one
  // that is none is left out, and noted.
  std::vector<std::string> classify(const format::ShelfId& shelf_id, bool spares_mirrors);

  bool has(const format::ShelfId& medium_id) const { return find(medium_id) != nullptr; }
  struct Search {
    FoundMedium found;
    std::string why_not;  // where there is something, and none of this shelf's to be written to
  };
  // That medium of those that were given; no medium where it is none of these.
  FoundMedium take_given(const format::ShelfId& medium_id);
  // The same, or where the version says that it was last.
  // `moved`: the shelf is not where it was, so what lies where the version says may be another's.
  // `needed`: what lies there and cannot be opened is an error.
  Search take(const format::MediumLayout& named, bool moved, bool needed);

  struct Offered {
    OfferedMedium given;  // without a medium, once that was taken
    std::optional<format::MediumHeader> header;

    bool is_left() const { return given.found.medium != nullptr; }
    bool mirrors_first() const { return header && format::mirrored_by(*header) == 0U; }
  };
  std::vector<Offered>& all() { return offered_; }
  const std::vector<Offered>& all() const { return offered_; }

 private:
  void classify(Offered& offered) const;
  void refuse_doubles() const;
  const Offered* find(const format::ShelfId& medium_id) const;

  std::vector<Offered> offered_;
  const FindMedium find_;
  format::ShelfId shelf_id_ = {};
};

}  // namespace tensorshelf
