// What the parts of an open store share: the medium and what recovery found on it, the versions and
// attempts that there are, and who waits for whom. Making it recovers what is there; what happens
// from then on, and in which order, the parts say (stager.hpp, reader.hpp, tensors.hpp,
// freezer.hpp, sealer.hpp, decisions.hpp, compactor.hpp, follow.hpp).
//
// What is free, follows from what is named: a slot that no retained version, no attempt in flight
// and no lease names is free, and so is a place on the heap that nothing owns (I3).
//
// Locks, always taken in this order:
//   0  that of a compactor, of a follower
//   1  turns                       who freezes or discards, and a transaction to its end
//   2  that of decisions
//   3  a tensor's `assigning`      its one assignment under way
//   4  gate                        open: assignments; closed: who freezes, creates or erases
//   5  a tensor's `mutex`          reads and writes of it; the only one of a reader's that is held
//                                  across I/O
//   6  dirty_mutex
//   7  structure                   what there is: versions, attempts, sizes
//   8  those of heap, attached media, pins and health: none of the above is taken under these
// Any other mutex is taken while at most 0 to 4 are held. The closed gate guards the open attempt's
// tree. Its names change with the gate closed and structure held, and are read under either.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/options.hpp>

#include "media/media.hpp"
#include "store/manifest/flip.hpp"
#include "store/places/split.hpp"
#include "store/recovery/recover.hpp"
#include "store/state/asked.hpp"
#include "store/state/counters.hpp"
#include "store/state/rival.hpp"
#include "store/state/version_set.hpp"
#include "store/threads/fair_mutex.hpp"
#include "store/threads/gate.hpp"
#include "store/threads/health.hpp"
#include "store/threads/patience.hpp"
#include "store/threads/queue_lock.hpp"
#include "store/threads/use_count.hpp"

namespace tensorshelf {

// A transaction, or a pipeline's save (transactions.hpp).
struct Begun {
  bool saving = false;             // a save is being staged
  std::shared_ptr<Attempt> spare;  // in the place of one that is dropped: then none need be made
};

struct State {
  // Recovers.
  State(const ShelfMedia& on, const OpenOptions& options, std::string named);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::unique_lock<FairMutex> lock_usable() const;  // of structure
  void check_may_write();  // usable, not read-only, and not failed, now or in the background
  void check_writable();   // and no attempt that was found waits for a decision
  void check_not_abandoned() const;  // the gate is closed, or we have passed it
  [[noreturn]] void throw_failed() const { health.throw_failed(version); }
  [[noreturn]] void throw_unresolved(const std::string& what) const;

  // structure is held for these, or the gate closed.
  const Names& names_now() const;
  // Errc::stale where it is neither retained nor prepared.
  const Version& version_of(Of which) const;
  const Version& retained_version(std::uint64_t number) const;  // Errc::stale
  // For who has the gate closed, and structure not: a pin that ends takes older ones away.
  std::shared_ptr<Version> newest() const;

  Placement placement_on(std::uint64_t at) const;  // of a tensor that lies there
  // With the gate closed: what the open attempt says of these media, a bit for each. Errc::full at
  // the format's limit of pages.
  void name_media(MediumSet which);
  // What the tree of a version to come says of its media.
  void name_attached(Tree& tree);

  // With the gate closed: pages that the heap must hold.
  std::uint64_t pages_for(const CellRun& cells) const;
  std::shared_ptr<Attempt> attempt_over(std::shared_ptr<const Version> over,
                                        std::uint64_t after) const;
  // The same, and structure held: assignments go into `next` from here on, which is left with what
  // was open. Needs no memory.
  void replace_open(std::shared_ptr<Attempt>& next) noexcept;

  ShelfMedia media() const { return {medium, further}; }

  void wait_until_quiet(const Patience& with);  // no attempt is in flight
  void await_given_back(std::uint64_t seen);    // more than that, or one has failed
  void note_given_back() {  // with structure held: slots may be free that were not
    ++versions.given_back;
    published->notify_all();
  }

  // ---- as it was opened
  std::shared_ptr<GuardedMedium> medium;  // all; given up by close(), leases keep it alive
  const std::shared_ptr<FurtherMedia> further;
  const std::string path;
  Health health{path};
  const Asked asked;
  const Promises promises;
  // As opening found it: what there is since, versions and homes above all, lies below.
  Recovered opened;
  const format::Seeds seeds;
  const bool writable;
  Split split;  // changes with structure held, by the commit of what opening found
  RivalWatch rival;

  // ---- who waits for whom
  const Patience patience;  // of all waits but those that must come to their end
  std::unique_ptr<WaitQueue> waiters = std::make_unique<WaitQueue>();
  QueueLock turns;
  std::atomic<std::thread::id> transacting;  // the thread whose transaction has the turn
  Begun begun;                               // by who keeps the turn; behind the closed gate
  std::unique_ptr<CommitGate> gate = std::make_unique<CommitGate>();
  UseCount uses;

  // ---- behind the closed gate, or with a lock of its own
  std::shared_ptr<Heap> heap;  // none where nothing may be written
  std::uint64_t next_tensor_id = 1;
  std::mutex dirty_mutex;  // of the open attempt's list
  Homes homes;             // whose turn it is to be sealed writes there

  // ---- with structure held
  mutable FairMutex structure;
  std::unique_ptr<std::condition_variable_any> published;  // or failed: fewer are in flight
  std::shared_ptr<Attempt> open;                           // none where nothing may be written
  VersionSet versions;

  // ---- any thread's
  std::atomic<bool> found_prepared = false;
  std::atomic<std::uint64_t> version;  // its number
  // Whether a newer one was there as a reader opened, and could not be opened. Ends with the first
  // version that follow.cpp takes up.
  std::atomic<bool> in_doubt;
  std::atomic<std::uint64_t> last_ticket = 0;
  Counters counters;

 private:
  void take_over();
  void take_prepared(const FoundPrepared& found);
  void own_places();
  void settle_media();
  void name_media(MediumSet which, Tree& tree) const;

  // What name_attached() left the tree with, so that it need not look again.
  std::weak_ptr<PageNode> named_leaf_;
  std::uint64_t named_as_ = 0;  // FurtherMedia::changes() then
};

// A call that reads without passing the gate: close() waits for it.
class Use {
 public:
  explicit Use(State& state);
  ~Use() { state_.uses.leave(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  State& state_;
};

}  // namespace tensorshelf
