// The shelf of one rank for real: the store, as released, on a simulated medium of some pages.
// Deeds are done on an image of it, and every image is found that a crash around the last of them
// can leave (crashtest/walk.hpp); each is opened by the real recovery, and read.
//
// Images are numbered, and are one where recovery, and reading all that it shows, look at the same
// bytes: what nobody reads is free space, which is written anew before anything names it (I1). Of a
// page that holds no whole record, as torn ones do, the word of a root counts alone.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "crashtest/disk.hpp"
#include "crashtest/walk.hpp"

namespace tensorshelf {
class Shelf;
}

namespace tensorshelf::group_test {

// One save of a rank: the count-th of a start of the job. Its values follow from it, and are others
// for each rank. The epoch is the world's to know (group_world.hpp).
struct Save {
  std::uint32_t start = 0;
  std::uint32_t count = 0;
  friend auto operator<=>(const Save&, const Save&) = default;
};

// What a shelf shows. `wrong`: in which way it is none that a rank could go on with.
struct Shown {
  std::optional<Save> committed = {};
  std::optional<Save> prepared = {};
  std::string wrong = {};
  friend auto operator<=>(const Shown&, const Shown&) = default;
};

struct Deed {
  enum class Kind { prepare, commit, abandon };
  Kind kind = Kind::prepare;
  Save save = {};  // of prepare
  friend auto operator<=>(const Deed&, const Deed&) = default;
};

struct MediumKind {
  crash::Personality personality = crash::Personality::block;
  std::size_t cap = 4096;  // images for each crash point; where there are more, a sample
};

using ImageId = std::uint32_t;

struct Done {
  Shown shown;                  // by the open shelf, behind the last deed
  std::vector<ImageId> within;  // that a crash within it leaves; sorted, each once
  std::vector<ImageId> behind;  // and one when it has returned
};

class ShelfImages {
 public:
  // The shelf of that rank. With `ahead`, the next save is staged as soon as one is prepared, as a
  // pipeline does that has two in flight.
  ShelfImages(std::uint32_t rank, const MediumKind& medium, bool ahead);
  ShelfImages(const ShelfImages&) = delete;  // what is known of pages points into them

  static constexpr ImageId kNew = 0;  // a shelf with nothing in it, just made
  const Shown& shown(ImageId image) const { return images_[image].shown; }

  // Opens the image and does the deeds in turn: what is left, also by crashes around the last, or
  // around the opening where there are none.
  const Done& run(ImageId image, const std::vector<Deed>& deeds);

  const crash::Counts& counts() const { return counts_; }
  std::size_t distinct() const { return images_.size(); }

 private:
  struct Image {
    Shown shown;
    std::uint64_t size_bytes = 0;
    std::uint64_t room_bytes = 0;
    std::vector<std::uint32_t> pages = {};  // numbers in pages_, of each page from the first on
    std::vector<char> read = {};            // of these, what opening and reading it looks at
  };
  Done run_anew(ImageId image, const std::vector<Deed>& deeds);
  ImageId take(crash::ReadSet& reads);
  std::uint32_t page_number(std::size_t index);
  void load(const Image& image);
  void do_deed(Shelf& shelf, const Deed& deed) const;
  crash::Behaviour behaviour() const;
  unsigned slot_count() const { return ahead_ ? 3 : 2; }

  std::uint32_t rank_;
  MediumKind medium_;
  bool ahead_;
  crash::Disk disk_;
  crash::Log recovery_;  // of the last image that was opened; its memory serves the next
  crash::Rng rng_{1};
  crash::Counts counts_;
  std::vector<Image> images_;
  std::map<std::pair<ImageId, std::vector<Deed>>, Done> done_;
  std::unordered_map<std::string, ImageId> by_key_;
  std::unordered_map<std::uint64_t, ImageId> by_fingerprint_;  // of all bytes
  std::deque<std::string> pages_;  // their bytes, which stay where they are
  std::unordered_map<std::string_view, std::uint32_t> page_numbers_;
  std::vector<std::uint32_t> loaded_;  // pages of the image that was loaded last
};

}  // namespace tensorshelf::group_test
