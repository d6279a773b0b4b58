// What tensors there are: made, replaced, erased. The medium may grow for them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/planted.hpp"
#include "store/capacity.hpp"
#include "store/store.hpp"

namespace tensorshelf {

using format::kCopies;

const Names& Store::names_now() const { return open_ ? *open_->names : *retained_.back()->names; }

// For every version that can be there at once, each as large as the largest: so that no later
// commit is refused. `cells` are those of a tensor about to be added, which come behind others that
// may belong to none yet.
std::uint64_t Store::pages_for(const CellRun& cells) const {
  const std::uint64_t there = planted(Bug::pages_for_own_cells) ? cells.first / format::kPageCells
                                                                : open_->tree.cells_page_count();
  const std::uint64_t needed =
      (cells.first + cells.count + format::kPageCells - 1) / format::kPageCells;
  const std::uint64_t leaves = needed - std::min(needed, there) + 1;  // and one of records
  const std::uint64_t more = cells.count == 0 ? 0 : leaves + leaves / 100 + 3;
  std::uint64_t pages = open_->tree.page_count();
  {
    std::lock_guard lock(structure_);
    for (const auto* list : {&retained_, &in_flight_}) {
      for (const auto& version : *list) pages = std::max(pages, version->tree.page_count());
    }
  }
  return kCopies * opened_.slot_count * (pages + more);
}

namespace {

[[noreturn]] void throw_full_until_persisted(const Error& full) {
  throw Error(Errc::full, full.what(),
              "persist() first: what was erased is free after it. Or else: " + full.remedy(),
              full.os_error());
}

void check_name(std::string_view name) {
  const auto problem = format::name_problem(name);
  if (!problem) return;
  throw Error(Errc::bad_name, fmt::format("the tensor name '{}' {}", name.substr(0, 80), *problem),
              "Use 1 to 1024 bytes of UTF-8 without NUL.");
}

[[noreturn]] void throw_impossible_layout(std::string_view name) {
  throw Error(Errc::layout, fmt::format("'{}' cannot have that dtype and shape", name),
              fmt::format("Dimensions are not negative, at most {} of them, at most 2^62 bytes in "
                          "all.",
                          kMaxDims));
}

[[noreturn]] void throw_name_taken(std::string_view name) {
  throw Error(Errc::name_taken, fmt::format("there is a tensor '{}' already", name),
              "Write to it, replace() it, or erase it first.");
}

[[noreturn]] void throw_nothing_to_replace(std::string_view name) {
  throw Error(Errc::unknown_name, fmt::format("no tensor '{}' to replace", name), "create() it.");
}

[[noreturn]] void throw_no_ids_left(std::string_view name, std::uint64_t next_id) {
  throw Error(Errc::full,
              fmt::format("'{}' would be tensor {} of the shelf, more than the format can count",
                          name, next_id),
              "Copy the tensors into a new shelf.");
}

}  // namespace

// Slots, cells and an id, which are the tensor's alone from here on.
NewTensor Store::place(format::TensorLayout layout, bool replace) {
  look_for_rival();
  layout.tensor_id = next_tensor_id_;
  // Behind all that the manifest has cells for; add() knows where they really lie.
  const CellRun behind{open_->tree.cells_page_count() * format::kPageCells, layout.cell_count()};
  try {
    layout.slot_at =
        heap_->take_slots(layout.name, layout.size_bytes, opened_.slot_count, pages_for(behind));
  } catch (const Error& error) {
    if (error.code() == Errc::full && open_->removed_committed) throw_full_until_persisted(error);
    throw;
  }
  NewTensor made;
  made.replaces = replace;
  try {
    const CellRun cells = heap_->take_cells(layout.cell_count());
    layout.first_cell = cells.first;
    try {
      made.named.holding = std::make_shared<Holding>(layout);
    } catch (...) {
      heap_->release(cells);
      throw;
    }
  } catch (...) {
    for (const std::uint64_t at : layout.slot_at) heap_->release(Extent{at, layout.size_bytes});
    throw;
  }
  made.named.holding->adopt(heap_);
  made.named.tensor = std::make_shared<StoredTensor>(std::move(layout));
  made.named.tensor->holding = made.named.holding;
  ++next_tensor_id_;
  return made;
}

// What does not depend on what there is.
format::TensorLayout Store::check_new(std::string_view name, DType dtype,
                                      std::span<const std::int64_t> shape, bool replace) {
  check_writable();
  refuse_inside(replace ? "replace() was called" : "create() was called");
  check_name(name);
  const auto size = tensor_bytes(dtype, shape);
  if (!size) throw_impossible_layout(name);
  format::TensorLayout layout;
  layout.name = name;
  layout.dtype = dtype;
  layout.shape.assign(shape.begin(), shape.end());
  layout.size_bytes = *size;
  layout.placement = placement_;
  return layout;
}

void Store::check_may_add(std::string_view name, bool replace) {
  check_writable();
  check_not_abandoned();
  const bool there = names_now().contains(name);
  if (!replace && there) throw_name_taken(name);
  if (replace && !there) throw_nothing_to_replace(name);
  if (next_tensor_id_ >= format::kMaxCounter) throw_no_ids_left(name, next_tensor_id_);
}

NewTensor Store::make(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                      bool replace) {
  auto layout = check_new(name, dtype, shape, replace);
  std::optional<ClosedGate> closed;  // the medium may grow, which excludes every write
  if (!planted(Bug::growth_beside_writers)) closed.emplace(*gate_, patience_);
  check_may_add(name, replace);
  return place(std::move(layout), replace);
}

void Store::add(const NewTensor& made) {
  const ClosedGate closed(*gate_, patience_);
  check_may_add(made.named.tensor->layout.name, made.replaces);
  add_behind_gate(made);
}

std::shared_ptr<StoredTensor> Store::create(std::string_view name, DType dtype,
                                            std::span<const std::int64_t> shape, bool replace) {
  auto layout = check_new(name, dtype, shape, replace);
  std::optional<ClosedGate> closed;  // the medium may grow, which excludes every write
  if (!planted(Bug::growth_beside_writers)) closed.emplace(*gate_, patience_);
  check_may_add(name, replace);
  const NewTensor made = place(std::move(layout), replace);
  add_behind_gate(made);
  return made.named.tensor;
}

// All that can throw comes before the manifest and the lists change together; the record last of
// it, because a record without its tensor would be a lie on the medium. The medium may grow for
// pages: names can be looked up meanwhile.
void Store::add_behind_gate(const NewTensor& made) {
  look_for_rival();
  make_capacity(open_->dirty);
  StoredTensor& tensor = *made.named.tensor;
  const std::string& name = tensor.layout.name;
  Names added;
  const auto node = added.try_emplace(name, made.named).first;
  Names* names = nullptr;
  {
    std::lock_guard lock(structure_);
    names = &open_->change_names();
  }
  const auto old = names->find(name);
  if (old != names->end()) open_for_removal(*old->second.tensor);
  heap_->reserve_pages(pages_for(made.named.holding->cells()));
  open_->tree.open_cells(made.named.holding->cells());
  tensor.records_leaf = open_->tree.add_tensor(tensor.layout);
  take_up_value(made);
  open_->names_changed = true;
  open_->dirty.push_back(made.named.tensor);
  Named gone;
  std::unique_lock lock(structure_);
  open_->tensor_bytes += tensor.layout.size_bytes;
  if (old != names->end()) {
    gone = std::move(old->second);
    names->erase(old);  // its key is the old tensor's
  }
  names->insert(added.extract(node));
  lock.unlock();  // others look up names while a reader of what is gone is waited for
  if (gone.tensor) remove(*gone.tensor);
}

// Zeros, or what was written in their place. Attempts may have come and gone since.
void Store::take_up_value(const NewTensor& made) {
  StoredTensor& tensor = *made.named.tensor;
  const std::uint64_t version = open_->version();
  tensor.attempt = open_->sequence;
  open_->staged_bytes += made.staged_bytes;
  for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
    if (!tensor.written.contains(chunk)) continue;
    const unsigned slot = format::chunk_slot(tensor.staged[chunk]);
    tensor.staged[chunk].state = format::chunk_state(format::ChunkKind::stored, slot, version);
    if (tensor.whole()) tensor.label(slot, chunk) = version;
  }
}

void Store::erase(std::string_view name) {
  check_writable();
  refuse_inside("erase() was called");
  const ClosedGate closed(*gate_, patience_);
  check_writable();
  check_not_abandoned();
  const auto there = names_now().find(name);
  if (there == names_now().end()) {
    throw Error(Errc::unknown_name, fmt::format("no tensor '{}' to erase", name),
                "names() lists what there is.");
  }
  const Named gone = there->second;
  open_for_removal(*gone.tensor);
  {
    std::lock_guard lock(structure_);
    Names& names = open_->change_names();
    names.erase(names.find(name));
  }
  remove(*gone.tensor);
}

// After it, remove() cannot fail.
void Store::open_for_removal(const StoredTensor& tensor) {
  open_->tree.open_leaf(tensor.records_leaf);
  open_->tree.open_cells({tensor.layout.first_cell, tensor.layout.cell_count()});
}

// Out of the attempt. What a version names stays as it is until none does.
void Store::remove(StoredTensor& tensor) noexcept {
  open_->tree.remove_tensor(tensor.records_leaf, tensor.layout.tensor_id);
  for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
    open_->tree.set_record(tensor.cell(i), {});
  }
  {
    std::lock_guard lock(structure_);
    open_->names_changed = true;
    open_->tensor_bytes -= tensor.layout.size_bytes;
    open_->removed_committed |= open_->base->names->contains(tensor.layout.name);
  }
  std::lock_guard lock(tensor.mutex);  // of whoever reads it
  tensor.erased = true;
  if (!planted(Bug::slots_reused_early)) return;
  if (const auto holding = tensor.holding.lock()) holding->give_back();
}

}  // namespace tensorshelf
