// What there is, otherwise: another name, another length, room ahead.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/stager.hpp"
#include "store/room/tensor_checks.hpp"
#include "store/room/tensors.hpp"

namespace tensorshelf {
namespace {

format::TensorLayout resized(const StoredTensor& tensor, std::int64_t rows) {
  format::TensorLayout layout = unplaced(tensor);
  if (layout.shape.size() == 0) {
    throw Error(Errc::layout, fmt::format("'{}' is a single number, and has no rows", layout.name),
                "replace() gives it another shape.");
  }
  layout.shape[0] = rows;
  const auto size = tensor_bytes(layout.dtype, {layout.shape.data(), layout.shape.size()});
  if (!size) throw_impossible_layout(layout.name);
  layout.size_bytes = *size;
  return layout;
}

}  // namespace

// Slots, cells and values stay as they are, and in versions that have the old name it stays. All
// that can throw comes before the manifest and the names change together.
void Tensors::rename(std::string_view from, std::string_view to) {
  state_.check_writable();
  refuse_inside(state_, "rename() was called");
  check_tensor_name(to);
  const auto closed = close_for_growth();
  state_.check_writable();
  state_.check_not_abandoned();
  const auto there = state_.names_now().find(from);
  if (there == state_.names_now().end()) throw_no_tensor(from, "rename");
  if (from == to) return;
  if (state_.names_now().contains(to)) throw_name_taken(to);
  state_.rival.look();
  const auto [tensor, holding, leaf] = there->second;
  format::TensorLayout renamed = tensor->layout;
  renamed.name = to;
  const std::string& name = tensor->names.keep(to);
  Names* names = nullptr;
  {
    std::lock_guard lock(state_.structure);
    names = &state_.open->change_names();
  }
  state_.heap->reserve_pages(state_.pages_for(holding->cells()));
  const std::uint32_t now = state_.open->tree.rename_tensor(leaf, renamed);
  state_.open->names_changed = true;
  std::lock_guard lock(state_.structure);
  auto node = names->extract(names->find(from));
  node.key() = name;
  node.mapped().records_leaf = planted(Bug::renamed_leaf_kept) ? leaf : now;
  names->insert(std::move(node));
  tensor->names.set(name);
}

// Behind the closed gate nobody assigns it meanwhile, nor drops what was assigned.
std::shared_ptr<StoredTensor> Tensors::resize(std::string_view name, std::int64_t rows) {
  state_.check_writable();
  refuse_inside(state_, "resize() was called");
  const auto closed = close_for_growth();
  const std::shared_ptr<StoredTensor> old = replaceable(name, "resize");
  auto layout = resized(*old, rows);
  if (layout.shape == old->layout.shape) return old;
  // One without bytes lies nowhere.
  const Where where = old->layout.size_bytes > 0
                          ? where_of(old->layout)
                          : choose_where(state_, name, layout.size_bytes, {});
  return remake(*old, std::move(layout), where);
}

// With the gate closed. Another tensor in its place, with what of its value has room.
std::shared_ptr<StoredTensor> Tensors::remake(StoredTensor& old, format::TensorLayout layout,
                                              const Where& where) {
  NewTensor made = place(std::move(layout), Made::in_place, where);
  made.named.tensor->attempt = state_.open->sequence;
  made.staged_bytes = stager_.copy_value(old, *made.named.tensor);
  add_behind_gate(made);
  return made.named.tensor;
}

void Tensors::reserve(std::uint64_t size_bytes) {
  state_.check_writable();
  refuse_inside(state_, "reserve() was called");
  const auto closed = close_for_growth();
  state_.check_writable();
  state_.rival.look();
  const Where where = choose_where(state_, "", size_bytes, {});
  format::TensorLayout as_one;  // in whole chunks, where it is striped
  as_one.size_bytes = size_bytes;
  as_one.stripes = static_cast<std::uint8_t>(where.media.size());
  const std::uint64_t each = as_one.extent_bytes();
  MediumSet media;
  for (const unsigned medium : where.media) {
    state_.heap->make_room(medium, each, state_.opened.slot_count);
    media.add(medium);
  }
  state_.name_media(media);  // how far each reaches now
}

}  // namespace tensorshelf
