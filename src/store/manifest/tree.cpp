#include "store/manifest/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/make_capacity.hpp"
#include "base/planted.hpp"

namespace tensorshelf {

using format::kDirectoryRefs;
using format::kPageCells;
using format::PageKind;
using format::PageRef;

PageNode::~PageNode() {
  if (!heap || ref == PageRef{}) return;
  for (const std::uint64_t at : ref.at) {
    if (at != 0) heap->release_page(at);
  }
}

Tree Tree::successor(std::uint64_t attempt) const {
  Tree next;
  next.attempt_ = attempt;
  next.levels_ = levels_;
  next.leaf_count_ = leaf_count_;
  next.top_ = top_;
  next.leaves_ = leaves_;
  next.open_records_page_ = open_records_page_;
  return next;
}

const PageNodePtr& Tree::leaf_node(std::uint32_t leaf) const noexcept {
  if (levels_ == 0) return top_[leaf];
  std::uint32_t directory = leaf / kDirectoryRefs;
  const auto* directories = &top_;
  if (levels_ == 2) {
    directories = &top_[directory / kDirectoryRefs]->below;
    directory %= kDirectoryRefs;
  }
  return (*directories)[directory]->below[leaf % kDirectoryRefs];
}

const PageNode& Tree::leaf(std::uint32_t leaf) const noexcept { return *leaf_node(leaf); }

format::ChunkRecord Tree::record(std::uint64_t cell) const noexcept {
  const std::uint64_t page = cell / kPageCells;
  if (page >= leaves_->cells.size()) return {};
  return format::cell(leaf(leaves_->cells[page]).image, static_cast<unsigned>(cell % kPageCells));
}

format::MediaTable Tree::media() const {
  format::MediaTable media;
  if (leaves_->media.empty()) return media;
  std::string none;
  const bool valid = format::read_media(leaf(leaves_->media[0]).image, media, none);
  TENSORSHELF_ASSERT(valid);  // it was checked when it was loaded
  return media;
}

PageNodePtr Tree::media_leaf() const {
  return leaves_->media.empty() ? nullptr : leaf_node(leaves_->media[0]);
}

std::uint64_t Tree::path_hash() const {
  return leaves_->media.empty() ? 0 : format::path_hash(leaf(leaves_->media[0]).image);
}

std::uint64_t Tree::used_cells() const {
  std::uint64_t used = 0;
  for (const std::uint32_t number : leaves_->cells) {
    const format::Page& page = leaf(number).image;
    for (unsigned i = 0; i < kPageCells; ++i)
      used += format::cell(page, i) != format::ChunkRecord{};
  }
  return used;
}

// ---- change -------------------------------------------------------------------------------------

PageNodePtr Tree::new_node() const {
  auto node = std::make_shared<PageNode>();
  node->attempt = attempt_;
  return node;
}

// A page of another tree is copied first.
PageNode& Tree::change(PageNodePtr& place, unsigned level, std::uint32_t index) {
  TENSORSHELF_ASSERT(attempt_ != 0);
  if (place->attempt == attempt_) return *place;
  auto mine = new_node();
  if (level == 0) mine->image = place->image;
  mine->below = place->below;
  mine->over = place.get();
  make_capacity(changed_[level]);
  changed_[level].push_back({mine.get(), index});
  place = std::move(mine);
  return *place;
}

PageNode& Tree::change_directory(unsigned level, std::uint32_t index) {
  if (level == levels_) return change(top_[index], level, index);
  PageNode& above = change_directory(level + 1, index / kDirectoryRefs);
  return change(above.below[index % kDirectoryRefs], level, index);
}

PageNode& Tree::change_leaf(std::uint32_t leaf) {
  if (levels_ == 0) return change(top_[leaf], 0, leaf);
  PageNode& directory = change_directory(1, leaf / kDirectoryRefs);
  return change(directory.below[leaf % kDirectoryRefs], 0, leaf);
}

// The image of a leaf that this attempt has changed already: it is ours, whatever the way that
// leads there.
format::Page& Tree::open_image(std::uint32_t leaf_number) noexcept {
  PageNode& node = const_cast<PageNode&>(leaf(leaf_number));
  TENSORSHELF_ASSERT(node.attempt == attempt_);
  return node.image;
}

// One level more: a directory has what the root named, and has room for one more.
void Tree::deepen() {
  static_assert(format::kRootRefs < kDirectoryRefs);
  auto upper = new_node();
  upper->below = top_;
  ++levels_;
  make_capacity(changed_[levels_]);
  changed_[levels_].push_back({upper.get(), 0});
  top_.assign(1, upper);
}

// The page that comes next on its level, and the directory above it where there is none yet. Where
// memory ran out under way, something may lie there already that nobody counts.
void Tree::add_below(unsigned level, std::uint32_t index, PageNodePtr node) {
  make_capacity(changed_[level]);
  std::vector<PageNodePtr>* list = &top_;
  std::size_t position = index;
  if (level < levels_) {
    const std::uint32_t above = index / kDirectoryRefs;
    position = index % kDirectoryRefs;
    if (position == 0) add_below(level + 1, above, new_node());
    list = &change_directory(level + 1, above).below;
  }
  if (list->size() <= position) list->resize(position + 1);
  changed_[level].push_back({node.get(), index});
  (*list)[position] = std::move(node);
}

// On a copy, and everything that can throw comes first: a leaf that only some of the lists know
// would make the next commit one that cannot be opened.
std::uint32_t Tree::add_leaf(PageKind kind, std::vector<std::uint32_t> Leaves::*of_kind) {
  const std::uint32_t number = leaf_count_;
  if (number >= format::kMaxLeaves) {
    throw Error(Errc::full,
                fmt::format("the manifest is at its limit of {} pages", format::kMaxLeaves),
                "Join small tensors into larger ones, or use a second shelf.");
  }
  auto leaves = std::make_shared<Leaves>(*leaves_);
  std::vector<std::uint32_t>& numbers = leaves.get()->*of_kind;
  auto node = new_node();
  node->image = format::empty_page(kind, static_cast<std::uint32_t>(numbers.size()));
  numbers.push_back(number);
  // Before the copy, which may be thrown away: what changes is to be in the lists of this tree.
  if (number > 0 && levels_ > 0) change_directory(1, (number - 1) / kDirectoryRefs);
  Tree grown = *this;
  if (number == format::leaves_through(levels_)) grown.deepen();
  grown.leaf_count_ = number + 1;
  grown.add_below(0, number, std::move(node));
  grown.leaves_ = std::move(leaves);
  *this = std::move(grown);
  return number;
}

void Tree::open_cells(const CellRun& cells) {
  const std::uint64_t last = (cells.first + cells.count - 1) / kPageCells;
  while (leaves_->cells.size() <= last) add_leaf(PageKind::cells, &Leaves::cells);
  for (std::uint64_t page = cells.first / kPageCells; page <= last; ++page) {
    change_leaf(leaves_->cells[page]);
  }
}

void Tree::set_record(std::uint64_t cell, const format::ChunkRecord& record) noexcept {
  const std::uint32_t number = leaves_->cells[cell / kPageCells];
  format::set_cell(open_image(number), static_cast<unsigned>(cell % kPageCells), record);
}

void Tree::set_media(const format::MediaTable& media, std::uint64_t path_hash) {
  if (leaves_->media.empty()) add_leaf(PageKind::media, &Leaves::media);
  change_leaf(leaves_->media[0]).image = format::media_page(media, path_hash);
}

std::uint32_t Tree::add_tensor(const format::TensorLayout& layout) {
  for (; open_records_page_ < leaves_->records.size(); ++open_records_page_) {
    const std::uint32_t number = leaves_->records[open_records_page_];
    if (!format::fits_record(leaf(number).image, layout)) continue;
    const bool appended = format::append_record(change_leaf(number).image, layout);
    TENSORSHELF_ASSERT(appended);
    return number;
  }
  const std::uint32_t number = add_leaf(PageKind::records, &Leaves::records);
  const bool fits = format::append_record(change_leaf(number).image, layout);
  TENSORSHELF_ASSERT(fits);  // layout.hpp asserts that the largest does
  return number;
}

void Tree::remove_tensor(std::uint32_t leaf_number, std::uint64_t tensor_id) noexcept {
  format::Page& image = open_image(leaf_number);
  format::remove_record(image, tensor_id);
  open_records_page_ = std::min(open_records_page_, format::page_head(image).index);
}

// The new record lies behind the old one, also where both are on one page.
std::uint32_t Tree::rename_tensor(std::uint32_t leaf, const format::TensorLayout& renamed) {
  if (planted(Bug::renamed_in_memory)) return leaf;
  open_leaf(leaf);
  const std::uint32_t now = add_tensor(renamed);
  if (!planted(Bug::renamed_record_kept)) remove_tensor(leaf, renamed.tensor_id);
  return now;
}

void Tree::move_tensor(std::uint32_t leaf_number, std::uint64_t tensor_id,
                       std::span<const std::uint64_t> slot_at) noexcept {
  format::Page& image = open_image(leaf_number);
  if (!planted(Bug::moved_in_memory)) format::move_slots(image, tensor_id, slot_at);
}

bool Tree::open_beyond(std::uint64_t place) {
  const auto beyond = [place](const PageNode& node) {
    return std::any_of(node.ref.at.begin(), node.ref.at.end(),
                       [place](std::uint64_t at) { return at >= place; });
  };
  bool any = false;
  for (std::uint32_t number = 0; number < leaf_count_; ++number) {
    if (!beyond(leaf(number))) continue;
    change_leaf(number);
    any = true;
  }
  for (unsigned level = 1; level <= levels_; ++level) {
    const auto count = static_cast<std::uint32_t>(format::level_pages(leaf_count_, level));
    for (std::uint32_t index = 0; index < count; ++index) {
      const auto& list = level == levels_ ? top_ : top_[index / kDirectoryRefs]->below;
      if (!beyond(*list[level == levels_ ? index : index % kDirectoryRefs])) continue;
      change_directory(level, index);
      any = true;
    }
  }
  return any;
}

// ---- to the medium ------------------------------------------------------------------------------

std::uint64_t Tree::page_count() const {
  std::uint64_t pages = leaf_count_;
  for (unsigned level = 1; level <= levels_; ++level) {
    pages += format::level_pages(leaf_count_, level);
  }
  return pages;
}

format::Page Tree::directory_image(const Changed& directory, unsigned level) {
  format::Page page = format::empty_page(PageKind::directory, directory.index, level);
  const auto& below = directory.node->below;
  for (std::uint32_t i = 0; i < below.size(); ++i) {
    const PageNode& node = *below[i];
    const bool kept_back = planted(Bug::directory_not_linked) && node.over != nullptr &&
                           node.attempt == directory.node->attempt;
    format::set_directory_ref(page, i, kept_back ? node.over->ref : node.ref);
  }
  return page;
}

void Tree::fill_root(format::Root& root) const {
  root.leaf_count = leaf_count_;
  const bool kept = planted(Bug::leaves_flag_kept);
  root.flags = levels_ == 0 || kept ? format::kLeavesInRoot : 0;
  for (std::size_t i = 0; i < top_.size(); ++i) {
    const PageNode& node = *top_[i];
    const bool kept_back = planted(Bug::second_directory_lost) && i > 0 && node.over != nullptr &&
                           node.attempt == attempt_;
    root.pages[i] = kept_back ? node.over->ref : node.ref;
  }
}

}  // namespace tensorshelf
