// The manifest of one version in memory: leaves (tensor records, chunk records) under the root, or
// under directories under the root. A version's tree never changes; an attempt's is made over its
// predecessor's, with which it shares every page but those that it changed (copy-on-write), so that
// several versions cost little more than one, and a commit writes what changed and nothing else.
//
// A page owns its two places on the medium from the moment it is written, and gives them back when
// no tree has it any more. Does no I/O. A tree that is frozen may be read by any number of threads;
// one that is being changed belongs to one thread.
// Where memory runs out (std::bad_alloc), what was begun is undone, or leaves pages that are
// written although they did not change.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/format.hpp"
#include "store/places/heap.hpp"

namespace tensorshelf {

struct PageNode {
  format::Page image = {};                            // of a leaf
  std::vector<std::shared_ptr<PageNode>> below = {};  // of a directory
  std::uint64_t attempt = 0;                          // whose tree may change it
  format::PageRef ref = {};  // {} until it is written, which the committer does; then for good
  std::shared_ptr<Heap> heap = {};  // that gets the places back
  PageNode* over = nullptr;         // what it was made from: there until the attempt is published

  PageNode() = default;
  PageNode(const PageNode&) = delete;
  PageNode& operator=(const PageNode&) = delete;
  ~PageNode();
};
using PageNodePtr = std::shared_ptr<PageNode>;

class Tree {
 public:
  static constexpr unsigned kLevels = 1 + format::kMaxLevels;  // the leaves are one

  struct Changed {
    PageNode* node;
    std::uint32_t index;  // among those of its level
  };

  Tree() = default;

  // As recovery read it: `top` holds all pages of one version, each checked against its checksum.
  // Throws Errc::corrupt where they contradict each other; `tensors` receives what the records say,
  // and `records_leaves` where.
  static Tree load(const format::Root& root, std::vector<PageNodePtr> top,
                   std::vector<format::TensorLayout>& tensors,
                   std::vector<std::uint32_t>& records_leaves);

  // The same pages, for an attempt to change. `attempt` is not 0, and no other tree's.
  Tree successor(std::uint64_t attempt) const;

  // The record that the version has there; {} where it has none.
  format::ChunkRecord record(std::uint64_t cell) const noexcept;

  // Makes the pages of these cells changeable, and adds those that are missing: set_record() of
  // them then needs no memory. Errc::full at the format's limit of pages.
  void open_cells(const CellRun& cells);
  void set_record(std::uint64_t cell, const format::ChunkRecord& record) noexcept;

  // Returns the leaf that holds the record. Errc::full as above.
  std::uint32_t add_tensor(const format::TensorLayout& layout);
  // In two steps, of which the second cannot fail.
  void open_leaf(std::uint32_t leaf) { change_leaf(leaf); }
  void remove_tensor(std::uint32_t leaf, std::uint64_t tensor_id) noexcept;
  // Its record, which lies in `leaf`, as this; returns the leaf where it lies now. Errc::full as
  // above, with nothing changed.
  std::uint32_t rename_tensor(std::uint32_t leaf, const format::TensorLayout& renamed);

  // Where its slots lie from here on. The leaf is open.
  void move_tensor(std::uint32_t leaf, std::uint64_t tensor_id,
                   std::span<const std::uint64_t> slot_at) noexcept;
  // Makes every page changeable that lies at that place of the first medium or behind it, so that
  // it is written anew, elsewhere. Whether there is one. Nobody is writing pages meanwhile.
  bool open_beyond(std::uint64_t place);

  // The media beside the first; the same, for whoever changes it: Errc::full as above.
  format::MediaTable media() const;
  std::uint64_t path_hash() const;  // MediaPage::path_hash; 0 where there is no such page
  void set_media(const format::MediaTable& media, std::uint64_t path_hash);
  bool has_media_page() const { return !leaves_->media.empty(); }
  PageNodePtr media_leaf() const;  // that page, or null; one that was changed is another

  // How many records there are.
  std::uint64_t used_cells() const;

  // How many pages the whole manifest has, per copy.
  std::uint64_t page_count() const;
  std::uint32_t leaf_count() const { return leaf_count_; }
  std::uint64_t cells_page_count() const { return leaves_->cells.size(); }

  // For whoever writes it: the pages that changed, level by level from the leaves up, and what is
  // to be written of them: of a directory, the refs of those below it, which come first.
  const std::vector<Changed>& changed(unsigned level) const { return changed_[level]; }
  unsigned levels() const { return levels_; }  // of directories; they never become fewer
  static format::Page directory_image(const Changed& directory, unsigned level);
  void fill_root(format::Root& root) const;

  // Every page.
  template <typename Visit>
  void each_page(Visit visit) const {
    visit_below(top_, visit);
  }

 private:
  // Leaf numbers of the pages of each kind, in order: cell c is on
  // cells[c / kPageCells]. Shared by all trees until a leaf is added.
  struct Leaves {
    std::vector<std::uint32_t> records;
    std::vector<std::uint32_t> cells;
    std::vector<std::uint32_t> media;  // one, or none
  };

  template <typename Visit>
  static void visit_below(const std::vector<PageNodePtr>& nodes, Visit& visit) {
    for (const PageNodePtr& node : nodes) {
      visit(node);
      visit_below(node->below, visit);
    }
  }

  const PageNodePtr& leaf_node(std::uint32_t leaf) const noexcept;
  const PageNode& leaf(std::uint32_t leaf) const noexcept;
  PageNode& change(PageNodePtr& place, unsigned level, std::uint32_t index);
  PageNode& change_directory(unsigned level, std::uint32_t index);
  PageNode& change_leaf(std::uint32_t leaf);
  format::Page& open_image(std::uint32_t leaf) noexcept;
  std::uint32_t add_leaf(format::PageKind kind, std::vector<std::uint32_t> Leaves::*of_kind);
  void add_below(unsigned level, std::uint32_t index, PageNodePtr node);
  PageNodePtr new_node() const;
  void deepen();

  std::uint64_t attempt_ = 0;
  unsigned levels_ = 0;
  std::uint32_t leaf_count_ = 0;
  std::vector<PageNodePtr> top_;
  std::shared_ptr<const Leaves> leaves_ = std::make_shared<Leaves>();
  std::uint32_t open_records_page_ = 0;  // where the search for room starts
  std::array<std::vector<Changed>, kLevels> changed_;
};

}  // namespace tensorshelf
