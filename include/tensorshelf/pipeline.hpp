// Saves while the trainer goes on: the values of many tensors become one version, copied by threads
// of the pipeline's own.
//
//     Pipeline pipeline(shelf);
//     const auto plan = std::make_shared<const SavePlan>(std::move(sources));   // once
//     for (...) {
//       forward(); backward();
//       if (ticket) ticket->wait_staged();        // the gate: from here on the weights may change
//       optimizer_step();
//       ticket = pipeline.save(plan, step);       // returns when the eager sources may change
//     }
//
// A ticket has two moments: when it is staged its sources may change, and when it is durable a
// crash gives this version or a later one. A save with an id has, for the second, that it is
// prepared.
//
// One moment (I9): an eager source is saved as it is when save() is called; so is a lazy one, which
// is copied afterwards, while nobody may change it. A lazy one that changed all the same abandons
// the save: Errc::torn names it, and the shelf stays at the version before. Two things are compared
// when all is copied:
//
//     a cache line of each lazy source    with its hash, which save() took
//     every n-th chunk (check_one_in)     with what was copied
//
// The first finds what was changed as a whole, as an optimizer changes it, unless that line stays
// as it was. The second finds the rest only where that chunk's turn comes, or where n is 1.
//
// Device memory is copied behind what `stream` had been given when save() was called:
//
//     a source on a device            is copied by        who waits for its copy
//     lazy                            the pipeline        wait_staged()
//     eager, the first 8 MiB          the device, queued  its stream, and not the host
//     eager, the others               save()              save()
//
// The first are those in the plan's order up to one that does not fit, is of another stream, or is
// managed or page-locked memory.
//
// Work that `stream` is given later may change eager sources at once, and lazy ones when the save
// is staged. Of lazy sources on a device every n-th chunk is compared, as above. In one save
// a line is compared of at most 16 sources of each stream, and of none in managed or page-locked
// memory; the next saves take others. A stream of ours copies these lines, for which `stream`
// waits before what it is given later.
//
// A save is like a transaction. Until it is launched,
//
//     what is assigned otherwise     is in its version, or is discarded with it
//     a commit of somebody else's    waits
//     save(), within an assignment   would wait for itself: Errc::unsupported
//
// Thread-safety: any thread may call anything; saves come one after the other.
// Errors: save(), drain() and close() throw why a save before failed, where nobody has heard that;
// save() also what makes it impossible. The shelf tells of the medium's own failures as well. In a
// forked child save() and each call of a ticket throw Errc::forked; drain() and close() return at
// once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tensorshelf/cuda.hpp>
#include <tensorshelf/handles.hpp>
#include <tensorshelf/report.hpp>
#include <tensorshelf/shelf.hpp>

namespace tensorshelf {

// All bytes of one tensor. The memory is the caller's, and must stay until the save is staged, or
// has failed.
struct Source {
  TensorRef target;
  std::variant<std::span<const std::byte>, DeviceBytes> bytes;
  bool lazy = false;  // nobody changes it before the gate
};

// Which tensors are saved from where: checked once, used for many saves. Errc::layout for a source
// of another size than its tensor has, Errc::bad_argument for two of one tensor, none at all, or
// axes that its bytes do not have.
class SavePlan {
 public:
  explicit SavePlan(std::vector<Source> sources);

  const std::vector<Source>& sources() const { return sources_; }
  std::uint64_t size_bytes() const { return size_bytes_; }

  // The places of all in sources(), the eager ones first, and of each kind the largest first. In
  // this order several workers take them: what is taken last is small, so that they end together.
  const std::vector<std::size_t>& largest_first() const { return largest_first_; }

  // Tensors that were erased or renamed since the plan was made, in the order of sources(). For who
  // knows them by their names: all are asked in one call, for a plan may have thousands.
  struct Departed {
    std::string name;      // when the plan was made
    std::string name_now;  // the last one, of what was erased
  };
  std::vector<Departed> departed() const;

 private:
  std::vector<Source> sources_;     // the eager ones first; else in the order given
  std::vector<std::string> names_;  // of those in sources_
  std::vector<std::size_t> largest_first_;
  std::uint64_t size_bytes_ = 0;
};

enum class OnBusy {
  wait,  // until the save before is on its way
  skip,  // and count it
};

struct PipelineOptions {
  unsigned workers = 1;  // 1 to 64, that copy sources, each one at a time, and compare: a single
                         // one in the plan's order, several the largest first. A large source in
                         // host memory is copied by several threads besides: OpenOptions::threads
  OnBusy on_busy = OnBusy::wait;
  std::uint64_t check_one_in = 16;     // of the chunks of lazy sources; 1: all, 0: none
  std::uint64_t bytes_per_second = 0;  // of lazy copies, while nobody waits for them; 0: no limit
  // The next two are for threads that copy lazy sources. Eager ones, for which save() waits, are
  // copied by threads that are as its caller is.
  std::vector<int> cpus = {};  // CPUs that they keep to, of the calling thread's; empty: all
  int nice = 0;                // 0 to 19, and no less than the calling thread has; 0: as that
  // The page-locked buffers through which a source on a device comes to the thread that copies it.
  // While one piece is hashed the next arrives; on block media the device writes from them, and
  // those beyond two are on their way there. 1 piece: no two of these at a time. A thread's pieces
  // are kept for its next source; beyond 512 MiB of all threads' they are made anew each time.
  unsigned device_pieces = 0;            // at most 64; 0: 2, and 4 on block media
  std::uint64_t device_piece_bytes = 0;  // a multiple of 1 MiB, at most 1 GiB; 0: 8 MiB
  bool trace = false;                    // keep when each source was copied: SaveTicket::copies()
};

// When things happened, by std::chrono::steady_clock; the epoch where they have not.
struct SaveTimes {
  using Time = std::chrono::steady_clock::time_point;
  Time began = {};     // save() was called
  Time released = {};  // it returned: eager sources may change
  Time copied = {};    // all sources are
  Time staged = {};    // and compared
  Time launched = {};  // the version takes no more; on its way to the medium
};

// When one source was copied, and by which thread (its number in the kernel's count).
struct CopyTimes {
  std::size_t source = 0;  // in the plan
  int thread = 0;
  SaveTimes::Time began = {};
  SaveTimes::Time ended = {};
};

struct Save;

// One save on its way. Copyable; outlives the pipeline.
class SaveTicket {
 public:
  bool staged() const;  // or failed: the sources may change
  bool done() const;    // durable, or prepared, or failed
  // Throw what the save failed with. Errc::unsupported within an assignment of the same thread to
  // the shelf, for whose end the save waits.
  void wait_staged() const;
  Commit wait_durable() const;
  // In place of wait_durable(), for a save with an id: it is prepared; Shelf::resolve() decides.
  // Each of the two throws Errc::bad_argument for a save of the other kind.
  Prepared wait_prepared() const;
  // The same, for so long at most; false where that was too short.
  [[nodiscard]] bool wait_staged_for(std::chrono::nanoseconds time) const;
  [[nodiscard]] bool wait_durable_for(std::chrono::nanoseconds time) const;
  [[nodiscard]] bool wait_prepared_for(std::chrono::nanoseconds time) const;
  SaveTimes times() const;
  std::vector<CopyTimes> copies() const;  // in the order in which they ended; see trace

 private:
  friend class Pipeline;
  explicit SaveTicket(std::shared_ptr<Save> save) : save_(std::move(save)) {}
  std::shared_ptr<Save> save_;
};

struct PipelineStats {
  std::uint64_t saves = 0;    // begun
  std::uint64_t skipped = 0;  // OnBusy::skip
  std::uint64_t torn = 0;
};

// Destroying it waits for what is being staged. Where that fails and nobody has heard it, the
// shelf's next call, or its close(), throws why. Within an assignment of the same thread it would
// wait for ever; close() refuses that. To close, drain or destroy it in a forked child does
// nothing.
class Pipeline {
 public:
  // Errc::bad_argument for options that cannot be. The shelf may be moved from: the pipeline stays
  // with what it was.
  explicit Pipeline(Shelf& shelf, const PipelineOptions& options = {});
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // No ticket where it was skipped. Where it throws there is no save, and what was copied is
  // discarded. Errc::bad_argument for tensors of another shelf, or a step that cannot be stored;
  // Errc::unknown_name where the tensor of an eager source was erased; Errc::transaction within an
  // open transaction; Errc::unsupported within an assignment; Errc::closed once this or the shelf
  // is closed.
  //
  // With an id (Shelf::prepare()) it is prepared, and not committed: for those that agree with
  // others first. It may be staged while the one before is still undecided, and then waits for that
  // decision. It needs slots of its own for that: with an in_flight of 1 there may be none, which
  // is Errc::unresolved. Where the one before is abandoned, this one is lost with it:
  // Errc::abandoned.
  std::optional<SaveTicket> save(std::shared_ptr<const SavePlan> plan,
                                 std::optional<std::uint64_t> step = {},
                                 std::optional<std::string> id = {});

  // Returns when what was begun is on its way to the medium, or has failed, which it throws where
  // nobody has heard it. What is assigned otherwise from then on is in no such version.
  // Errc::unsupported within an assignment of the same thread, for which it would wait.
  void drain();
  // The same, for so long at most; false where that was too short.
  [[nodiscard]] bool drain_for(std::chrono::nanoseconds time);

  PipelineStats stats() const;
  // Returns when what was begun is on its way to the medium, or has failed; save() throws
  // Errc::closed from then on. To be called before Shelf::close(), which lets nothing more be
  // staged. Errc::unsupported within an assignment of the same thread, for which it would wait.
  void close();

 private:
  class Conductor;
  std::unique_ptr<Conductor> conductor_;
};

}  // namespace tensorshelf
