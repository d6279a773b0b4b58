#include "store/room/tensors.hpp"

#include <algorithm>
#include <utility>

#include "base/make_capacity.hpp"
#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/room/tensor_checks.hpp"
#include "store/state/pinned.hpp"

namespace tensorshelf {

using format::kCopies;

// Slots, cells and an id, which are the tensor's alone from here on.
NewTensor Tensors::place(format::TensorLayout layout, Made made, const Where& where) {
  state_.rival.look();
  drop_unkept(state_);  // whose readers have let go since
  layout.tensor_id = state_.next_tensor_id;
  // Behind all that the manifest has cells for; add() knows where they really lie.
  const CellRun behind{state_.open->tree.cells_page_count() * format::kPageCells,
                       layout.cell_count()};
  SlotsWanted wanted;
  wanted.slot_count = state_.opened.slot_count;
  wanted.pages = state_.pages_for(behind);
  wanted.media = where.media;
  layout.stripes = static_cast<std::uint8_t>(where.media.size());
  layout.placement = where.placement;
  wanted.name = layout.name;
  wanted.extent_bytes = layout.extent_bytes();
  try {
    layout.slot_at = state_.heap->take_slots(wanted);
  } catch (const Error& error) {
    const bool more_to_come = state_.open->removed_committed;
    if (error.code() == Errc::full && more_to_come) throw_full_until_persisted(error);
    throw;
  }
  NewTensor tensor;
  tensor.made = made;
  try {
    const CellRun cells = state_.heap->take_cells(layout.cell_count());
    layout.first_cell = cells.first;
    try {
      tensor.named.holding = std::make_shared<Holding>(layout);
    } catch (...) {
      state_.heap->release(cells);
      throw;
    }
  } catch (...) {
    Heap& heap = *state_.heap;
    for (const std::uint64_t at : layout.slot_at) heap.release(Extent{at, layout.extent_bytes()});
    throw;
  }
  tensor.named.holding->adopt(state_.heap);
  tensor.named.tensor = std::make_shared<StoredTensor>(std::move(layout));
  tensor.named.tensor->holding = tensor.named.holding;
  ++state_.next_tensor_id;
  return tensor;
}

// What does not depend on what there is.
format::TensorLayout Tensors::check_new(std::string_view name, DType dtype,
                                        std::span<const std::int64_t> shape, Made made) {
  state_.check_writable();
  refuse_inside(state_, made == Made::in_place ? "replace() was called" : "create() was called");
  check_tensor_name(name);
  const auto size = tensor_bytes(dtype, shape);
  if (!size) throw_impossible_layout(name);
  format::TensorLayout layout;
  layout.name = name;
  layout.dtype = dtype;
  layout.shape.assign(shape.begin(), shape.end());
  layout.size_bytes = *size;
  return layout;
}

void Tensors::check_may_add(std::string_view name, Made made) {
  state_.check_writable();
  state_.check_not_abandoned();
  const bool there = state_.names_now().contains(name);
  if (made == Made::anew && there) throw_name_taken(name);
  if (made == Made::in_place && !there) throw_no_tensor(name, "replace");
  if (state_.next_tensor_id >= format::kMaxCounter) throw_no_ids_left(name, state_.next_tensor_id);
}

// The one whose place another takes. `to` says what it is wanted for.
std::shared_ptr<StoredTensor> Tensors::replaceable(std::string_view name, const char* to) {
  state_.check_writable();
  const auto there = state_.names_now().find(name);
  if (there == state_.names_now().end()) throw_no_tensor(name, to);
  check_may_add(name, Made::in_place);
  return there->second.tensor;
}

// The medium may grow, which excludes every write.
std::optional<ClosedGate> Tensors::close_for_growth() {
  std::optional<ClosedGate> closed;
  if (!planted(Bug::growth_beside_writers)) closed.emplace(*state_.gate, state_.patience);
  return closed;
}

// Chosen while the gate is open, for a rule of the user's may be asked.
std::optional<ClosedGate> Tensors::close_over(Where& where, std::string_view name,
                                              std::uint64_t size_bytes,
                                              std::span<const unsigned> media) {
  for (;;) {
    where = choose_where(state_, name, size_bytes, media);
    auto closed = close_for_growth();
    const MediumSet there = state_.further->attached().in_use();
    const auto is_gone = [&](unsigned medium) { return medium != 0 && !there.has(medium); };
    if (std::ranges::none_of(where.media, is_gone)) return closed;
  }
}

NewTensor Tensors::make(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                        Made made, std::span<const unsigned> media) {
  auto layout = check_new(name, dtype, shape, made);
  Where where;
  const auto closed = close_over(where, name, layout.size_bytes, media);
  check_may_add(name, made);
  std::erase_if(being_made_, [](const auto& one) { return one.expired(); });
  make_capacity(being_made_);
  NewTensor tensor = place(std::move(layout), made, where);
  being_made_.push_back(tensor.named.tensor);
  return tensor;
}

void Tensors::add(const NewTensor& tensor) {
  const ClosedGate closed(*state_.gate, state_.patience);
  check_may_add(tensor.named.tensor->layout.name, tensor.made);
  add_behind_gate(tensor);
  std::erase_if(being_made_, [&](const auto& one) { return one.lock() == tensor.named.tensor; });
}

std::shared_ptr<StoredTensor> Tensors::create(std::string_view name, DType dtype,
                                              std::span<const std::int64_t> shape, Made made,
                                              std::span<const unsigned> media) {
  auto layout = check_new(name, dtype, shape, made);
  Where where;
  const auto closed = close_over(where, name, layout.size_bytes, media);
  check_may_add(name, made);
  const NewTensor tensor = place(std::move(layout), made, where);
  add_behind_gate(tensor);
  return tensor.named.tensor;
}

// All that can throw comes before the manifest and the lists change together; the record last of
// it, because a record without its tensor would be a lie on the medium. The medium may grow for
// pages: names can be looked up meanwhile.
void Tensors::add_behind_gate(const NewTensor& made) {
  state_.rival.look();
  make_capacity(state_.open->dirty);
  StoredTensor& tensor = *made.named.tensor;
  const std::string& name = tensor.layout.name;
  Names added;
  const auto node = added.try_emplace(name, made.named).first;
  Names* names = nullptr;
  {
    std::lock_guard lock(state_.structure);
    names = &state_.open->change_names();
  }
  const auto old = names->find(name);
  if (old != names->end()) open_for_removal(old->second);
  state_.heap->reserve_pages(state_.pages_for(made.named.holding->cells()));
  state_.name_media(tensor.media);
  state_.open->tree.open_cells(made.named.holding->cells());
  const std::uint32_t leaf = state_.open->tree.add_tensor(tensor.layout);
  take_up_value(made);
  state_.open->names_changed = true;
  state_.open->dirty.push_back(made.named.tensor);
  Named gone;
  std::unique_lock lock(state_.structure);
  state_.open->tensor_bytes += tensor.layout.size_bytes;
  if (old != names->end()) {
    gone = std::move(old->second);
    names->erase(old);  // its key is the old tensor's
  }
  node->second.records_leaf = leaf;
  names->insert(added.extract(node));
  lock.unlock();  // others look up names while a reader of what is gone is waited for
  if (gone.tensor) remove(gone);
}

// Zeros, or what was written in their place. Attempts may have come and gone since.
void Tensors::take_up_value(const NewTensor& made) {
  StoredTensor& tensor = *made.named.tensor;
  const std::uint64_t version = state_.open->version();
  tensor.attempt = state_.open->sequence;
  state_.open->staged_bytes += made.staged_bytes;
  for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
    if (!tensor.written.contains(chunk)) continue;
    const unsigned slot = format::chunk_slot(tensor.staged[chunk]);
    tensor.staged[chunk].state = format::chunk_state(format::ChunkKind::stored, slot, version);
    if (tensor.whole()) tensor.label(slot, chunk) = version;
  }
}

void Tensors::erase(std::string_view name) {
  state_.check_writable();
  refuse_inside(state_, "erase() was called");
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  state_.check_not_abandoned();
  const auto there = state_.names_now().find(name);
  if (there == state_.names_now().end()) throw_no_tensor(name, "erase");
  const Named gone = there->second;
  open_for_removal(gone);
  {
    std::lock_guard lock(state_.structure);
    Names& names = state_.open->change_names();
    names.erase(names.find(name));
  }
  remove(gone);
}

// After it, remove() cannot fail.
void Tensors::open_for_removal(const Named& named) {
  state_.open->tree.open_leaf(named.records_leaf);
  state_.open->tree.open_cells(named.holding->cells());
}

// Out of the attempt. What a version names stays as it is until none does.
void Tensors::remove(const Named& named) noexcept {
  StoredTensor& tensor = *named.tensor;
  const Named* const before = named_in(*state_.open->base->names, tensor);
  state_.open->tree.remove_tensor(named.records_leaf, tensor.layout.tensor_id);
  for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
    state_.open->tree.set_record(tensor.cell(i), {});
  }
  {
    std::lock_guard lock(state_.structure);
    state_.open->names_changed = true;
    state_.open->tensor_bytes -= tensor.layout.size_bytes;
    state_.open->removed_committed |= before != nullptr;
  }
  std::lock_guard lock(tensor.mutex);  // of whoever reads it
  tensor.erased = true;
  if (before != nullptr) tensor.lie_at(before->holding);
  if (!planted(Bug::slots_reused_early)) return;
  named.holding->give_back();
}

}  // namespace tensorshelf
