// A commit in two halves, for those that must agree with others before they commit: an attempt is
// made durable and marked as prepared; whoever asked for that flips it or abandons it later, also
// after a crash, and nobody else does (I14).
//
//   prepare   freeze, describe, barrier (I1), the mark in both copies, each behind a barrier
//   commit    the rest of every commit: flip, barrier (I2), publish
//   abandon   an empty mark, durable in both copies; then what the attempt named is free
//
// While it is undecided nothing is frozen behind it: so there is it, and the open attempt over it,
// which goes with it where it is abandoned.
#include <fmt/format.h>

#include <utility>

#include "base/planted.hpp"
#include "store/load_root.hpp"
#include "store/mark.hpp"
#include "store/store.hpp"
#include "store/turn.hpp"

namespace tensorshelf {

using format::Root;

bool Store::undecided() const { return prepared_ && !prepared_->decided; }

void Store::throw_unresolved(const std::string& what) const {
  throw Error(Errc::unresolved,
              fmt::format("{}: version {} of {} is prepared, and not decided", what,
                          version_.load() + 1, path_),
              "resolve() it first: commit it, or abandon it.");
}

// The gate is closed, or we have passed it.
void Store::check_not_abandoned() const {
  if (open_->abandoned == 0 || planted(Bug::abandoned_kept_behind)) return;
  throw Error(Errc::abandoned,
              fmt::format("version {} of {} was abandoned, and with it what was assigned behind it",
                          open_->abandoned, path_),
              "discard() first, and assign anew what the next version is to have.");
}

// Before anything is done, in our turn. Where an attempt is prepared that says why not.
void Store::check_marks_left() const {
  std::lock_guard lock(structure_);
  if (undecided() || format::marks_left(mark_)) return;
  throw Error(Errc::full,
              fmt::format("the mark of what is prepared in {} was written {} times, and the format "
                          "counts no further",
                          path_, mark_.counter),
              "persist() goes on; for prepare(), copy the tensors into a new shelf.");
}

Prepared Store::prepare(std::optional<std::uint64_t> step, std::string_view id) {
  check_writable();
  refuse_inside("prepare() was called");
  Prepared info;
  info.id = id;
  PreparedAttempt made;
  made.info = info;        // all that needs memory, before the freeze
  const Turn turn(*this);  // to the end: nothing is frozen behind it
  check_marks_left();
  Flight flight = freeze_in_turn(step);
  await_turn(flight);
  for (Prepared* told : {&info, &made.info}) {
    told->version = flight.version->number();
    told->data_bytes = flight.data_bytes;
    told->step = format::stated_step(flight.version->root);
  }
  made.version = flight.version;
  or_fail(flight, [&] {
    const auto mark = format::prepared_mark(mark_.counter + 1, flight.version->root, id);
    if (planted(Bug::mark_before_barrier)) {
      for (unsigned copy = 0; copy < format::kCopies; ++copy) {
        write_page(*medium_, format::mark_at(copy), format::encode_mark(mark, seeds_, copy));
      }
    }
    make_durable(flight, made.metadata_bytes);
    check_no_rival(*medium_, opened_, seeds_);  // I10: the mark has one place for all
    if (!planted(Bug::mark_before_barrier)) write_mark(*medium_, seeds_, mark);
    mark_ = mark;
  });
  {
    std::lock_guard lock(structure_);
    prepared_ = std::move(made);
    published_->notify_all();  // who waits for one of its slots waits for nothing now
  }
  return info;
}

std::optional<Prepared> Store::prepared() const {
  const auto lock = lock_usable();
  if (!writable_) return opened_.report.prepared;
  if (!prepared_) return std::nullopt;
  return prepared_->info;
}

// Stays so for whoever decides: one at a time does.
void Store::check_prepared() {
  check_may_write();
  std::lock_guard lock(structure_);
  if (prepared_) return;
  throw Error(Errc::bad_argument, fmt::format("no attempt of {} is prepared", path_),
              "prepare() makes one.");
}

// What another process wrote, also what it copied forward. All of it was durable before its mark
// was written (I1).
void Store::check_found(const PreparedAttempt& found) const {
  auto damage = found.damage;
  if (found.version && !planted(Bug::prepared_not_verified)) {
    damage = find_damage(*medium_, seeds_, *found.version, {}, retained_.back().get());
  }
  if (!damage) return;
  throw Error(Errc::corrupt,
              fmt::format("version {} of {}, which is prepared: {}", found.info.version, path_,
                          damage->text),
              damage->os_error != 0
                  ? "Check the device (dmesg), close the shelf and open it again: the error may "
                    "pass. If it does not, resolve() it by abandoning it."
                  : "resolve() it by abandoning it; the version before it is whole.",
              damage->os_error);
}

Commit Store::commit_prepared() {
  check_may_write();  // in a child neither the lock nor the gate would ever open
  refuse_inside("resolve() was called");
  const QueueScope one(deciding_, *room_, patience_);
  const auto begin = std::chrono::steady_clock::now();
  Flight flight;
  std::uint64_t metadata_bytes = 0;
  {
    const ClosedGate closed(*gate_, patience_);  // the medium does not grow now
    check_prepared();
    if (prepared_->info.found) return commit_found();
    metadata_bytes = prepared_->metadata_bytes;
    flight = decide_to_commit();
  }
  return finish(flight, metadata_bytes, begin);  // writers go on
}

Flight Store::decide_to_commit() {
  Flight flight;
  flight.version = prepared_->version;
  flight.data_bytes = prepared_->info.data_bytes;
  std::lock_guard lock(structure_);
  prepared_->decided = true;
  return flight;
}

// The gate is closed to the end: the open attempt is over the version before.
Commit Store::commit_found() {
  const auto begin = std::chrono::steady_clock::now();
  const unsigned stored_keep = retained_.back()->root.keep;
  check_found(*prepared_);
  auto next = attempt_over(prepared_->version, open_->sequence);
  Flight flight = decide_to_commit();
  const Commit commit = finish(flight, 0, begin);
  const auto before = open_->names;
  {
    std::lock_guard lock(structure_);
    open_.swap(next);
    const Root& root = open_->base->root;
    if (keep_ == stored_keep) {  // no other one was asked for when it was opened
      keep_ = root.keep;
      in_flight_limit_ = root.in_flight;
    }
  }
  settle_names(*before, *open_->names);
  found_prepared_ = false;
  return commit;
}

// Version numbers come again: no slot may pass for what an attempt beyond `version` wrote.
void Store::clear_labels_beyond(std::uint64_t version, const Names& names) noexcept {
  if (planted(Bug::abandoned_labels_kept)) return;
  for (const auto& [name, named] : names) {
    std::lock_guard lock(named.tensor->mutex);
    for (std::uint64_t& label : named.tensor->labels) {
      if (label > version) label = 0;
    }
  }
}

void Store::abandon_prepared() {
  check_may_write();  // in a child neither the lock nor the gate would ever open
  refuse_inside("resolve() was called");
  const QueueScope one(deciding_, *room_, patience_);
  const ClosedGate closed(*gate_, patience_);  // assignments end first
  check_prepared();
  const std::shared_ptr<Version> newest = retained_.back();
  auto next = attempt_over(newest, open_->sequence);
  if (!open_->dirty.empty() || open_->names_changed) next->abandoned = prepared_->info.version;
  std::shared_ptr<Attempt> spare;  // what a transaction ends with
  if (spare_) spare = attempt_over(newest, next->sequence);
  Flight flight;
  flight.version = prepared_->version;
  or_fail(flight, [&] {
    check_no_rival(*medium_, opened_, seeds_);  // I10
    const auto mark = format::void_mark(mark_);
    if (!planted(Bug::abandoned_given_back)) write_mark(*medium_, seeds_, mark);
    mark_ = mark;
  });
  const std::shared_ptr<Attempt> dropped = open_;  // with the names that are to be settled
  {
    std::lock_guard lock(structure_);
    std::erase(in_flight_, flight.version);
    prepared_.reset();
    if (!planted(Bug::abandoned_built_on)) open_ = std::move(next);
    looked_ = false;
    published_->notify_all();
  }
  spare_ = std::move(spare);
  if (flight.version) clear_labels_beyond(newest->number(), *flight.version->names);
  clear_labels_beyond(newest->number(), *dropped->names);
  clear_labels_beyond(newest->number(), *newest->names);
  settle_names(*dropped->names, *newest->names);
  found_prepared_ = false;
}

}  // namespace tensorshelf
