// The store behind Shelf: order. It stages into slots that no retained root names (I3), and hands
// the whole to commit.cpp, the only place that writes a root.
//
// Locks, always taken in this order: gate_ (writers or one commit), structure_ (what may be looked
// up: names, the committed root, sizes), a tensor's mutex, dirty_mutex_; the other mutexes within
// none of these but the gate. The closed gate alone guards manifest, heap and the lists of what was
// replaced; it stays closed across a commit and across growth. Of the mutexes only a tensor's is
// held across I/O.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "media/media.hpp"
#include "store/fair_mutex.hpp"
#include "store/fork_guard.hpp"
#include "store/gate.hpp"
#include "store/heap.hpp"
#include "store/manifest.hpp"
#include "store/recover.hpp"
#include "store/tensor.hpp"
#include "store/use_count.hpp"

namespace tensorshelf {

class Store : public std::enable_shared_from_this<Store> {
 public:
  Store(std::shared_ptr<GuardedMedium> medium, const OpenOptions& options, std::string path);
  ~Store();

  std::shared_ptr<StoredTensor> create(std::string_view name, DType dtype,
                                       std::span<const std::int64_t> shape, bool replace);
  void erase(std::string_view name);
  std::shared_ptr<StoredTensor> find(std::string_view name) const;
  std::vector<std::string> names() const;

  TensorInfo info(const StoredTensor& tensor) const;
  void write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
             std::uint64_t offset);
  void read(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset, bool committed);
  Lease lease(const std::shared_ptr<StoredTensor>& tensor, bool committed);

  Commit persist(std::optional<std::uint64_t> step);
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step);

  VerifyReport verify(const Progress& progress);
  ShelfInfo info() const;
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;
  std::uint64_t free_bytes() const;
  Stats stats() const;
  void close();
  bool closed() const { return closed_; }

 private:
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

  // store.cpp: structure
  void check_usable() const;  // not closed, not in a forked child
  void check_writable();      // and neither read-only nor failed, now or in the background
  void begin_use();
  void look_for_rival();  // I10, once for each version, before anything is written for it
  void reserve_pages_for(std::uint64_t cells);
  std::shared_ptr<StoredTensor> place(format::TensorLayout layout);
  void drop(const std::shared_ptr<StoredTensor>& tensor) noexcept;
  void bury(const std::shared_ptr<StoredTensor>& tensor) noexcept;
  void release(const std::shared_ptr<StoredTensor>& tensor) noexcept;
  bool release_slots(const StoredTensor& tensor) noexcept;
  void collect_graveyard() noexcept;
  void check_background();  // throws, once, what a commit in the background threw
  void note_space();
  bool verify_chunk(StoredTensor& tensor, std::uint64_t chunk, VerifyReport& report);
  std::shared_ptr<StoredTensor> add(format::TensorLayout layout);
  void make_room_in_lists();  // so that what follows cannot fail half-way

  // stage.cpp: bytes in; the tensor's mutex is held
  void begin_write(const std::shared_ptr<StoredTensor>& tensor);
  void write_chunk(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes);
  void merge_chunk(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes,
                   std::uint64_t offset, std::span<std::byte> whole);
  void copy_forward(StoredTensor& tensor, std::uint64_t first, std::uint64_t count,
                    std::span<std::byte> scratch);
  void complete(StoredTensor& tensor);
  void note_ticket(const Ticket& ticket);

  // read.cpp: bytes out; the tensor's mutex is held
  std::optional<unsigned> slot_of(const StoredTensor& tensor, std::uint64_t chunk,
                                  bool committed) const;
  bool no_one_else_writes() const;
  void read_out(const StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                std::span<std::byte> target);
  std::span<const std::byte> fetch_chunk(const StoredTensor& tensor, unsigned slot,
                                         std::uint64_t chunk, std::span<std::byte> scratch);
  void copy_out(const StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                std::span<std::byte> target, std::uint64_t within);
  std::span<const std::byte> checked_chunk(StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                                           std::span<std::byte> scratch);
  void check_sum(StoredTensor& tensor, unsigned slot, std::uint64_t chunk, std::uint64_t checksum);
  std::uint64_t run_length(const StoredTensor& tensor, std::uint64_t first, bool committed,
                           std::uint64_t size) const;
  bool read_run(StoredTensor& tensor, unsigned slot, std::uint64_t first, std::uint64_t count,
                std::span<std::byte> target);
  std::uint64_t read_next(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                          bool committed);
  void read_locked(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                   bool committed);
  void throw_if_overtaken();  // a reader, whose version the writer has begun to overwrite
  [[noreturn]] void throw_damaged(const StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                                  const std::string& how = "fails its XXH3 checksum",
                                  int os_error = 0);

  // commit.cpp
  using Tensors = std::vector<std::shared_ptr<StoredTensor>>;
  using Nodes = std::vector<Manifest::Node*>;
  Commit commit(std::optional<std::uint64_t> step);
  void check_version_left() const;
  Tensors take_dirty();
  void stage_rest(const Tensors& dirty);
  format::Root describe(const Tensors& dirty, std::optional<std::uint64_t> step);
  void release_replaced_pages();
  void write_nodes(const Nodes& nodes);
  void write_changed_pages();
  void write_root_copies(format::Root root);
  void seal(const format::Root& root);
  void publish(const Tensors& dirty, const format::Root& root);
  void fail(const char* why) noexcept;

  std::shared_ptr<GuardedMedium> medium_;  // given up by close(); leases keep it alive
  const std::string path_;
  const Verify verify_;
  const Promises promises_;
  ForkGuard fork_guard_;
  std::atomic<bool> closed_ = false;

  Recovered opened_;  // its manifest and tensors have moved to the members below
  const format::Seeds seeds_;
  const bool writable_;

  std::unique_ptr<CommitGate> gate_ = std::make_unique<CommitGate>();
  UseCount uses_;
  mutable FairMutex structure_;
  format::Root root_;                   // of the committed version
  std::atomic<std::uint64_t> version_;  // its number
  std::array<std::array<std::uint64_t, format::kCopies>, format::kSlots> words_;  // in the homes
  Manifest manifest_;         // of the next version
  std::optional<Heap> heap_;  // none where nothing may be written
  std::uint64_t next_tensor_id_;
  std::uint64_t sequence_ = 0;
  std::uint64_t committed_pages_ = 0;            // that the committed root names, counted once
  std::vector<format::PageRef> replaced_pages_;  // that it names and the next one will not
  std::map<std::string, std::shared_ptr<StoredTensor>, std::less<>> tensors_;
  std::vector<std::shared_ptr<StoredTensor>> dropped_;    // still named by the committed root
  std::vector<std::shared_ptr<StoredTensor>> graveyard_;  // named by none, but a lease holds them
  std::uint64_t tensor_bytes_ = 0;                        // of all in tensors_
  std::uint64_t capacity_bytes_ = 0;                      // of the heap, as it was left last
  std::uint64_t free_bytes_ = 0;

  std::atomic<bool> looked_ = false;  // for a rival, since the last flip

  std::mutex dirty_mutex_;
  std::vector<std::shared_ptr<StoredTensor>> dirty_;
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
  std::atomic<std::uint64_t> staged_now_ = 0;  // tensor bytes since the last flip

  std::mutex committer_mutex_;
  std::jthread committer_;  // of persist_async; last, so that it is joined before all else goes
};

}  // namespace tensorshelf
