// The store behind Shelf: names, locks and reports. Order is the attempt's (attempt.hpp), and
// commit.cpp's, which leads one after the other to its flip.
//
// What is free, follows from what is named: a slot that no retained version, no attempt in flight
// and no lease names is free, and so is a place on the heap that nothing owns (I3).
//
// Locks, always taken in this order: turns_ (one that freezes or discards, and a transaction to its
// end), deciding_, a tensor's lock of its assignment, gate_ (assignments, or one that freezes,
// creates or erases), a tensor's mutex, dirty_mutex_, structure_ (what there is: versions,
// attempts, sizes); the other mutexes within none of these but the first four. The closed gate
// alone guards the open attempt's names and tree. Of the mutexes that a reader takes only a
// tensor's is held across I/O.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/lease.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

#include "media/media.hpp"
#include "store/committer.hpp"
#include "store/fair_mutex.hpp"
#include "store/fork_guard.hpp"
#include "store/gate.hpp"
#include "store/patience.hpp"
#include "store/queue_lock.hpp"
#include "store/records.hpp"
#include "store/recover.hpp"
#include "store/use_count.hpp"

namespace tensorshelf {

class StoredAssignment;
struct MergedChunk;

class Store : public std::enable_shared_from_this<Store> {
 public:
  Store(std::shared_ptr<GuardedMedium> medium, const OpenOptions& options, std::string path);
  ~Store();

  std::shared_ptr<StoredTensor> create(std::string_view name, DType dtype,
                                       std::span<const std::int64_t> shape, bool replace);
  // The same in two steps: its value is assigned in between.
  NewTensor make(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                 bool replace);
  void add(const NewTensor& made);
  void erase(std::string_view name);
  std::shared_ptr<StoredTensor> find(std::string_view name) const;
  std::vector<std::string> names() const;

  TensorInfo info(const StoredTensor& tensor, Of which) const;
  void write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
             std::uint64_t offset);
  void read(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset, Of which);
  Lease lease(const std::shared_ptr<StoredTensor>& tensor, Of which);

  Commit persist(std::optional<std::uint64_t> step);
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step);

  Prepared prepare(std::optional<std::uint64_t> step, std::string_view id);
  std::optional<Prepared> prepared() const;
  Commit commit_prepared();
  void abandon_prepared();

  std::vector<VersionInfo> versions() const;
  VersionInfo version_info(std::uint64_t version) const;
  std::shared_ptr<StoredTensor> find(std::string_view name, std::uint64_t version) const;
  std::vector<std::string> names(std::uint64_t version) const;
  VersionDiff diff(std::uint64_t from, std::uint64_t to) const;
  Commit rollback(std::uint64_t version);
  void discard();
  void begin_transaction();
  // `ended`: whether the transaction is over, also where it throws.
  Commit commit_transaction(std::optional<std::uint64_t> step, bool& ended);
  void end_transaction();  // and discards
  // Errc::unsupported where this thread is inside an assignment, or called by a wait of its own: it
  // would wait for itself.
  void refuse_inside(const char* what) const;

  VerifyReport verify(const Progress& progress);
  ShelfInfo info() const;
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;
  std::uint64_t free_bytes() const;
  bool has_uncommitted() const;
  Stats stats() const;
  void close();
  bool closed() const { return closed_; }

 private:
  friend class StoredAssignment;
  struct Pin;
  class Use {  // a call that reads without passing the gate: close() waits for it
   public:
    explicit Use(Store& store) : store_(store) { store_.begin_use(); }
    ~Use() { store_.uses_.leave(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Store& store_;
  };

  // store.cpp
  bool is_inside() const;                           // see refuse_inside()
  void check_usable() const;                        // not closed, not in a forked child
  std::unique_lock<FairMutex> lock_usable() const;  // of structure_
  void check_may_write();  // and neither read-only nor failed, now or in the background
  void check_writable();   // and no attempt that was found waits for a decision
  [[noreturn]] void throw_failed();
  void begin_use();
  void look_for_rival();  // I10, once for each attempt, before anything is written for it
  void take_prepared(const FoundPrepared& found);
  void own_places();

  // structure.cpp: the gate is closed
  std::uint64_t pages_for(const CellRun& cells) const;
  format::TensorLayout check_new(std::string_view name, DType dtype,
                                 std::span<const std::int64_t> shape, bool replace);
  void check_may_add(std::string_view name, bool replace);
  NewTensor place(format::TensorLayout layout, bool replace);
  void add_behind_gate(const NewTensor& made);
  void take_up_value(const NewTensor& made);
  void open_for_removal(const StoredTensor& tensor);
  void remove(StoredTensor& tensor) noexcept;
  const Names& names_now() const;  // structure_ is held, or the gate closed
  void check_background();         // throws, once, what a commit in the background threw
  void wait_until_quiet(const Patience& patience);  // no attempt is in flight
  bool verify_chunk(StoredTensor& tensor, std::uint64_t chunk, VerifyReport& report);

  // stage.cpp and merge.cpp: bytes in; all but write() with the tensor's mutex held
  void write(StoredAssignment& assignment, std::span<const std::byte> bytes, std::uint64_t offset);
  bool may_write(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size);
  bool begin_write(const std::shared_ptr<StoredTensor>& tensor);
  bool has_slots(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size);
  void await_publication();
  std::optional<unsigned> free_slot(const StoredTensor& tensor, std::uint64_t chunk);
  [[noreturn]] void throw_leased(const StoredTensor& tensor) const;
  std::uint64_t put_chunk(StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                          std::span<const std::byte> bytes);
  void write_chunk(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes);
  void note_written(StoredTensor& tensor, std::uint64_t chunk, unsigned slot,
                    std::uint64_t checksum);
  format::ChunkRecord present_record(const StoredTensor& tensor, std::uint64_t chunk) const;
  bool slot_has(StoredTensor& tensor, unsigned slot, const MergedChunk& merged,
                const format::ChunkRecord& now);
  void merge_chunk(StoredTensor& tensor, MergedChunk& merged, std::span<const std::byte> bytes);
  void write_merged(StoredTensor& tensor, const MergedChunk& merged);
  bool lacks(const StoredTensor& tensor, std::uint64_t chunk) const;
  void copy_forward(StoredTensor& tensor, std::uint64_t chunk);
  void complete(StoredTensor& tensor);
  void note_ticket(const Ticket& ticket);

  // records.cpp and read.cpp: bytes out; the tensor's mutex is held
  Records records(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                  Of which) const;
  const Version& version_of(Of which) const;  // structure_ is held
  bool no_one_else_writes() const;
  void read_out(const StoredTensor& tensor, const Record& record, std::uint64_t chunk,
                std::span<std::byte> target);
  std::span<const std::byte> fetch_chunk(const StoredTensor& tensor, const Record& record,
                                         std::uint64_t chunk, std::span<std::byte> scratch);
  void copy_out(const StoredTensor& tensor, const Record& record, std::uint64_t chunk,
                std::span<std::byte> target, std::uint64_t within);
  std::span<const std::byte> checked_chunk(StoredTensor& tensor, const Record& record,
                                           std::uint64_t chunk, std::span<std::byte> scratch);
  void check_sum(StoredTensor& tensor, const Record& record, std::uint64_t chunk,
                 std::uint64_t checksum);
  std::uint64_t run_length(const StoredTensor& tensor, std::uint64_t first, const Records& records,
                           std::uint64_t size) const;
  bool read_run(StoredTensor& tensor, std::uint64_t first, std::uint64_t count,
                const Records& records, std::span<std::byte> target);
  std::uint64_t read_next(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                          const Records& records);
  void read_locked(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                   const Records& records);
  void throw_if_overtaken(std::uint64_t version);  // a reader, by its writer
  [[noreturn]] void throw_damaged(const StoredTensor& tensor, const Record& record,
                                  std::uint64_t chunk,
                                  const std::string& how = "fails its XXH3 checksum",
                                  int os_error = 0);

  // versions.cpp
  class Turn;  // to change what there is: one at a time, and none within another's transaction
  void check_nothing_uncommitted(const char* what) const;
  void drop_open_attempt(std::shared_ptr<Attempt> next) noexcept;
  void settle_names(const Names& before, const Names& now);

  // prepare.cpp
  bool undecided() const;  // structure_ is held
  void check_not_abandoned() const;
  void check_marks_left() const;
  [[noreturn]] void throw_unresolved(const std::string& what) const;
  void check_prepared();
  void check_found(const PreparedAttempt& found) const;
  void clear_labels_beyond(std::uint64_t version, const Names& names) noexcept;

  // freeze.cpp and commit.cpp
  ClosedGate close_to_freeze();  // in turn: when one more may be in flight
  Flight freeze_in_turn(std::optional<std::uint64_t> step);
  std::shared_ptr<Attempt> attempt_over(std::shared_ptr<const Version> over,
                                        std::uint64_t after) const;
  Flight launch(std::shared_ptr<Version> version, std::shared_ptr<Attempt> next);
  Flight freeze_behind_gate(std::optional<std::uint64_t> step);
  format::Root next_root(std::optional<std::uint64_t> step) const;
  void check_version_left() const;
  void check_nothing_spoiled() const;
  void look_for_rival_before_commit();
  void record_staged(const StoredTensor& tensor);
  Commit seal(Flight flight);
  void await_turn(const Flight& flight);
  template <typename Call>
  void or_fail(const Flight& flight, Call call) {  // needs no memory: a flight is always dropped
    try {
      call();
    } catch (...) {
      fail_flight(flight);
      throw;
    }
  }
  void fail_flight(const Flight& flight) noexcept;
  void make_durable(const Flight& flight, std::uint64_t& metadata_bytes);
  Flight decide_to_commit();  // as the next: prepare.cpp
  Commit commit_found();
  Commit finish(Flight& flight, std::uint64_t metadata_bytes,
                std::chrono::steady_clock::time_point begin);
  void publish(std::shared_ptr<Version>& version,
               std::vector<std::shared_ptr<Version>>& gone) noexcept;
  void drop(const Flight& flight) noexcept;
  void fail(const char* why) noexcept;

  std::shared_ptr<GuardedMedium> medium_;  // given up by close(); leases keep it alive
  const std::string path_;
  const Verify verify_;
  const Promises promises_;
  ForkGuard fork_guard_;
  std::atomic<bool> closed_ = false;

  Recovered opened_;  // its versions and homes have moved to the members below
  const format::Seeds seeds_;
  const bool writable_;
  unsigned keep_;  // both change with structure_ held, by the commit of what opening found
  unsigned in_flight_limit_;
  const Placement placement_;

  const Patience patience_;  // of all waits but those that must come to their end
  std::unique_ptr<WaitQueue> room_ = std::make_unique<WaitQueue>();
  QueueLock turns_;
  std::atomic<std::thread::id> transacting_;  // the thread whose transaction has the turn
  std::unique_ptr<CommitGate> gate_ = std::make_unique<CommitGate>();
  UseCount uses_;
  std::shared_ptr<Heap> heap_;  // none where nothing may be written
  std::uint64_t next_tensor_id_ = 1;
  std::mutex dirty_mutex_;          // of the open attempt's list
  std::shared_ptr<Attempt> spare_;  // for a transaction that is dropped, which must need no memory

  mutable FairMutex structure_;
  std::unique_ptr<std::condition_variable_any> published_;  // or failed: fewer are in flight
  std::shared_ptr<Attempt> open_;                           // none where nothing may be written
  // Nothing else keeps a version for longer than a call holds this lock: its pages are free, and
  // needed, when it is dropped.
  std::vector<std::shared_ptr<Version>> in_flight_;  // frozen, in order
  std::vector<std::shared_ptr<Version>> retained_;   // published, the newest last
  std::optional<PreparedAttempt> prepared_;          // the first in flight, where it can be loaded
  std::atomic<bool> found_prepared_ = false;
  std::atomic<std::uint64_t> version_;  // its number
  Homes homes_;                         // whose turn it is to be sealed writes there

  QueueLock deciding_;         // one at a time
  format::PreparedMark mark_;  // that lies on the medium

  std::atomic<bool> looked_ = false;  // for a rival, since the last freeze
  std::atomic<std::uint64_t> last_ticket_ = 0;

  mutable std::mutex failure_mutex_;
  std::atomic<bool> failed_ = false;             // no commit is possible any more (I8)
  std::string failure_;                          // why
  std::exception_ptr background_error_;          // not yet thrown to a caller
  std::atomic<bool> background_failed_ = false;  // there is one

  struct Counters {
    std::atomic<std::uint64_t> commits = 0, staged = 0, forward = 0, metadata = 0, read = 0,
                               verified = 0, nanoseconds = 0;
  };
  mutable Counters counters_;

  std::unique_ptr<Committer> committer_;  // of persist_async; last: it ends before all else goes
};

}  // namespace tensorshelf
