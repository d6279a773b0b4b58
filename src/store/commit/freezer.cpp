#include "store/commit/freezer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/planted.hpp"
#include "store/state/pinned.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;
using format::Root;

namespace {

// Those of the attempt, of which some are asked of memory before they are looked at: they are cold.
template <typename Visit>
void each_dirty(const Attempt& attempt, Visit visit) {
  constexpr std::size_t kAhead = 8;
  const auto& dirty = attempt.dirty;
  for (std::size_t i = 0; i < dirty.size(); ++i) {
    if (i + kAhead < dirty.size()) dirty[i + kAhead]->prefetch();
    visit(*dirty[i]);
  }
}

}  // namespace

Flight Freezer::freeze(std::optional<std::uint64_t> step) {
  const ClosedGate closed = close_gate();
  return freeze_behind_gate(step);
}

ClosedGate Freezer::close_gate() {
  const auto full = [this] {
    const bool busy = state_.versions.in_flight.size() >= state_.split.in_flight;
    const bool allowed = state_.versions.may_make(state_.opened.slot_count) ||
                         planted(Bug::held_version_not_counted);
    return (busy || !allowed) && !state_.health.failed();
  };
  for (;;) {
    {
      std::unique_lock lock(state_.structure);
      if (state_.versions.undecided()) state_.throw_unresolved("nothing can be committed");
      if (!planted(Bug::commits_overlap)) {
        await_unpinned(state_, lock, [&] { return !full(); });
      }
    }
    ClosedGate closed(*state_.gate, state_.patience);
    state_.check_writable();
    std::lock_guard lock(state_.structure);
    if (!full() || planted(Bug::commits_overlap)) return closed;
  }  // another was faster
}

Flight Freezer::freeze_behind_gate(std::optional<std::uint64_t> step) {
  state_.check_not_abandoned();
  check_version_left();
  check_nothing_spoiled();
  state_.rival.look_again();  // before we write where his version may lie
  if (planted(Bug::gate_opened_early)) state_.gate->admit();
  // (Those that were erased since stay in the list: discard() has to know what they staged.)
  // Throws Errc::corrupt where a chunk to be copied forward is damaged. Assigning the damaged
  // tensor whole lets the next persist() go on.
  each_dirty(*state_.open, [&](StoredTensor& tensor) {
    std::lock_guard lock(tensor.mutex);
    if (tensor.erased) return;
    stager_.complete(tensor);
    state_.open->tree.open_cells({tensor.layout.first_cell, tensor.layout.cell_count()});
  });
  MediumSet media;
  each_dirty(*state_.open, [&](const StoredTensor& tensor) {
    media.add(tensor.media);
    if (!tensor.erased) record_staged(tensor);
  });
  state_.name_attached(state_.open->tree);

  auto version = std::make_shared<Version>();
  version->tree = state_.open->tree;
  version->names = state_.open->names;
  version->tensor_bytes = state_.open->tensor_bytes;
  version->root = next_root(step);
  auto next = state_.attempt_over(version, state_.open->sequence);
  Flight flight = launch(std::move(version), std::move(next));
  flight.media = media;
  return flight;
}

// From here on the attempt is a version on its way, and writers go on in the next. Needs no memory.
Flight Freezer::launch(std::shared_ptr<Version> version, std::shared_ptr<Attempt> next) {
  Flight flight;
  flight.data_bytes = version->root.data_bytes;
  flight.last_ticket = state_.last_ticket;
  flight.version = std::move(version);
  std::lock_guard lock(state_.structure);
  // There is room for as many as there are slots.
  state_.versions.in_flight.push_back(flight.version);
  state_.replace_open(next);
  return flight;
}

void Freezer::check_may_commit() {
  check_version_left();
  state_.rival.look_again();  // before we write where his version may lie
}

// I13. A medium that has failed takes nothing, and says why itself.
void Freezer::check_nothing_spoiled() const {
  if (state_.medium->failed() || planted(Bug::spoiled_committed)) return;
  each_dirty(*state_.open, [&](const StoredTensor& tensor) {
    if (!tensor.erased) tensor.check_not_spoiled(state_.open->sequence);
  });
}

// What the attempt says of the tensor's chunks. Their pages are open.
void Freezer::record_staged(const StoredTensor& tensor) {
  const std::uint64_t version = state_.open->version();
  Tree& tree = state_.open->tree;
  if (tensor.layout.size_bytes == 0) {
    tree.set_record(tensor.cell(0), {0, format::chunk_state(ChunkKind::zeros, 0, version)});
  }
  for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
    if (tensor.written.contains(chunk)) {
      tree.set_record(tensor.cell(chunk), tensor.staged[chunk]);
      continue;
    }
    ChunkRecord record = state_.open->base->tree.record(tensor.cell(chunk));
    if (tensor.whole()) {  // it was copied forward
      record.state =
          format::chunk_state(ChunkKind::stored, tensor.working, format::chunk_version(record));
    } else if (format::chunk_kind(record) == ChunkKind::none) {
      record = {0, format::chunk_state(ChunkKind::zeros, 0, version)};
    }
    tree.set_record(tensor.cell(chunk), record);
  }
}

Root Freezer::next_root(std::optional<std::uint64_t> step) const {
  const Root& before = state_.open->base->root;
  const std::uint64_t version = state_.open->version();
  Root root{};
  root.incarnation = state_.opened.incarnation;
  root.sequence = state_.open->sequence;
  root.word = format::attempt_word(version, root.incarnation, root.sequence);
  root.step = step.value_or(before.step);  // the last one that was stated
  // What could not be loaded is not retained, nor what is older.
  root.floor =
      std::max(before.floor, version - std::min<std::uint64_t>(version, state_.split.keep));
  {
    std::lock_guard lock(state_.structure);
    root.floor = std::max(root.floor, state_.versions.retained.front()->number());
  }
  if (planted(Bug::floor_not_raised)) root.floor = before.floor;
  root.time_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
  root.data_bytes = state_.open->staged_bytes;
  root.capacity_bytes =
      planted(Bug::capacity_not_recorded) ? before.capacity_bytes : state_.heap->capacity_bytes();
  root.next_tensor_id = state_.next_tensor_id;
  root.tensor_count = state_.open->names->size();
  root.keep = static_cast<std::uint16_t>(state_.split.keep);
  root.in_flight = static_cast<std::uint16_t>(state_.split.in_flight);
  if (planted(Bug::split_not_stored)) {
    root.keep = before.keep;
    root.in_flight = before.in_flight;
  }
  return root;
}

// Before anything is done: the shelf stays as it is, and can be read.
void Freezer::check_version_left() const {
  const std::uint64_t version = state_.open->version();
  if (version < format::kMaxVersion) return;
  throw Error(Errc::full,
              fmt::format("version {} of {} is the last that the format can count", version - 1,
                          state_.path),
              "Copy the tensors into a new shelf.");
}

}  // namespace tensorshelf
