#include "store/commit/decisions.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/turn.hpp"
#include "store/io/mark.hpp"
#include "store/recovery/find_damage.hpp"
#include "store/recovery/load_root.hpp"

namespace tensorshelf {

using format::Root;

// Before anything is done, in our turn. While one is undecided the freeze refuses, and says why.
void Decisions::check_marks_left() const {
  std::lock_guard lock(state_.structure);
  if (state_.versions.undecided() || format::marks_left(mark_)) return;
  throw Error(Errc::full,
              fmt::format("the mark of what is prepared in {} was written {} times, and the format "
                          "counts no further",
                          state_.path, mark_.counter),
              "persist() goes on; for prepare(), copy the tensors into a new shelf.");
}

Prepared Decisions::prepare(std::optional<std::uint64_t> step, std::string_view id) {
  state_.check_writable();
  refuse_inside(state_, "prepare() was called");
  const Turn turn(state_);  // to the end: nothing is frozen behind it
  return prepare_in_turn(step, id, [] {});
}

Prepared Decisions::prepare_in_turn(std::optional<std::uint64_t> step, std::string_view id,
                                    const std::function<void()>& frozen) {
  Prepared info;
  info.id = id;
  PreparedAttempt made;
  made.info = info;  // all that needs memory, before the freeze
  check_marks_left();
  Flight flight;
  {
    const ClosedGate closed = freezer_.close_gate();
    flight = freezer_.freeze_behind_gate(step);
    frozen();
  }
  sealer_.await_turn(flight);
  for (Prepared* told : {&info, &made.info}) {
    told->version = flight.version->number();
    told->data_bytes = flight.data_bytes;
    told->step = format::stated_step(flight.version->root);
  }
  made.version = flight.version;
  sealer_.or_fail(flight, [&] {
    const auto mark = format::prepared_mark(mark_.counter + 1, flight.version->root, id);
    if (planted(Bug::mark_before_barrier)) {
      for (unsigned copy = 0; copy < format::kCopies; ++copy) {
        write_page(*state_.medium, format::mark_at(copy),
                   format::encode_mark(mark, state_.seeds, copy));
      }
    }
    Commit sealed;
    sealer_.make_durable(flight, sealed);
    made.metadata_bytes = sealed.metadata_bytes;
    // I10: the mark has one place for all.
    state_.rival.look_here();
    if (!planted(Bug::mark_before_barrier)) write_mark(*state_.medium, state_.seeds, mark);
    mark_ = mark;
  });
  {
    std::lock_guard lock(state_.structure);
    state_.versions.prepared = std::move(made);
    state_.note_given_back();  // who waits for one of its slots waits for nothing now
  }
  return info;
}

std::optional<Prepared> Decisions::prepared() const {
  const auto lock = state_.lock_usable();
  if (!state_.writable) {  // as opening found it, until a version of that number is shown
    const auto& found = state_.opened.report.prepared;
    return found && found->version > state_.version ? found : std::nullopt;
  }
  if (!state_.versions.prepared) return std::nullopt;
  return state_.versions.prepared->info;
}

bool Decisions::await(const std::function<bool()>& give_up) {
  constexpr std::chrono::milliseconds kAskAgain(20);
  std::unique_lock lock(state_.structure);
  while (state_.versions.undecided() && !state_.health.failed()) {
    if (give_up()) return false;
    state_.published->wait_for(lock, kAskAgain);
  }
  return true;
}

// Stays so for whoever decides: one at a time does.
void Decisions::check_prepared() {
  state_.check_may_write();
  std::lock_guard lock(state_.structure);
  if (state_.versions.prepared) return;
  throw Error(Errc::bad_argument, fmt::format("no attempt of {} is prepared", state_.path),
              "prepare() makes one.");
}

// What another process wrote, also what it copied forward. All of it was durable before its mark
// was written (I1).
void Decisions::check_found(const PreparedAttempt& found) const {
  auto damage = found.damage;
  if (found.version && !planted(Bug::prepared_not_verified)) {
    damage = find_damage(*state_.medium, state_.seeds, *found.version, {}, state_.newest().get());
  }
  if (!damage) return;
  throw Error(Errc::corrupt,
              fmt::format("version {} of {}, which is prepared: {}", found.info.version,
                          state_.path, damage->text),
              damage->os_error != 0
                  ? "Check the device (dmesg), close the shelf and open it again: the error may "
                    "pass. If it does not, resolve() it by abandoning it."
                  : "resolve() it by abandoning it; the version before it is whole.",
              damage->os_error);
}

Resolved Decisions::commit() {
  state_.check_may_write();  // in a child neither the lock nor the gate would ever open
  refuse_inside(state_, "resolve() was called");
  const QueueScope one(deciding_, *state_.waiters, state_.patience);
  Commit commit;
  Flight flight;
  {
    const ClosedGate closed(*state_.gate, state_.patience);  // the medium does not grow now
    check_prepared();
    if (state_.versions.prepared->info.found) return commit_found();
    commit.times.sealing = std::chrono::steady_clock::now();
    commit.metadata_bytes = state_.versions.prepared->metadata_bytes;
    flight = decide_to_commit();
  }
  sealer_.flip_and_publish(flight, commit);  // writers go on
  sealer_.account(commit);
  return {false, commit};
}

Flight Decisions::decide_to_commit() {
  Flight flight;
  flight.version = state_.versions.prepared->version;
  flight.data_bytes = state_.versions.prepared->info.data_bytes;
  std::lock_guard lock(state_.structure);
  state_.versions.prepared->decided = true;
  return flight;
}

// The gate is closed to the end: the open attempt is over the version before.
Resolved Decisions::commit_found() {
  Commit commit;
  commit.times.sealing = std::chrono::steady_clock::now();
  const unsigned stored_keep = state_.newest()->root.keep;
  check_found(*state_.versions.prepared);
  auto next = state_.attempt_over(state_.versions.prepared->version, state_.open->sequence);
  Flight flight = decide_to_commit();
  sealer_.flip_and_publish(flight, commit);
  sealer_.account(commit);
  const auto before = state_.open->names;
  {
    std::lock_guard lock(state_.structure);
    state_.replace_open(next);
    const Root& root = state_.open->base->root;
    // Where no other one was asked for when it was opened.
    if (state_.split.keep == stored_keep) state_.split = {root.keep, root.in_flight};
  }
  update_handles(*before, *state_.open->names);
  state_.found_prepared = false;
  return {true, commit};
}

// Version numbers come again: no slot may pass for what an attempt beyond `version` wrote.
void Decisions::clear_labels_beyond(std::uint64_t version, const Names& names) noexcept {
  if (planted(Bug::abandoned_labels_kept)) return;
  for (const auto& [name, named] : names) {
    std::lock_guard lock(named.tensor->mutex);
    for (std::uint64_t& label : named.tensor->labels) {
      if (label > version) label = 0;
    }
  }
}

Resolved Decisions::abandon() {
  state_.check_may_write();  // in a child neither the lock nor the gate would ever open
  refuse_inside(state_, "resolve() was called");
  const QueueScope one(deciding_, *state_.waiters, state_.patience);
  const ClosedGate closed(*state_.gate, state_.patience);  // assignments end first
  check_prepared();
  const bool found = state_.versions.prepared->info.found;
  const std::shared_ptr<Version> newest = state_.newest();
  auto next = state_.attempt_over(newest, state_.open->sequence);
  if (state_.open->changed()) next->abandoned = state_.versions.prepared->info.version;
  std::shared_ptr<Attempt> spare;  // what a transaction ends with
  if (state_.begun.spare) spare = state_.attempt_over(newest, next->sequence);
  Flight flight;
  flight.version = state_.versions.prepared->version;
  sealer_.or_fail(flight, [&] {
    state_.rival.look_here();  // I10
    const auto mark = format::void_mark(mark_);
    if (!planted(Bug::abandoned_given_back)) write_mark(*state_.medium, state_.seeds, mark);
    mark_ = mark;
  });
  const std::shared_ptr<Attempt> dropped = state_.open;  // with the names that are to be settled
  {
    std::lock_guard lock(state_.structure);
    std::erase(state_.versions.in_flight, flight.version);
    state_.versions.prepared.reset();
    if (!planted(Bug::abandoned_built_on)) state_.replace_open(next);
    state_.note_given_back();
  }
  state_.begun.spare = std::move(spare);
  if (flight.version) clear_labels_beyond(newest->number(), *flight.version->names);
  clear_labels_beyond(newest->number(), *dropped->names);
  clear_labels_beyond(newest->number(), *newest->names);
  update_handles(*dropped->names, *newest->names);
  state_.found_prepared = false;
  return {found, std::nullopt};
}

}  // namespace tensorshelf
