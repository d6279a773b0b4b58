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
    medium_->barrier();  // I2: acknowledged implies durable
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
  medium_->wait({std::max(described, flight.last_ticket), 0});
  medium_->barrier();  // I1: all that the root names is durable before any word names it
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
