// The manifest of the next version, in memory: leaves (tensor records, cells) under directory
// pages under the root. Each page knows where its committed copies lie and whether it changed
// since; a commit writes the changed pages to fresh places (copy-on-write) and nothing else.
// Does no I/O. Not thread-safe: the store serialises its use.
// Where memory runs out, what was begun is undone, for a half-made leaf or a record without its
// tensor would be a lie on the medium.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/format.hpp"
#include "store/space.hpp"

namespace tensorshelf {

class Manifest {
 public:
  struct Node {
    format::Page image;
    format::PageRef ref = {};  // of the committed copies; {} before the first commit
    bool changed = false;
  };

  Manifest() = default;

  // As recovery read it: every page already checked against its checksum. Throws Errc::corrupt
  // where the pages contradict each other; `tensors` receives what the records say.
  static Manifest load(const format::Root& root, std::vector<std::unique_ptr<Node>> directories,
                       std::vector<std::unique_ptr<Node>> leaves,
                       std::vector<format::TensorLayout>& tensors,
                       std::vector<std::uint32_t>& records_leaves);

  // Gives the tensor its run of cells and its record; returns the leaf that holds the record.
  // Throws Errc::full at the format's limit of pages.
  std::uint64_t take_cells(std::uint64_t count);
  void release_cells(std::uint64_t first, std::uint64_t count) noexcept;
  std::uint32_t add_record(const format::TensorLayout& layout);
  void remove_record(std::uint32_t leaf, std::uint64_t tensor_id) noexcept;

  void set_cell(std::uint64_t cell, std::uint64_t value);
  std::uint64_t cell(std::uint64_t cell) const;

  // Directories follow their leaves: call after a changed leaf got its new ref.
  void link_leaf(std::uint32_t leaf);

  // The leaves, or directories, changed since they were last taken: what a commit has to write.
  std::vector<std::uint32_t> take_changed_leaves();
  std::vector<Node*> take_changed_directories();
  Node& leaf(std::uint32_t leaf) { return *leaves_[leaf]; }

  // Pages of one whole manifest: what the largest commit could have to write, in pages per copy.
  std::uint64_t page_count() const { return leaves_.size() + directories_.size(); }

  void fill_root(format::Root& root) const;

 private:
  std::uint32_t add_leaf(format::PageKind kind, std::vector<std::uint32_t>& leaves_of_kind);
  Node& change_leaf(std::uint32_t leaf) noexcept;

  std::vector<std::unique_ptr<Node>> directories_;
  std::vector<std::unique_ptr<Node>> leaves_;
  std::vector<std::uint32_t> changed_leaves_;  // with room for all: noting one cannot fail
  std::vector<std::uint32_t> records_leaves_;  // leaf numbers of the records pages, in order
  std::vector<std::uint32_t> cells_leaves_;    // of the cells pages: cell c is on [c / kPageCells]
  std::uint32_t open_records_page_ = 0;        // where the search for room starts
  Space free_cells_;
};

}  // namespace tensorshelf
