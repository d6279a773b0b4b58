// A tree as recovery read its pages: where they contradict each other it is none.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "store/manifest/tree.hpp"

namespace tensorshelf {

using format::kPageCells;
using format::PageKind;

namespace {

[[noreturn]] void contradiction(const std::string& what) {
  throw Error(Errc::corrupt, "the manifest contradicts itself: " + what,
              "Restore the file from a copy; its checksums hold, so it was not made by chance.");
}

constexpr std::uint32_t kNone = ~0U;

// The page numbers of one kind must be 0, 1, 2, ... without gap or double.
void place(std::vector<std::uint32_t>& leaves, std::uint32_t index, std::uint32_t leaf,
           std::size_t leaf_count) {
  if (index >= leaf_count) contradiction("a page has an impossible number");
  if (leaves.size() <= index) leaves.resize(index + 1, kNone);
  if (leaves[index] != kNone) contradiction("two pages have one number");
  leaves[index] = leaf;
}

}  // namespace

Tree Tree::load(const format::Root& root, std::vector<PageNodePtr> top,
                std::vector<format::TensorLayout>& tensors,
                std::vector<std::uint32_t>& records_leaves) {
  Tree tree;
  tree.levels_ = format::root_levels(root);
  tree.leaf_count_ = root.leaf_count;
  tree.top_ = std::move(top);
  const auto leaves = std::make_shared<Leaves>();
  const std::uint64_t most = root.leaf_count * (kPageBytes / sizeof(format::TensorRecord));
  tensors.reserve(std::min(root.tensor_count, most));
  records_leaves.reserve(std::min(root.tensor_count, most));
  for (std::uint32_t number = 0; number < root.leaf_count; ++number) {
    const format::Page& page = tree.leaf(number).image;
    const auto head = format::page_head(page);
    if (head.kind == PageKind::cells) {
      place(leaves->cells, head.index, number, root.leaf_count);
    } else if (head.kind == PageKind::records) {
      place(leaves->records, head.index, number, root.leaf_count);
      std::string reason;
      if (!format::read_records(page, format::slot_count(root), tensors, reason)) {
        contradiction(reason);
      }
      records_leaves.resize(tensors.size(), number);
    } else if (head.kind == PageKind::media) {
      place(leaves->media, head.index, number, root.leaf_count);
      std::string reason;
      format::MediaTable ignored;
      if (!format::read_media(page, ignored, reason)) contradiction(reason);
    } else {
      contradiction("a leaf is of an unknown kind");
    }
  }
  for (const auto* numbers : {&leaves->cells, &leaves->records, &leaves->media}) {
    if (std::count(numbers->begin(), numbers->end(), kNone) != 0)
      contradiction("a page is missing");
  }
  if (leaves->media.size() > 1) contradiction("two pages tell of its media");
  if (tensors.size() != root.tensor_count) contradiction("the root counts other tensors");
  const std::uint64_t there = leaves->cells.size() * kPageCells;
  std::uint64_t owned = 0;  // before memory is taken for them
  for (const auto& tensor : tensors) {
    if (tensor.first_cell > there || tensor.cell_count() > there - tensor.first_cell) {
      contradiction(fmt::format("the chunk records of tensor '{}' lie outside", tensor.name));
    }
    owned += tensor.cell_count();
    if (owned > there) contradiction("a chunk record belongs to two tensors");
  }
  tree.leaves_ = leaves;
  return tree;
}

}  // namespace tensorshelf
