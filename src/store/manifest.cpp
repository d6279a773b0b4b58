#include "store/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/room.hpp"

namespace tensorshelf {
namespace {

using format::kDirectoryRefs;
using format::kPageCells;
using format::PageKind;

[[noreturn]] void contradiction(const std::string& what) {
  throw Error(Errc::corrupt, "the manifest contradicts itself: " + what,
              "Restore the file from a copy; its checksums hold, so it was not made by chance.");
}

// The page numbers of one kind must be 0, 1, 2, ... without gap or double.
void place(std::vector<std::uint32_t>& leaves, std::uint32_t index, std::uint32_t leaf,
           std::size_t leaf_count) {
  constexpr std::uint32_t kNone = ~0U;
  if (index >= leaf_count) contradiction("a page has an impossible number");
  if (leaves.size() <= index) leaves.resize(index + 1, kNone);
  if (leaves[index] != kNone) contradiction("two pages have one number");
  leaves[index] = leaf;
}

}  // namespace

Manifest Manifest::load(const format::Root& root, std::vector<std::unique_ptr<Node>> directories,
                        std::vector<std::unique_ptr<Node>> leaves,
                        std::vector<format::TensorLayout>& tensors,
                        std::vector<std::uint32_t>& records_leaves) {
  Manifest manifest;
  manifest.directories_ = std::move(directories);
  manifest.leaves_ = std::move(leaves);
  const auto leaf_count = manifest.leaves_.size();
  for (std::uint32_t leaf = 0; leaf < leaf_count; ++leaf) {
    const format::Page& page = manifest.leaves_[leaf]->image;
    const auto head = format::page_head(page);
    if (head.kind == PageKind::cells) {
      place(manifest.cells_leaves_, head.index, leaf, leaf_count);
    } else if (head.kind == PageKind::records) {
      place(manifest.records_leaves_, head.index, leaf, leaf_count);
      std::string reason;
      auto layouts = format::read_records(page, reason);
      if (!layouts) contradiction(reason);
      for (auto& layout : *layouts) {
        tensors.push_back(std::move(layout));
        records_leaves.push_back(leaf);
      }
    } else {
      contradiction("a leaf is of an unknown kind");
    }
  }
  for (const auto* numbers : {&manifest.cells_leaves_, &manifest.records_leaves_}) {
    if (std::count(numbers->begin(), numbers->end(), ~0U) != 0) contradiction("a page is missing");
  }
  if (tensors.size() != root.tensor_count) contradiction("the root counts other tensors");

  manifest.changed_leaves_.reserve(leaf_count);
  manifest.free_cells_.release(0, manifest.cells_leaves_.size() * kPageCells);
  for (const auto& tensor : tensors) {
    if (!manifest.free_cells_.take_at(tensor.first_cell, tensor.cell_count())) {
      contradiction(
          fmt::format("the checksums of tensor '{}' overlap others or lie outside", tensor.name));
    }
  }
  return manifest;
}

// Everything that can throw comes first: a leaf that only some of the lists know, or a directory
// without leaves, would make the next commit one that cannot be opened.
std::uint32_t Manifest::add_leaf(PageKind kind, std::vector<std::uint32_t>& leaves_of_kind) {
  const auto leaf = static_cast<std::uint32_t>(leaves_.size());
  const auto index = static_cast<std::uint32_t>(leaves_of_kind.size());
  const auto directory = leaf / kDirectoryRefs;
  make_room(leaves_);
  make_room(changed_leaves_, leaves_.size() + 1 - changed_leaves_.size());
  make_room(leaves_of_kind);
  make_room(directories_);
  auto node = std::make_unique<Node>();
  node->image = format::empty_page(kind, index);
  if (directory == directories_.size()) {
    if (directory == format::kRootDirectories) {
      throw Error(Errc::full,
                  fmt::format("the manifest is at its limit of {} pages",
                              format::kRootDirectories * kDirectoryRefs),
                  "Join small tensors into larger ones, or use a second shelf.");
    }
    auto fresh = std::make_unique<Node>();
    fresh->image = format::empty_page(PageKind::directory, static_cast<std::uint32_t>(directory));
    directories_.push_back(std::move(fresh));
  }
  leaves_.push_back(std::move(node));
  leaves_of_kind.push_back(leaf);
  change_leaf(leaf);
  return leaf;
}

Manifest::Node& Manifest::change_leaf(std::uint32_t leaf) noexcept {
  Node& node = *leaves_[leaf];
  if (!node.changed) changed_leaves_.push_back(leaf);
  node.changed = true;
  return node;
}

std::uint64_t Manifest::take_cells(std::uint64_t count) {
  auto first = free_cells_.take(count);
  while (!first) {  // each round adds a page at the end, where a run can go on from the last one
    const std::uint64_t index = cells_leaves_.size();
    add_leaf(PageKind::cells, cells_leaves_);
    free_cells_.release(index * kPageCells, kPageCells);
    if (free_cells_.largest() >= count) first = free_cells_.take(count);
  }
  return *first;
}

void Manifest::release_cells(std::uint64_t first, std::uint64_t count) noexcept {
  try {
    free_cells_.release(first, count);
  } catch (const std::bad_alloc&) {  // forgotten, until the next open finds them free
  }
}

std::uint32_t Manifest::add_record(const format::TensorLayout& layout) {
  for (; open_records_page_ < records_leaves_.size(); ++open_records_page_) {
    const std::uint32_t leaf = records_leaves_[open_records_page_];
    if (format::append_record(leaves_[leaf]->image, layout)) {
      change_leaf(leaf);
      return leaf;
    }
  }
  const std::uint32_t leaf = add_leaf(PageKind::records, records_leaves_);
  const bool fits = format::append_record(leaves_[leaf]->image, layout);
  TENSORSHELF_ASSERT(fits);  // kMaxDims and kMaxNameBytes are chosen so
  return leaf;
}

void Manifest::remove_record(std::uint32_t leaf, std::uint64_t tensor_id) noexcept {
  Node& node = change_leaf(leaf);
  format::remove_record(node.image, tensor_id);
  open_records_page_ = std::min(open_records_page_, format::page_head(node.image).index);
}

void Manifest::set_cell(std::uint64_t cell, std::uint64_t value) {
  Node& node = change_leaf(cells_leaves_[cell / kPageCells]);
  format::set_cell(node.image, static_cast<unsigned>(cell % kPageCells), value);
}

std::uint64_t Manifest::cell(std::uint64_t cell) const {
  const Node& node = *leaves_[cells_leaves_[cell / kPageCells]];
  return format::cell(node.image, static_cast<unsigned>(cell % kPageCells));
}

void Manifest::link_leaf(std::uint32_t leaf) {
  Node& directory = *directories_[leaf / kDirectoryRefs];
  format::set_directory_ref(directory.image, leaf % kDirectoryRefs, leaves_[leaf]->ref);
  const bool kept_back = planted(Bug::second_directory_lost) && leaf >= kDirectoryRefs &&
                         directory.ref != format::PageRef{};
  directory.changed = !kept_back;
}

std::vector<std::uint32_t> Manifest::take_changed_leaves() {
  std::vector<std::uint32_t> changed = changed_leaves_;  // a copy: the room stays
  for (std::uint32_t leaf : changed) leaves_[leaf]->changed = false;
  changed_leaves_.clear();
  return changed;
}

std::vector<Manifest::Node*> Manifest::take_changed_directories() {
  std::vector<Node*> changed;
  for (const auto& directory : directories_) {
    if (std::exchange(directory->changed, false)) changed.push_back(directory.get());
  }
  return changed;
}

void Manifest::fill_root(format::Root& root) const {
  root.leaf_count = static_cast<std::uint32_t>(leaves_.size());
  root.directory_count = static_cast<std::uint32_t>(directories_.size());
  for (std::size_t i = 0; i < directories_.size(); ++i) root.directories[i] = directories_[i]->ref;
}

}  // namespace tensorshelf
