// The commit: from the open attempt to a durable version. The steps of docs/design.md, in their
// order:
//
//   1  freeze    what a tensor that is placed whole was not assigned is copied forward; the attempt
//                becomes a version, the next one opens, and writers go on there
//   2  describe  changed manifest pages, their directories, both root copies under the old word
//   3  barrier   I1
//   4  flip      the version word of both copies, after a look for a rival (I10)
//   5  barrier   I2
//   6  publish   in memory: what fell below the floor is free now
//
// The gate is closed for 1: no writer is inside, and every writer that was has drained its
// own stores (I7). A failure there leaves the attempt open, and nothing is lost. From 2 on attempts
// go one by one, in order, and after a failure nobody knows what the medium holds: so all that are
// in flight fail, and the store commits no more until recovery has looked (I8).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/planted.hpp"
#include "store/store.hpp"
#include "store/turn.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;
using format::Root;

Commit Store::persist(std::optional<std::uint64_t> step) {
  const auto begin = std::chrono::steady_clock::now();
  check_writable();
  refuse_inside("persist() was called");
  Flight flight;
  {
    const Turn turn(*this);  // not while it is sealed: others may freeze
    flight = freeze_in_turn(step);
  }
  Commit commit = seal(std::move(flight));
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  commit.seconds = std::chrono::duration<double>(elapsed).count();
  return commit;
}

// All that needs memory comes before the attempt is frozen: one that nobody seals would keep all
// that follow it from their turn.
std::shared_future<Commit> Store::persist_async(std::optional<std::uint64_t> step) {
  check_writable();
  refuse_inside("persist_async() was called");
  const auto flight = std::make_shared<Flight>();
  const auto task = std::make_shared<std::packaged_task<Commit()>>([this, flight] {
    try {
      return seal(std::move(*flight));
    } catch (...) {
      std::lock_guard lock(failure_mutex_);
      if (!background_error_) background_error_ = std::current_exception();  // the first tells why
      background_failed_ = true;
      throw;
    }
  });
  auto future = task->get_future().share();
  auto work = Committer::prepare([task] { (*task)(); });
  const Turn turn(*this);  // so that they come to the committing thread in their order
  const ClosedGate closed = close_to_freeze();
  if (!committer_) committer_ = std::make_unique<Committer>();
  *flight = freeze_behind_gate(step);
  committer_->post(std::move(work));
  return future;
}

// ---- freeze -------------------------------------------------------------------------------------

Store::Flight Store::freeze_in_turn(std::optional<std::uint64_t> step) {
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

Store::Flight Store::freeze_behind_gate(std::optional<std::uint64_t> step) {
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
Store::Flight Store::launch(std::shared_ptr<Version> version, std::shared_ptr<Attempt> next) {
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

// ---- seal ---------------------------------------------------------------------------------------

Commit Store::seal(Flight flight) {
  await_turn(flight);
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t metadata_bytes = 0;
  or_fail(flight, [&] { make_durable(flight, metadata_bytes); });
  return finish(flight, metadata_bytes, begin);
}

// Called where something is caught. Also where only memory ran out: the medium may be ahead of us.
void Store::fail_flight(const Flight& flight) noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of an unknown kind");
  }
  drop(flight);
}

// Of an attempt that is durable.
Commit Store::finish(Flight& flight, std::uint64_t metadata_bytes,
                     std::chrono::steady_clock::time_point begin) {
  Commit commit;
  commit.version = flight.version->number();
  commit.data_bytes = flight.data_bytes;
  commit.metadata_bytes = metadata_bytes;
  commit.step = format::stated_step(flight.version->root);
  or_fail(flight, [&] {
    std::vector<std::shared_ptr<Version>> gone;
    gone.reserve(format::kMaxSlots);  // before the flip: what comes after it needs no memory
    check_no_rival(*medium_, opened_, seeds_);  // I10: and as late as can be
    flip(*flight.version, {*medium_, seeds_, heap_, homes_});
    const bool together = planted(Bug::two_words_at_once) && in_flight_.size() > 1;
    if (!planted(Bug::ack_without_barrier) && !together) {
      medium_->barrier();  // I2: acknowledged implies durable
    }
    publish(flight.version, gone);
  });
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  ++counters_.commits;
  counters_.metadata += commit.metadata_bytes;
  counters_.nanoseconds += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  commit.seconds = std::chrono::duration<double>(elapsed).count();
  return commit;
}

// One by one, in order; after a failure none.
void Store::await_turn(const Flight& flight) {
  {
    std::unique_lock lock(structure_);
    published_->wait(lock, [&] {
      return failed_ || in_flight_.front() == flight.version || planted(Bug::commits_overlap);
    });
    if (!failed_) return;
  }
  drop(flight);
  throw_failed();
}

void Store::make_durable(const Flight& flight, std::uint64_t& metadata_bytes) {
  const Press press{*medium_, seeds_, heap_, homes_};
  const std::uint64_t described = describe(*flight.version, press, metadata_bytes);
  if (!planted(Bug::wait_left_out)) medium_->wait({std::max(described, flight.last_ticket), 0});
  // I1: all that the root names is durable before any word names it
  if (!planted(Bug::flip_without_barrier)) medium_->barrier();
}

// Takes the version, so that nobody else keeps it.
void Store::publish(std::shared_ptr<Version>& version,
                    std::vector<std::shared_ptr<Version>>& gone) noexcept {
  homes_.words[format::home_of(version->root)].fill(version->root.word);
  {
    std::lock_guard lock(structure_);
    retained_.push_back(version);  // there is room: no more than there are slots
    version_ = version->number();
    if (prepared_ && prepared_->version == version) prepared_.reset();
    while (retained_.front()->number() < version->root.floor) {
      gone.push_back(std::move(retained_.front()));
      retained_.erase(retained_.begin());
    }
  }
  gone.clear();  // before whoever comes next needs their pages
  std::lock_guard lock(structure_);
  std::erase(in_flight_, version);
  version.reset();
  published_->notify_all();
}

void Store::drop(const Flight& flight) noexcept {
  std::lock_guard lock(structure_);
  std::erase(in_flight_, flight.version);
  if (prepared_ && prepared_->version == flight.version) prepared_.reset();
  if (!planted(Bug::waiter_not_woken)) published_->notify_all();
}

}  // namespace tensorshelf
