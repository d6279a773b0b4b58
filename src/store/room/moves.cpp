// Slots that nothing names get other places: the tensor's record in the open attempt, its holding
// there and the tensor in memory change together, and nothing is copied.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/planted.hpp"
#include "store/room/compactor.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

namespace {

constexpr std::size_t kAtOnce = 64;  // tensors that are moved while the gate is closed

}  // namespace

// Where pages lie that are on their way, who commits them decides at that moment.
bool Compactor::open_pages(std::uint64_t goal, bool waits) {
  if (waits) state_.wait_until_quiet(state_.patience);
  {
    const std::lock_guard lock(state_.structure);
    if (!state_.versions.in_flight.empty()) return false;
  }
  if (!state_.open->tree.open_beyond(goal)) return false;
  return state_.open->moved = true;
}

bool Compactor::lower(const Goals& goals, bool waits) {
  const Tensors tensors = behind(goals);
  bool any = false;
  for (std::size_t begin = 0; begin < tensors.size() || begin == 0; begin += kAtOnce) {
    const ClosedGate closed(*state_.gate, state_.patience);
    state_.check_writable();
    state_.check_not_abandoned();
    state_.rival.look();
    if (begin == 0) any |= open_pages(goals[0], waits);
    const std::size_t end = std::min(tensors.size(), begin + kAtOnce);
    for (std::size_t i = begin; i < end; ++i) any |= relocate(*tensors[i], goals);
  }
  return any;
}

Compactor::Tensors Compactor::behind(const Goals& goals) {
  std::vector<std::pair<std::uint64_t, std::shared_ptr<StoredTensor>>> found;
  {
    const ClosedGate closed(*state_.gate, state_.patience);
    state_.check_writable();
    for (const auto& [name, named] : *state_.open->names) {
      const auto& layout = named.tensor->layout;
      if (layout.size_bytes == 0) continue;
      for (const std::uint64_t at : layout.slot_at) {
        if (at + layout.extent_bytes() <= goals[medium_of(at)]) continue;
        found.emplace_back(at, named.tensor);
        break;
      }
    }
  }
  std::sort(found.begin(), found.end());
  Tensors tensors;
  for (auto& [at, tensor] : found) tensors.push_back(std::move(tensor));
  return tensors;
}

namespace {

// A bit for each that a version or the open attempt names. (What a lease shows stays where it is,
// the lease's own: Reader::LeasedSlot.) The gate is closed, and the tensor's mutex held.
unsigned used_slots(State& state, StoredTensor& tensor) {
  unsigned used = 0;
  const auto note = [&](const ChunkRecord& record) {
    if (format::chunk_kind(record) == ChunkKind::stored) used |= 1U << format::chunk_slot(record);
  };
  const std::uint64_t chunks = tensor.layout.chunk_count();
  {
    const std::lock_guard lock(state.structure);
    for (const auto* list : {&state.versions.retained, &state.versions.in_flight}) {
      const bool newest_alone =
          list == &state.versions.retained && planted(Bug::moved_retained_slot);
      for (const auto& version : *list) {
        if (newest_alone && version != list->back()) continue;
        for (std::uint64_t i = 0; i < chunks; ++i) note(version->tree.record(tensor.cell(i)));
      }
    }
  }
  if (tensor.attempt == state.open->sequence && !planted(Bug::moved_staged_slot)) {
    if (tensor.whole()) used |= 1U << tensor.working;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      if (tensor.written.contains(i)) note(tensor.staged[i]);
    }
  }
  return used;
}

}  // namespace

// The gate is closed. All that can throw comes before the record, the names and the tensor change
// together.
bool Compactor::relocate(StoredTensor& tensor, const Goals& goals) {
  const Named* const named = named_in(*state_.open->names, tensor);
  if (named == nullptr) return false;
  const std::unique_lock lock(tensor.mutex);
  const unsigned used = used_slots(state_, tensor);
  auto slot_at = tensor.layout.slot_at;
  const std::uint64_t size = tensor.layout.extent_bytes();
  std::vector<Extent> taken;
  taken.reserve(slot_at.size());
  const auto holding = [&]() -> std::shared_ptr<Holding> {
    for (std::size_t i = 0; i < slot_at.size(); ++i) {
      const bool names = (used >> (i / tensor.layout.stripes) & 1U) != 0;
      if (names || slot_at[i] + size <= goals[medium_of(slot_at[i])]) continue;
      const auto at = state_.heap->take_below(slot_at[i], size);
      if (!at) continue;
      taken.push_back({*at, size});
      slot_at[i] = *at;
    }
    if (taken.empty()) return nullptr;
    const std::span<const std::uint64_t> there(slot_at.begin(), slot_at.end());
    return std::make_shared<Holding>(*named->holding, there);
  };
  std::shared_ptr<Holding> now;
  Names* names = nullptr;
  try {
    now = holding();
    if (!now) return false;
    state_.open->tree.open_leaf(named->records_leaf);
    const std::lock_guard structure(state_.structure);
    names = &state_.open->change_names();
  } catch (...) {
    for (const Extent& extent : taken) state_.heap->release(extent);
    throw;
  }
  now->adopt(state_.heap);
  const std::lock_guard structure(state_.structure);
  Named& changed = names->find(*name_in(*names, tensor))->second;
  state_.open->tree.move_tensor(changed.records_leaf, tensor.layout.tensor_id, now->slot_at());
  state_.open->moved = true;
  if (planted(Bug::left_place_given_back)) changed.holding->give_back();
  changed.holding = now;
  tensor.lie_at(now);
  report_.bytes_moved += taken.size() * size;
  return true;
}

}  // namespace tensorshelf
