#include "store/load_root.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

#include <tensorshelf/error.hpp>

#include "store/chunk_io.hpp"
#include "store/heap.hpp"

namespace tensorshelf {
namespace {

using format::kSlots;
using format::PageRef;
using format::Root;

void add_tensors(LoadedRoot& loaded, std::vector<format::TensorLayout> layouts,
                 const std::vector<std::uint32_t>& leaves, const Root& root) {
  std::set<std::string> names;
  std::set<std::uint64_t> ids;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    auto& layout = layouts[i];
    const std::uint64_t first = layout.first_cell;
    const std::uint64_t state = loaded.manifest.cell(first);
    const bool sane = format::state_slot(state) < kSlots &&
                      format::state_version(state) <= format::word_version(root.word) &&
                      layout.tensor_id < root.next_tensor_id && names.insert(layout.name).second &&
                      ids.insert(layout.tensor_id).second;
    for (unsigned slot = 0; slot < kSlots; ++slot) {
      if (layout.size_bytes != 0) loaded.used.push_back(layout.slot(slot));
    }
    if (!sane) {
      throw Error(Errc::corrupt,
                  fmt::format("the record of tensor '{}' is impossible", layout.name),
                  "Restore the file from a copy.");
    }
    auto tensor = std::make_shared<StoredTensor>(std::move(layout));
    tensor->records_leaf = leaves[i];
    tensor->committed = format::state_slot(state);
    tensor->version = format::state_version(state);
    const auto sums = tensor->sums[*tensor->committed];
    for (std::uint64_t chunk = 0; chunk < sums.size(); ++chunk) {
      sums[chunk] = loaded.manifest.cell(first + 1 + chunk);
    }
    loaded.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

LoadedRoot load_root(Medium& medium, const format::Seeds& seeds, const Root& root,
                     KnownPages* known) {
  const std::uint64_t pages = std::uint64_t{root.leaf_count} + root.directory_count;
  if (pages * format::kCopies * kPageBytes > root.capacity_bytes) {  // before memory is taken
    throw Error(Errc::corrupt, fmt::format("{} manifest pages cannot lie in the shelf", pages), "");
  }
  LoadedRoot loaded;
  PageReader reader(medium, seeds, root.capacity_bytes, known);
  const auto first = root.directories.begin();
  auto directories = reader.read({first, first + root.directory_count});
  std::vector<PageRef> leaf_refs;
  leaf_refs.reserve(root.leaf_count);
  for (std::uint32_t leaf = 0; leaf < root.leaf_count; ++leaf) {
    leaf_refs.push_back(format::directory_ref(directories[leaf / format::kDirectoryRefs]->image,
                                              leaf % format::kDirectoryRefs));
  }
  auto leaves = reader.read(leaf_refs);
  loaded.repairs = reader.take_repairs();
  loaded.unread = reader.unread();
  for (const auto* nodes : {&directories, &leaves}) {
    for (const auto& node : *nodes) {
      for (std::uint64_t at : node->ref.at) loaded.used.push_back({at, kPageBytes});
    }
  }
  std::vector<format::TensorLayout> layouts;
  std::vector<std::uint32_t> records_leaves;
  loaded.manifest =
      Manifest::load(root, std::move(directories), std::move(leaves), layouts, records_leaves);
  add_tensors(loaded, std::move(layouts), records_leaves, root);
  // Overlaps, places outside the capacity: the heap finds them, so let it, before all else does.
  [[maybe_unused]] const Heap heap(medium, root.capacity_bytes, loaded.used);
  return loaded;
}

std::optional<std::string> find_damage(Medium& medium, const format::Seeds& seeds,
                                       const LoadedRoot& loaded, const Progress& progress) {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (const auto& tensor : loaded.tensors) total += tensor->layout.size_bytes;
  for (const auto& tensor : loaded.tensors) {
    const unsigned slot = *tensor->committed;
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      if (!chunk_intact(medium, seeds, *tensor, slot, chunk)) {
        return fmt::format("chunk {} of '{}' v{} slot {} fails its checksum", chunk,
                           tensor->layout.name, tensor->version, slot == 0 ? 'A' : 'B');
      }
      tensor->verified[slot].insert(chunk);
      done += tensor->chunk_bytes(chunk);
      if (progress) progress(done, total);
    }
  }
  return std::nullopt;
}

}  // namespace tensorshelf
