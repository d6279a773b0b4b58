// The first step of a commit: the open attempt becomes a version on its way, and the next one
// opens. The gate is closed, and all that can fail comes before anything changes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/planted.hpp"
#include "store/store.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;
using format::Root;

Flight Store::freeze_in_turn(std::optional<std::uint64_t> step) {
  const ClosedGate closed = close_to_freeze();
  return freeze_behind_gate(step);
}

ClosedGate Store::close_to_freeze() {
  const auto full = [this] { return in_flight_.size() >= in_flight_limit_ && !failed_; };
  for (;;) {
    {
      std::unique_lock lock(structure_);
      if (undecided()) throw_unresolved("nothing can be committed");
      if (!planted(Bug::commits_overlap))
        patience_.wait(*published_, lock, [&] { return !full(); });
    }
    ClosedGate closed(*gate_, patience_);
    check_writable();
    std::lock_guard lock(structure_);
    if (!full() || planted(Bug::commits_overlap)) return closed;
  }  // another was faster
}

Flight Store::freeze_behind_gate(std::optional<std::uint64_t> step) {
  check_not_abandoned();
  check_version_left();
  check_nothing_spoiled();
  look_for_rival_before_commit();
  if (planted(Bug::gate_opened_early)) gate_->admit();
  // (Those that were erased since stay in the list: discard() has to know what they staged.)
  // Throws Errc::corrupt where a chunk to be copied forward is damaged. Assigning the damaged
  // tensor whole lets the next persist() go on.
  for (const auto& tensor : open_->dirty) {
    std::lock_guard lock(tensor->mutex);
    if (tensor->erased) continue;
    complete(*tensor);
    open_->tree.open_cells({tensor->layout.first_cell, tensor->layout.cell_count()});
  }
  for (const auto& tensor : open_->dirty) {
    if (!tensor->erased) record_staged(*tensor);
  }

  auto version = std::make_shared<Version>();
  version->tree = open_->tree;
  version->names = open_->names;
  version->tensor_bytes = open_->tensor_bytes;
  version->root = next_root(step);
  auto next = attempt_over(version, open_->sequence);
  return launch(std::move(version), std::move(next));
}

// The gate is closed: the version that its home held was published long ago.
std::shared_ptr<Attempt> Store::attempt_over(std::shared_ptr<const Version> over,
                                             std::uint64_t after) const {
  const std::uint64_t sequence = homes_.next_sequence(over->root, opened_.incarnation, after);
  return std::make_shared<Attempt>(std::move(over), sequence);
}

// From here on the attempt is a version on its way, and writers go on in the next. Needs no memory.
Flight Store::launch(std::shared_ptr<Version> version, std::shared_ptr<Attempt> next) {
  Flight flight;
  flight.data_bytes = version->root.data_bytes;
  flight.last_ticket = last_ticket_;
  flight.version = std::move(version);
  std::lock_guard lock(structure_);
  in_flight_.push_back(flight.version);  // there is room: no more are ever in flight than slots
  open_.swap(next);
  looked_ = false;
  return flight;
}

// I13. A medium that has failed takes nothing, and says why itself.
void Store::check_nothing_spoiled() const {
  if (medium_->failed() || planted(Bug::spoiled_committed)) return;
  for (const auto& tensor : open_->dirty) {
    if (!tensor->erased) tensor->check_sound(open_->sequence);
  }
}

// I10: before we write where his version may lie.
void Store::look_for_rival_before_commit() {
  try {
    check_no_rival(*medium_, opened_, seeds_);
  } catch (const Error& error) {
    if (error.code() == Errc::busy) fail(error.what());
    throw;
  }
}

// What the attempt says of the tensor's chunks. Their pages are open.
void Store::record_staged(const StoredTensor& tensor) {
  const std::uint64_t version = open_->version();
  Tree& tree = open_->tree;
  if (tensor.layout.size_bytes == 0) {
    tree.set_record(tensor.cell(0), {0, format::chunk_state(ChunkKind::zeros, 0, version)});
  }
  for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
    ChunkRecord record = open_->base->tree.record(tensor.cell(chunk));
    if (tensor.written.contains(chunk)) {
      record = tensor.staged[chunk];
    } else if (tensor.whole()) {  // it was copied forward
      record.state =
          format::chunk_state(ChunkKind::stored, tensor.working, format::chunk_version(record));
    } else if (format::chunk_kind(record) == ChunkKind::none) {
      record = {0, format::chunk_state(ChunkKind::zeros, 0, version)};
    }
    tree.set_record(tensor.cell(chunk), record);
  }
}

Root Store::next_root(std::optional<std::uint64_t> step) const {
  const Root& before = open_->base->root;
  const std::uint64_t version = open_->version();
  Root root{};
  root.incarnation = opened_.incarnation;
  root.sequence = open_->sequence;
  root.word = format::attempt_word(version, root.incarnation, root.sequence);
  root.step = step.value_or(before.step);  // the last one that was stated
  // What could not be loaded is not retained, nor what is older.
  root.floor = std::max(before.floor, version - std::min<std::uint64_t>(version, keep_));
  {
    std::lock_guard lock(structure_);
    root.floor = std::max(root.floor, retained_.front()->number());
  }
  if (planted(Bug::floor_not_raised)) root.floor = before.floor;
  root.time_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
  root.data_bytes = open_->staged_bytes;
  root.capacity_bytes =
      planted(Bug::capacity_not_recorded) ? before.capacity_bytes : heap_->capacity_bytes();
  root.next_tensor_id = next_tensor_id_;
  root.tensor_count = open_->names->size();
  root.keep = static_cast<std::uint16_t>(keep_);
  root.in_flight = static_cast<std::uint16_t>(in_flight_limit_);
  if (planted(Bug::split_not_stored)) {
    root.keep = before.keep;
    root.in_flight = before.in_flight;
  }
  return root;
}

// Before anything is done: the shelf stays as it is, and can be read.
void Store::check_version_left() const {
  const std::uint64_t version = open_->version();
  if (version < format::kMaxVersion) return;
  throw Error(
      Errc::full,
      fmt::format("version {} of {} is the last that the format can count", version - 1, path_),
      "Copy the tensors into a new shelf.");
}

}  // namespace tensorshelf
