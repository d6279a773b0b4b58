// The commit, from the open attempt to a durable version, in the steps of docs/design.md. The first
// is the freezer's.
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
#include "store/commit/sealer.hpp"

#include <algorithm>
#include <chrono>

#include "base/planted.hpp"
#include "store/state/pinned.hpp"

namespace tensorshelf {
using Clock = std::chrono::steady_clock;

Commit Sealer::seal(Flight flight) {
  await_turn(flight);
  Commit commit;
  commit.times.sealing = Clock::now();
  or_fail(flight, [&] { make_durable(flight, commit); });
  flip_and_publish(flight, commit);
  account(commit);
  return commit;
}

// Called where something is caught. Also where only memory ran out: the medium may be ahead of us.
void Sealer::fail_flight(const Flight& flight) noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    state_.health.fail(error.what());
  } catch (...) {
    state_.health.fail("an exception of an unknown kind");
  }
  drop(flight);
}

// Flips to an attempt that is durable, and publishes it.
void Sealer::flip_and_publish(Flight& flight, Commit& commit) {
  commit.version = flight.version->number();
  commit.data_bytes = flight.data_bytes;
  commit.step = format::stated_step(flight.version->root);
  or_fail(flight, [&] {
    state_.rival.look_here();  // I10: and as late as can be
    flip(*flight.version, *state_.medium);
    commit.times.flipped = Clock::now();
    state_.medium->barrier();  // I2: acknowledged implies durable
    commit.times.durable = Clock::now();
    publish(flight.version);  // needs no memory
  });
}

void Sealer::account(Commit& commit) {
  const auto elapsed = commit.times.durable - commit.times.sealing;
  ++state_.counters.commits;
  state_.counters.metadata += commit.metadata_bytes;
  state_.counters.nanoseconds += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  commit.seconds = std::chrono::duration<double>(elapsed).count();
}

void Sealer::await_turn(const Flight& flight) {
  {
    std::unique_lock lock(state_.structure);
    state_.published->wait(lock, [&] {
      return state_.health.failed() || state_.versions.in_flight.front() == flight.version ||
             planted(Bug::commits_overlap);
    });
    if (!state_.health.failed()) return;
  }
  drop(flight);
  state_.throw_failed();
}

void Sealer::make_durable(const Flight& flight, Commit& commit) {
  const WriteTarget target{*state_.medium, state_.seeds, state_.heap, state_.homes};
  const Described described = describe(*flight.version, target);
  commit.metadata_bytes = described.metadata_bytes;
  state_.medium->wait({std::max(described.last_ticket, flight.last_ticket), 0});
  stamper_.stamp(flight.media, flight.version->root);
  commit.times.written = Clock::now();
  state_.medium->barrier();  // I1: all that the root names is durable before any word names it
  commit.times.ordered = Clock::now();
}

// Takes the version, so that nobody else keeps it.
void Sealer::publish(std::shared_ptr<Version>& version) noexcept {
  state_.homes.words[format::home_of(version->root)].fill(version->root.word);
  GoneVersions gone;
  {
    std::lock_guard lock(state_.structure);
    state_.versions.retained.push_back(version);  // there is room: no more than there are slots
    state_.version = version->number();
    if (state_.versions.prepared && state_.versions.prepared->version == version)
      state_.versions.prepared.reset();
    take_unkept(state_, gone);
  }
  gone.fill(nullptr);  // before whoever comes next needs their pages
  std::lock_guard lock(state_.structure);
  std::erase(state_.versions.in_flight, version);
  version.reset();
  state_.note_given_back();
}

void Sealer::drop(const Flight& flight) noexcept {
  std::lock_guard lock(state_.structure);
  std::erase(state_.versions.in_flight, flight.version);
  if (state_.versions.prepared && state_.versions.prepared->version == flight.version)
    state_.versions.prepared.reset();
  if (!planted(Bug::waiter_not_woken)) state_.note_given_back();
}

}  // namespace tensorshelf
