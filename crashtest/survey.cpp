#include "survey.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/copy_hash.hpp"
#include "format/bytes.hpp"
#include "format/format.hpp"

namespace tensorshelf::crash {
namespace {

using format::kCopies;
using format::Page;
using format::PageRef;
using format::RawPage;
using format::Root;

class Walk {
 public:
  Walk(std::span<const std::byte> disk, std::uint64_t second_bytes)
      : disk_(disk.subspan(std::min<std::uint64_t>(second_bytes, disk.size()))),
        second_(disk.first(disk.size() - disk_.size())) {}

  Survey run() {
    superblocks();
    if (!seeds_) return std::move(survey_);
    incarnations();
    marks();
    for (const Root& root : roots()) manifest(root);
    for (Place& place : survey_.places) {
      place.at = medium_of(place.at) == 0 ? second_.size() + place.at : offset_of(place.at);
    }
    second();
    return std::move(survey_);
  }

 private:
  bool load(std::uint64_t at, RawPage& page) {
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

  // What the second medium bears. That nothing names it yet is no matter.
  void second() {
    if (second_.empty()) return;
    std::optional<std::uint64_t> stamped;
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      RawPage page;
      const std::uint64_t header = format::medium_header_at(copy);
      const std::uint64_t stamp_at = format::medium_stamp_at(copy);
      std::memcpy(page.bytes.data(), second_.data() + header, kPageBytes);
      const auto found = format::read_medium_header(page, copy);
      note(found.has_value(), "header of the second medium", header, kSecondObject);
      format::RawStamp stamp;
      std::memcpy(stamp.bytes.data(), second_.data() + stamp_at, stamp.bytes.size());
      if (found) medium_id_ = found->medium_id;
      const auto says = medium_id_ ? format::stamped_version(*medium_id_, stamp) : std::nullopt;
      note(says.has_value(), "stamp of the second medium", stamp_at, kSecondObject + 1);
      stamped = std::max(stamped, says);
    }
    survey_.second_filled = format::is_stamp(stamped, format::MirrorStamp::filled);
    survey_.second_serves = stamped && !format::is_stamp(stamped, format::MirrorStamp::refilling);
  }

  // Objects are called by the place of their first copy.
  void superblocks() {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const std::uint64_t at = format::superblock_at(copy);
      RawPage page;
      if (!load(at, page)) return;
      const auto read = format::read_superblock(page, copy);
      const bool good = read.superblock.has_value();
      if (good && !seeds_) {
        seeds_.emplace(read.superblock->shelf_id);
        slots_ = read.superblock->slot_count;
      }
      note(good, "superblock", at, format::superblock_at(0));
    }
  }

  void incarnations() {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const std::uint64_t at = format::incarnation_at(copy);
      RawPage page;
      const bool good = load(at, page) && format::read_incarnation(page, *seeds_, copy);
      note(good, "incarnation", at, format::incarnation_at(0));
    }
  }

  void marks() {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const std::uint64_t at = format::mark_at(copy);
      RawPage page;
      const auto mark = load(at, page) ? format::read_mark(page, *seeds_, copy) : std::nullopt;
      note(mark.has_value(), "mark", at, format::mark_at(0));
      if (mark && (!mark_ || mark->counter > mark_->counter)) mark_ = mark;
    }
  }

  // The root that the mark means, in the home of the version after `newest`.
  std::optional<Root> described(std::uint64_t newest, unsigned copy) {
    if (!mark_ || mark_->version != newest + 1) return std::nullopt;
    const unsigned home = format::home_of(mark_->version, slots_);
    RawPage page;
    if (!load(format::root_at(home, copy), page)) return std::nullopt;
    const format::RootPlace place{home, copy, slots_};
    if (format::read_root(page, *seeds_, place)) return std::nullopt;  // flipped
    const auto root = format::read_described(page, mark_->version, *seeds_, place);
    const bool meant = root &&
                       format::word_tag(root->word) != format::word_tag(format::root_word(page)) &&
                       root->incarnation == mark_->incarnation && root->sequence == mark_->sequence;
    return meant ? root : std::nullopt;
  }

  // Whether a home that waits for its next version says so: by an attempt at that, or by nothing at
  // all, under the word of the version before it there.
  bool waits(std::uint64_t newest, unsigned home, unsigned copy) {
    RawPage page;
    if (!load(format::root_at(home, copy), page)) return false;
    std::uint64_t version = newest + 1;
    while (format::home_of(version, slots_) != home) ++version;
    const std::uint64_t word = format::root_word(page);
    const bool old = version < slots_ ? word == format::kUnusedHomeWord
                                      : word != 0 && format::word_version(word) + slots_ == version;
    const auto attempt = format::read_described(page, version, *seeds_, {home, copy, slots_});
    const bool blank = std::all_of(page.bytes.begin() + sizeof word, page.bytes.end(),
                                   [](std::byte b) { return b == std::byte{0}; });
    return old && (attempt || blank);
  }

  // Of the versions that are retained, the newest first; both copies of every home are noted.
  std::vector<Root> roots() {
    std::array<std::array<std::optional<Root>, kCopies>, format::kMaxSlots> found;
    std::optional<Root> newest;
    for (unsigned home = 0; home < slots_; ++home) {
      for (unsigned copy = 0; copy < kCopies; ++copy) {
        RawPage page;
        if (!load(format::root_at(home, copy), page)) continue;
        const auto root = found[home][copy] =
            format::read_root(page, *seeds_, {home, copy, slots_});
        if (root &&
            (!newest || format::word_version(root->word) > format::word_version(newest->word))) {
          newest = root;
        }
      }
    }
    std::vector<Root> retained;
    std::array<std::uint64_t, format::kMaxSlots> words = {};  // of those that are named, else 0
    const std::uint64_t last = newest ? format::word_version(newest->word) + 1 : 0;
    for (std::uint64_t number = last; newest && number-- > newest->floor;) {
      const Root* whole = nullptr;
      for (const auto& root : found[format::home_of(number, slots_)]) {
        if (root && format::word_version(root->word) == number) whole = &*root;
      }
      if (whole == nullptr) break;  // it was given up, and those before it
      words[format::home_of(number, slots_)] = whole->word;
      retained.push_back(*whole);
    }
    std::optional<Root> prepared;
    for (unsigned copy = 0; newest && copy < kCopies; ++copy) {
      const auto there = described(format::word_version(newest->word), copy);
      if (there && !prepared) prepared = there;
    }
    for (unsigned home = 0; home < slots_; ++home) {
      if (prepared && home == format::home_of(*prepared)) {
        for (unsigned copy = 0; copy < kCopies; ++copy) {
          note(described(format::word_version(newest->word), copy).has_value(), "prepared root",
               format::root_at(home, copy), format::root_at(home, 0));
        }
        continue;
      }
      const bool named = words[home] != 0;
      std::array<bool, kCopies> whole = {};
      for (unsigned copy = 0; copy < kCopies; ++copy) {
        const auto& root = found[home][copy];
        whole[copy] = named    ? root && root->word == words[home]
                      : newest ? root || waits(format::word_version(newest->word), home, copy)
                               : true;
      }
      // What an attempt left half-written is nobody's until the shelf is opened for writing.
      const bool counts = named || (whole[0] && whole[1]);
      for (unsigned copy = 0; copy < kCopies; ++copy) {
        note(whole[copy], named ? "root" : "waiting home", format::root_at(home, copy),
             format::root_at(home, 0), counts ? Place::What::metadata : Place::What::older_root);
      }
    }
    if (prepared) retained.push_back(*prepared);  // last: its data is no version's
    return retained;
  }

  // Of the copies, a whole one; and both are noted.
  bool load_page(const PageRef& ref, Page& good) {
    bool any = false;
    for (const std::uint64_t at : ref.at) {
      RawPage page;
      const bool whole =
          load(at, page) && hash_bytes(page.bytes, seeds_->page(ref.at[0])) == ref.checksum;
      if (whole && !any) within(good) = page.bytes;
      any = any || whole;
      if (seen_.insert({at, ref.checksum}).second) note(whole, "manifest page", at, ref.at[0]);
    }
    return any;
  }

  void manifest(const Root& root) {
    std::vector<PageRef> refs(root.pages.begin(), root.pages.end());
    for (unsigned level = format::root_levels(root); level > 0; --level) {
      std::vector<PageRef> below;
      const std::uint64_t pages = format::level_pages(root.leaf_count, level);
      for (std::uint64_t i = 0; i < pages; ++i) {
        Page directory;
        if (!load_page(refs[i], directory)) return;
        for (unsigned ref = 0; ref < format::kDirectoryRefs; ++ref) {
          below.push_back(format::directory_ref(directory, ref));
        }
      }
      refs = std::move(below);
    }
    std::vector<Page> cells;
    std::vector<format::TensorLayout> layouts;
    for (std::uint32_t index = 0; index < root.leaf_count; ++index) {
      Page leaf;
      if (!load_page(refs[index], leaf)) return;
      const format::PageHead head = format::page_head(leaf);
      if (head.kind == format::PageKind::media) continue;
      if (head.kind == format::PageKind::cells) {
        if (cells.size() <= head.index) cells.resize(head.index + 1);
        cells[head.index] = leaf;
        continue;
      }
      std::string reason;
      if (!format::read_records(leaf, slots_, layouts, reason)) return;
    }
    if (!std::exchange(first_, false)) return;
    for (const format::TensorLayout& layout : layouts) data(layout, cells);
  }

  // Runs of chunks that lie side by side, each a place.
  void data(const format::TensorLayout& layout, const std::vector<Page>& cells) {
    const std::uint64_t tensor = survey_.tensors.size();
    survey_.tensors.push_back(layout.name);
    std::uint64_t end = 0;
    for (std::uint64_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      const std::uint64_t cell = layout.first_cell + chunk;
      if (cell / format::kPageCells >= cells.size()) return;
      const auto record = format::cell(cells[cell / format::kPageCells],
                                       static_cast<unsigned>(cell % format::kPageCells));
      const unsigned slot = format::chunk_slot(record);
      if (format::chunk_kind(record) != format::ChunkKind::stored || slot >= slots_) continue;
      const std::uint64_t at = layout.chunk_at(slot, chunk);
      const std::uint64_t size = std::min(kChunkBytes, layout.size_bytes - chunk * kChunkBytes);
      if (end == at) {
        survey_.places.back().size_bytes += size;
      } else {
        survey_.places.push_back(
            {.what = Place::What::data, .at = at, .size_bytes = size, .tensor = tensor});
      }
      end = at + size;
    }
  }

  static constexpr std::uint64_t kSecondObject = ~std::uint64_t{1};

  std::span<const std::byte> disk_;
  std::span<const std::byte> second_;
  std::optional<format::ShelfId> medium_id_;
  std::optional<format::Seeds> seeds_;
  unsigned slots_ = format::kMinSlots;
  std::optional<format::PreparedMark> mark_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen_;  // pages, which versions share
  bool first_ = true;                                       // version, whose data is noted
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

Survey survey(std::span<const std::byte> disk, std::uint64_t second_bytes) {
  return Walk(disk, second_bytes).run();
}

}  // namespace tensorshelf::crash
