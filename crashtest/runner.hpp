// Runs a program on the real store over a recording medium, and keeps the model beside it. What
// the log and the history say together is all that exploring needs: which images there can be, and
// which versions each may show.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/pipeline.hpp>
#include <tensorshelf/shelf.hpp>

#include "dealt.hpp"
#include "disk.hpp"
#include "feed_watch.hpp"
#include "lead.hpp"
#include "model.hpp"
#include "pinned.hpp"
#include "recording_medium.hpp"
#include "workload.hpp"

namespace tensorshelf::crash {

// What a run writes into its log beside the medium's events.
enum class Mark : std::uint64_t {
  began = 1,       // the commit of history[number] was asked for
  acked = 2,       // it returned
  last = 4,        // nothing beyond history[number] is on its way any more
  opened = 3,      // an open for writing returned, with this incarnation
  preparing = 5,   // prepared[number] was asked for
  prepared = 6,    // it is: this returned, or an open found it
  abandoning = 7,  // it was asked to go
  decided = 8,     // nothing is prepared
};
void mark(Log& log, Mark kind, std::uint64_t number);

struct Recording {
  Log log;
  std::vector<Model> history;     // committed versions, oldest first; [0]: what the run began with
  std::uint64_t incarnation = 0;  // the highest that anyone held before the run
  std::vector<Model> prepared = {};                // attempts that were
  std::optional<std::size_t> first_prepared = {};  // that was when the run began, or may have been
  bool surely_prepared = false;
};

// What an open after a crash may show.
struct Expected {
  std::size_t acked = 0;                     // index in history
  std::size_t in_flight = 0;                 // the same, or the last of those on their way
  std::uint64_t incarnation = 0;             // spent: whoever opens now gets a higher one (I5)
  std::optional<std::size_t> prepared = {};  // index in Recording::prepared
  bool surely_prepared = false;              // else it may be, or not
};

// Empty where the shelf shows that attempt as prepared, or none where there is none.
std::string prepared_difference(const Recording& recording, std::optional<std::size_t> index,
                                const std::optional<Prepared>& shown);

// What is prepared over `before` is committed whole, or refused; empty where it is. Where a page
// cannot be read once, any tensor may refuse.
std::string resolved_difference(const Model& prepared, const Model& before, Shelf& shelf,
                                bool unreadable_once);

// One for the crash point after each event.
std::vector<Expected> expectations(const Recording& recording);

class Runner {
 public:
  // Formats an empty disk.
  Runner(Disk& disk, const Behaviour& behaviour, const Shape& shape = {});
  // On a disk that shows what `begun` wrote when its process died, or when the power failed:
  // another one opens it, and finds the last version of the history, and what is prepared.
  Runner(Disk& disk, const Behaviour& behaviour, Recording begun, std::uint64_t incarnation,
         std::optional<std::size_t> prepared, std::optional<Placement> placement = {});

  ~Runner();
  Runner(const Runner&) = delete;

  // Throws std::runtime_error where the store shows something else than the model, and whatever the
  // store throws.
  void run(const std::vector<Op>& ops);
  // The same on a medium that fails once (Behaviour::fails_at): the call must say so, the shelf
  // commit no more, and what is committed stay readable (I8). False: it did not fail.
  bool run_failing(std::vector<Op> ops);
  Recording finish();  // closes the shelf

 private:
  void apply(const Op& op);
  bool medium_failed() const;
  void check_failed_shelf();
  void open(std::optional<unsigned> keep = {}, std::optional<unsigned> in_flight = {});
  Shelf open_once(std::optional<unsigned> keep, std::optional<unsigned> in_flight);
  void apply_versions(const Op& op);
  void check(const char* when) const;
  enum class How { here, in_thread, lent };
  void assign(const std::string& name, std::uint64_t offset, std::uint64_t size,
              How how = How::here);
  void assign_same(const std::string& name);
  void put(const std::string& name, std::uint64_t offset, std::span<const std::byte> bytes,
           How how = How::here);
  void write(const std::string& name, std::span<const std::byte> range, std::uint64_t offset,
             How how);
  void lend(TensorRef& target, std::span<const std::byte> range, std::uint64_t offset);
  void undo(const Op& op);
  void refuse(const std::string& name, std::int64_t size);
  void lease(const std::string& name, bool committed);
  void check_leases() const;
  using CommitCall = std::function<Commit(std::optional<std::uint64_t> step)>;
  void persist(bool with_step, const CommitCall& call);
  Model next_version(bool with_step) const;

  // Prepared attempts.
  static void expect(Errc code, const std::function<void()>& call);
  bool refused(const Op& op);
  bool refused_commit(const std::function<void()>& call);
  void prepare();
  using Preparing =
      std::function<Prepared(std::optional<std::uint64_t> step, const std::string& id)>;
  void prepare_by(const Preparing& call);
  void resolve();
  void abandon();
  void note_prepared();

  // Attempts in flight.
  void beside(const std::function<void()>& call);
  void launch();
  void go_to(Phase phase);
  void land(const std::function<void()>& settle = {});
  void land_all();
  void let_all_fail();
  void end_failed();
  void roll_back(std::uint64_t versions);
  void compact();
  void discard();

  // Saves by a pipeline (runner_feed.cpp).
  struct Feeding;
  void feed(const Op& op);
  void feed_to_the_end();
  void feed_into_flight();
  void feed_in_vain(Verb how);
  SaveTicket save(Feeding& feeding, std::optional<std::uint64_t> step,
                  std::optional<std::string> id = {});
  void feed_to_a_decision();
  void await_launch(const SaveTicket& ticket);

  struct Leased {
    std::string name;
    Lease lease;
    std::vector<std::byte> bytes;  // that it must show, whatever is written
  };

  Disk& disk_;
  Behaviour behaviour_;
  Recording recording_;
  Model working_;          // with what is staged
  std::size_t acked_ = 0;  // index in the history
  std::uint64_t serial_;   // of the last assignment
  std::uint64_t incarnation_ = 0;
  std::optional<Placement> placement_;
  const DealtCopies dealt_;
  std::shared_ptr<Lead> lead_;
  std::optional<Shelf> shelf_;
  std::optional<Pipeline> pipeline_;
  std::shared_ptr<FeedWatch> watch_;  // of its copies
  std::optional<Transaction> transaction_;
  std::vector<Leased> leases_;
  struct alignas(kPageBytes) LentPage {
    std::array<std::byte, kPageBytes> bytes;
  };
  std::vector<LentPage> lender_;
  PinnedReaders pinned_;
  bool changed_ = false;  // something is assigned, created or erased, and not committed
  struct Flight {
    std::size_t index;  // in the history
    std::function<bool()> ended;
    std::function<Commit()> commit;  // waits
  };
  std::deque<Flight> flights_;
  std::optional<std::size_t> prepared_;  // and not decided
  bool found_ = false;                   // by opening the shelf
  Model under_;                          // what it is over
};

}  // namespace tensorshelf::crash
