#include "survey.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "base/copy_hash.hpp"
#include "format/format.hpp"

namespace tensorshelf::crash {
namespace {

using format::kCopies;
using format::kSlots;
using format::Page;
using format::PageRef;
using format::Root;

class Walk {
 public:
  explicit Walk(std::span<const std::byte> disk) : disk_(disk) {}

  Survey run() {
    superblocks();
    if (!seeds_) return std::move(survey_);
    incarnations();
    const std::optional<Root> root = roots();
    if (root) manifest(*root);
    return std::move(survey_);
  }

 private:
  bool load(std::uint64_t at, Page& page) {
    if (at > disk_.size() || disk_.size() - at < kPageBytes) return false;
    std::memcpy(page.bytes.data(), disk_.data() + at, kPageBytes);
    return true;
  }

  void note(bool whole, const char* what, std::uint64_t at, std::uint64_t object,
            Place::What kind = Place::What::metadata) {
    survey_.places.push_back({.what = kind, .at = at, .size_bytes = kPageBytes, .object = object});
    if (whole || !survey_.damage.empty()) return;
    survey_.damage = fmt::format("the copy of the {} at {:#x} is damaged", what, at);
  }

  // Objects are called by the place of their first copy.
  void superblocks() {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const std::uint64_t at = format::superblock_at(copy);
      Page page;
      if (!load(at, page)) return;
      const auto read = format::read_superblock(page, copy);
      const bool good = read.state == format::SuperblockState::good;
      if (good && !seeds_) seeds_.emplace(read.superblock.shelf_id);
      note(good, "superblock", at, format::superblock_at(0));
    }
  }

  void incarnations() {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const std::uint64_t at = format::incarnation_at(copy);
      Page page;
      const bool good = load(at, page) && format::read_incarnation(page, *seeds_, copy);
      note(good, "incarnation", at, format::incarnation_at(0));
    }
  }

  std::optional<Root> roots() {
    std::array<std::array<std::optional<Root>, kCopies>, kSlots> found;
    std::optional<Root> newest;
    for (unsigned home = 0; home < kSlots; ++home) {
      for (unsigned copy = 0; copy < kCopies; ++copy) {
        Page page;
        if (!load(format::root_at(home, copy), page)) continue;
        const auto root = found[home][copy] = format::read_root(page, *seeds_, home, copy);
        if (root &&
            (!newest || format::word_version(root->word) > format::word_version(newest->word))) {
          newest = root;
        }
      }
    }
    for (unsigned home = 0; home < kSlots; ++home) {
      const bool current = newest && format::word_version(newest->word) % kSlots == home;
      for (unsigned copy = 0; copy < kCopies; ++copy) {
        const auto& root = found[home][copy];
        // What lies in the other home may be left of an attempt.
        note(!current || (root && root->word == newest->word), "root", format::root_at(home, copy),
             format::root_at(home, 0), current ? Place::What::metadata : Place::What::older_root);
      }
    }
    return newest;
  }

  // Of the copies, a whole one; and both are noted.
  bool load_page(const PageRef& ref, Page& good) {
    bool any = false;
    for (const std::uint64_t at : ref.at) {
      Page page;
      const bool whole =
          load(at, page) && hash_bytes(page.bytes, seeds_->page(ref.at[0])) == ref.checksum;
      if (whole && !any) good = page;
      any = any || whole;
      note(whole, "manifest page", at, ref.at[0]);
    }
    return any;
  }

  void manifest(const Root& root) {
    std::vector<Page> cells;
    std::vector<format::TensorLayout> layouts;
    Page directory;
    Page leaf;
    for (std::uint32_t index = 0; index < root.leaf_count; ++index) {
      const std::uint32_t within = index % format::kDirectoryRefs;
      if (within == 0 && !load_page(root.directories[index / format::kDirectoryRefs], directory)) {
        return;
      }
      if (!load_page(format::directory_ref(directory, within), leaf)) return;
      const format::PageHead head = format::page_head(leaf);
      if (head.kind == format::PageKind::cells) {
        if (cells.size() <= head.index) cells.resize(head.index + 1);
        cells[head.index] = leaf;
        continue;
      }
      std::string reason;
      auto records = format::read_records(leaf, reason);
      if (!records) return;
      layouts.insert(layouts.end(), records->begin(), records->end());
    }
    for (const format::TensorLayout& layout : layouts) data(layout, cells);
  }

  void data(const format::TensorLayout& layout, const std::vector<Page>& cells) {
    const std::uint64_t number = layout.first_cell / format::kPageCells;
    if (number >= cells.size()) return;
    const auto within = static_cast<unsigned>(layout.first_cell % format::kPageCells);
    const std::uint64_t state = format::cell(cells[number], within);
    const unsigned slot = format::state_slot(state);
    if (slot >= kSlots) return;
    survey_.places.push_back({.what = Place::What::data,
                              .at = layout.slot_at[slot],
                              .size_bytes = layout.size_bytes,
                              .tensor = survey_.tensors.size()});
    survey_.tensors.push_back(layout.name);
  }

  std::span<const std::byte> disk_;
  std::optional<format::Seeds> seeds_;
  Survey survey_;
};

}  // namespace

const Place* Survey::find(std::uint64_t page) const {
  for (const Place& place : places) {
    if (place.at < page + kPageBytes && page < place.at + place.size_bytes) return &place;
  }
  return nullptr;
}

const Place* Survey::other_copy(const Place& place) const {
  for (const Place& other : places) {
    if (other.what == place.what && place.what != Place::What::data &&
        other.object == place.object && other.at != place.at) {
      return &other;
    }
  }
  return nullptr;
}

Survey survey(std::span<const std::byte> disk) { return Walk(disk).run(); }

}  // namespace tensorshelf::crash
