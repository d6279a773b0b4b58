#include "store/recovery/load_root.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "store/media_set/further_media.hpp"
#include "store/places/claims.hpp"

namespace tensorshelf {
namespace {

using format::ChunkKind;
using format::ChunkRecord;
using format::PageRef;
using format::Root;

[[noreturn]] void throw_impossible(const std::string& name, const char* why) {
  throw Error(Errc::corrupt, fmt::format("the record of tensor '{}' is impossible: {}", name, why),
              "Restore the file from a copy.");
}

bool is_sane(const ChunkRecord& record, const StoredTensor& tensor, const Root& root) {
  const bool stored = format::chunk_kind(record) == ChunkKind::stored;
  const bool zeros = format::chunk_kind(record) == ChunkKind::zeros;
  const bool may_be_zeros = !tensor.whole() || tensor.layout.size_bytes == 0;
  const auto whole_record = format::chunk_state(
      format::chunk_kind(record), format::chunk_slot(record), format::chunk_version(record));
  return (stored || (zeros && may_be_zeros)) && record.state == whole_record &&
         format::chunk_slot(record) < format::slot_count(root) &&
         format::chunk_version(record) <= format::word_version(root.word);
}

void check_records(const Version& version, const StoredTensor& tensor, const std::string& name) {
  const unsigned slot = format::chunk_slot(version.tree.record(tensor.cell(0)));
  for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
    const ChunkRecord record = version.tree.record(tensor.cell(i));
    const bool in_place = !tensor.whole() || format::chunk_slot(record) == slot;
    if (!is_sane(record, tensor, version.root) || !in_place) {
      throw_impossible(name, "what it says of a chunk cannot be");
    }
  }
}

// Its name may be another one in another version, and slots that neither names may lie elsewhere.
bool same(const format::TensorLayout& a, const format::TensorLayout& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.first_cell == b.first_cell &&
         a.slot_at.size() == b.slot_at.size() && a.media() == b.media() && a.stripes == b.stripes &&
         a.placement == b.placement;
}

struct Called {
  Named named;
  const std::string& name;
  bool moved = false;
};

// A layout that is not known is taken.
Called called(format::TensorLayout& layout, std::uint32_t leaf, const KnownTensors& known) {
  if (const auto there = known.find(layout.tensor_id); there != known.end()) {
    StoredTensor& tensor = *there->second.tensor;
    if (!same(tensor.layout, layout)) {
      throw_impossible(layout.name, "another version has it otherwise");
    }
    std::shared_ptr<Holding> holding = there->second.holding;
    const std::span<const std::uint64_t> slot_at(layout.slot_at.begin(), layout.slot_at.end());
    const bool moved = !holding->lies_at(slot_at);
    if (moved) holding = std::make_shared<Holding>(*holding, slot_at);
    return {
        {there->second.tensor, std::move(holding), leaf}, tensor.names.keep(layout.name), moved};
  }
  Named made{std::make_shared<StoredTensor>(std::move(layout)), nullptr, leaf};
  made.holding = std::make_shared<Holding>(made.tensor->layout);
  made.tensor->holding = made.holding;
  const std::string& name = made.tensor->name();
  return {std::move(made), name};
}

// Each is one that was given out, and no other tensor's.
void check_ids(const std::vector<format::TensorLayout>& layouts, const Root& root) {
  std::vector<std::pair<std::uint64_t, const format::TensorLayout*>> ids;
  ids.reserve(layouts.size());
  for (const auto& layout : layouts) {
    if (layout.tensor_id >= root.next_tensor_id) {
      throw_impossible(layout.name, "its id was never given out");
    }
    ids.emplace_back(layout.tensor_id, &layout);
  }
  if (!std::is_sorted(ids.begin(), ids.end())) std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(
      ids.begin(), ids.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != ids.end()) throw_impossible(twice[1].second->name, "another tensor has its id");
}

void add_tensors(Version& version, std::vector<format::TensorLayout> layouts,
                 const std::vector<std::uint32_t>& leaves, const KnownTensors& known) {
  check_ids(layouts, version.root);
  std::uint64_t cells = 0;
  version.loaded.reserve(layouts.size());
  auto names = std::make_shared<Names>();
  auto behind = names->end();  // the tensor made before: most names come right after that one's
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto& layout = layouts[i];
    cells += layout.cell_count();
    version.tensor_bytes += layout.size_bytes;
    auto [tensor, name, moved] = called(layouts[i], leaves[i], known);
    version.moved |= moved;
    check_records(version, *tensor.tensor, name);
    version.loaded.push_back({tensor.tensor.get(), tensor.holding.get()});
    version.renames |= &name != &tensor.tensor->name();
    const auto there = names->emplace_hint(behind, name, std::move(tensor));
    if (names->size() != version.loaded.size()) {
      throw_impossible(std::string(there->first), "two tensors have its name");
    }
    behind = std::next(there);
  }
  // A record that no tensor owns would become the value of whatever tensor gets its cell.
  if (version.tree.used_cells() != cells) {
    throw Error(Errc::corrupt, "a chunk record belongs to no tensor, or to two",
                "Restore the file from a copy.");
  }
  version.names = std::move(names);
}

std::vector<PageRef> refs_below(const std::vector<PageNodePtr>& directories, std::uint64_t count,
                                unsigned level) {
  std::vector<PageRef> refs;
  refs.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto& directory = directories[i / format::kDirectoryRefs]->image;
    const auto head = format::page_head(directory);
    if (head.kind != format::PageKind::directory || head.level != level ||
        head.index != i / format::kDirectoryRefs) {
      throw Error(Errc::corrupt, "a directory of the manifest is another one",
                  "Restore the file from a copy.");
    }
    const auto within = static_cast<unsigned>(i % format::kDirectoryRefs);
    refs.push_back(format::directory_ref(directory, within));
  }
  return refs;
}

// One level after the other, from the root down; neighbours are read together.
std::vector<PageNodePtr> read_pages(PageReader& reader, const Root& root) {
  unsigned level = format::root_levels(root);
  const std::uint64_t refs = format::level_pages(root.leaf_count, level);
  std::vector<PageNodePtr> top = reader.read({root.pages.begin(), root.pages.begin() + refs});
  std::vector<PageNodePtr> above = top;
  for (; level > 0; --level) {
    const std::uint64_t count = format::level_pages(root.leaf_count, level - 1);
    auto below = reader.read(refs_below(above, count, level));
    for (std::uint64_t i = 0; i < count; i += format::kDirectoryRefs) {
      auto& list = above[i / format::kDirectoryRefs]->below;
      const auto end = std::min<std::uint64_t>(count, i + format::kDirectoryRefs);
      if (list.empty()) list.assign(&below[i], &below[i] + (end - i));
      if (list.size() == end - i) continue;
      throw Error(Errc::corrupt, "two versions share a directory, and not what it names",
                  "Restore the file from a copy.");
    }
    above = std::move(below);
  }
  return top;
}

// Slot by slot: thousands of small tensors have their first ones side by side, then their second.
template <typename IsNew>
Claims claims_of(const Version& version, IsNew is_new) {
  Claims claims;
  version.tree.each_page([&](const PageNodePtr& page) {
    if (!is_new(page.get())) return;
    for (const std::uint64_t at : page->ref.at) claims.pages.push_back({at, kPageBytes});
  });
  std::vector<std::vector<Extent>> slots(format::slot_count(version.root));
  for (auto& list : slots) list.reserve(version.loaded.size());
  claims.cells.reserve(version.loaded.size());
  for (const auto& tensor : version.loaded) {
    const Holding& holding = *tensor.holding;
    if (is_new(holding.cells_owner())) claims.cells.push_back(holding.cells());
    for (unsigned i = 0; const auto extent = holding.place(i); ++i) {
      if (!is_new(holding.owner(i))) continue;
      if (i >= slots.size()) slots.resize(i + 1);
      slots[i].push_back(*extent);
    }
  }
  for (const auto& list : slots) claims.slots.insert(claims.slots.end(), list.begin(), list.end());
  return claims;
}

}  // namespace

LoadedRoot load_root(Medium& medium, const format::Seeds& seeds, const Root& root,
                     KnownPages& known, const KnownTensors& tensors, FurtherMedia* further) {
  std::uint64_t pages = 0;
  for (unsigned level = 0; level <= format::root_levels(root); ++level) {
    pages += format::level_pages(root.leaf_count, level);
  }
  if (pages * format::kCopies * kPageBytes > root.capacity_bytes) {  // before memory is taken
    throw Error(Errc::corrupt, fmt::format("{} manifest pages cannot lie in the shelf", pages), "");
  }
  LoadedRoot loaded;
  loaded.version = std::make_shared<Version>();
  loaded.version->root = root;
  PageReader reader(medium, seeds, root.capacity_bytes, known, further);
  auto top = read_pages(reader, root);
  loaded.repairs = reader.take_repairs();
  loaded.unread = reader.unread();
  std::vector<format::TensorLayout> layouts;
  std::vector<std::uint32_t> records_leaves;
  loaded.version->tree = Tree::load(root, std::move(top), layouts, records_leaves);
  add_tensors(*loaded.version, std::move(layouts), records_leaves, tensors);
  loaded.version->claims = claims_of(*loaded.version, [](const void*) { return true; });
  Claimed(loaded.version->capacities()).add(loaded.version->claims);  // nothing twice, all within
  if (further != nullptr) {
    further->need(*loaded.version);
    further->check_age(*loaded.version);
  }
  return loaded;
}

void check_places(const Version& older, const Version& newer) {
  if (!older.moved && !newer.moved) return;
  for (const auto& [name, named] : *older.names) {
    const Named* const later = named_in(*newer.names, *named.tensor);
    if (later == nullptr || later->holding == named.holding) continue;
    const StoredTensor& tensor = *named.tensor;
    for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
      const ChunkRecord record = older.tree.record(tensor.cell(chunk));
      if (format::chunk_kind(record) != ChunkKind::stored) continue;
      const unsigned index = tensor.place_index(format::chunk_slot(record), chunk);
      if (named.holding->slot_at()[index] != later->holding->slot_at()[index]) {
        throw_impossible(std::string(name), "a newer version has a slot in use elsewhere");
      }
    }
  }
}

Claims ClaimList::add(const std::shared_ptr<const Version>& version) {
  if (!last_) {
    last_ = version;
    return version->claims;
  }
  last_->tree.each_page([&](const PageNodePtr& page) { seen_.push_back(page.get()); });
  for (const auto& tensor : last_->loaded) {
    seen_.push_back(tensor.holding->cells_owner());
    if (!tensor.holding->shares()) continue;
    for (unsigned i = 0; tensor.holding->place(i); ++i) seen_.push_back(tensor.holding->owner(i));
  }
  std::sort(seen_.begin(), seen_.end());
  last_ = version;
  return claims_of(*version, [&](const void* thing) {
    return !std::binary_search(seen_.begin(), seen_.end(), thing);
  });
}

}  // namespace tensorshelf
