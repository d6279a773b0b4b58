#include "feed/conductor.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/side_by_side.hpp"
#include "base/signals_blocked.hpp"
#include "base/size_text.hpp"
#include "feed/access.hpp"
#include "feed/source_copy.hpp"
#include "store/commit_checks.hpp"

namespace tensorshelf {
namespace {

constexpr unsigned kMostPieces = 64;
constexpr std::uint64_t kMostPieceBytes = std::uint64_t{1} << 30;

void check_options(const PipelineOptions& options) {
  if (options.workers < 1 || options.workers > kMostThreads) {
    throw Error(
        Errc::bad_argument,
        fmt::format("workers={} is out of range: {} at most copy", options.workers, kMostThreads),
        fmt::format("use workers=1 to {}", kMostThreads));
  }
  if (options.device_pieces > kMostPieces) {
    throw Error(
        Errc::bad_argument,
        fmt::format("device_pieces={} is out of range: {} at most", options.device_pieces,
                    kMostPieces),
        fmt::format("use device_pieces=1 to {}, or 0 for the measured default", kMostPieces));
  }
  const std::uint64_t piece_bytes = options.device_piece_bytes;
  if (piece_bytes % kChunkBytes != 0 || piece_bytes > kMostPieceBytes) {
    throw Error(Errc::bad_argument,
                fmt::format("device_piece_bytes={} is no multiple of {}, up to {}", piece_bytes,
                            size_text(kChunkBytes), size_text(kMostPieceBytes)),
                "use 8388608, say, or 0 for the measured default");
  }
  if (options.nice < 0 || options.nice > 19) {
    throw Error(Errc::bad_argument, fmt::format("nice={} is out of range", options.nice),
                "use 0 to 19, which gives way to all others");
  }
  const int own = ::getpriority(PRIO_PROCESS, 0);
  if (options.nice > 0 && options.nice < own) {
    throw Error(Errc::bad_argument,
                fmt::format("nice={} is less than the {} of this thread", options.nice, own),
                fmt::format("use {} to 19, or 0 for as nice as the thread is", own));
  }
  cpu_set_t mine;
  const bool known = ::sched_getaffinity(0, sizeof mine, &mine) == 0;
  for (const int cpu : options.cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE && (!known || CPU_ISSET(cpu, &mine))) continue;
    throw Error(Errc::bad_argument, fmt::format("cpu {} is none that this thread may use", cpu),
                "taskset -p PID, and /proc/PID/status, list those");
  }
}

}  // namespace

Pipeline::Conductor::Conductor(std::shared_ptr<Store> store, std::weak_ptr<const ShelfFile> file,
                               const PipelineOptions& options)
    : store_(std::move(store)), file_(std::move(file)), options_(options) {
  check_options(options);
  const SignalsBlocked blocked;  // they are for the trainer
  thread_ = std::thread([this] { run(); });
}

// What failed, and nobody heard, is the shelf's to tell.
Pipeline::Conductor::~Conductor() {
  close();
  try {
    check_heard();
  } catch (...) {
    if (!planted(Bug::feed_failure_let_go)) store_->keep_lost_save(std::current_exception());
  }
}

void Pipeline::Conductor::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (newest_) newest_->hurry();
  }
  changed_.notify_all();
  std::call_once(joined_, [this] { thread_.join(); });  // any thread may close it, two at once
}

void Pipeline::Conductor::check_may_close() const {
  store_->refuse_inside("a pipeline was closed");
}

bool Pipeline::Conductor::drain_for(std::chrono::nanoseconds time) {
  store_->refuse_inside("a pipeline was drained");
  hurry();
  {
    std::unique_lock lock(mutex_);
    const auto drained = [this] { return !staging_ || planted(Bug::feed_drained_early); };
    if (!changed_.wait_until(lock, Save::after(time), drained)) return false;
  }
  check_heard();
  return true;
}

PipelineStats Pipeline::Conductor::stats() const {
  return {.saves = saves_, .skipped = skipped_, .torn = torn_};
}

void Pipeline::Conductor::check_heard() {
  std::shared_ptr<Save> newest;
  {
    const std::lock_guard lock(mutex_);
    newest = newest_;
  }
  if (newest && !planted(Bug::feed_failure_forgotten)) newest->check_heard();
}

// ---- the trainer's part -------------------------------------------------------------------------

// Before any lock: a thread of the parent's may have held it at the fork.
void Pipeline::Conductor::refuse_in_child() const {
  if (!in_child()) return;
  throw Error(Errc::forked, "the pipeline was made by the parent of this process",
              "Save there; or open another shelf here, and make a Pipeline for it.");
}

void Pipeline::Conductor::check_may_begin(const SavePlan& plan) const {
  for (const Source& source : plan.sources()) {
    if (FeedAccess::store(source.target) == store_) continue;
    throw Error(Errc::bad_argument, "the plan has a tensor of another shelf",
                "Make a plan, and a Pipeline, for each shelf.");
  }
  const std::lock_guard lock(mutex_);
  check_open();
}

void Pipeline::Conductor::check_open() const {
  if (!closed_) return;
  throw Error(Errc::closed, "the pipeline is closed", "Make another one for the shelf.");
}

void Pipeline::Conductor::hurry() {
  const std::lock_guard lock(mutex_);
  if (newest_) newest_->hurry();
}

bool Pipeline::Conductor::busy() const {
  const std::lock_guard lock(mutex_);
  return staging_;
}

std::shared_ptr<Save> Pipeline::Conductor::begin(std::shared_ptr<const SavePlan> plan,
                                                 std::optional<std::uint64_t> step,
                                                 std::optional<std::string> id) {
  refuse_in_child();
  store_->refuse_inside("a save was begun");
  check_step(step);
  if (id) check_id(*id);
  check_may_begin(*plan);
  check_heard();
  if (options_.on_busy == OnBusy::skip && busy()) {
    ++skipped_;
    return nullptr;
  }
  hurry();  // what we wait for
  check_name(file_);
  store_->catalog().check_media();
  store_->transactions().begin_save();
  std::shared_ptr<Save> save;
  try {
    check_heard();  // of one that we waited for
    save = std::make_shared<Save>(store_, std::move(plan), step, std::move(id), saves_);
    if (!planted(Bug::feed_eager_lazily)) {
      queue_eager(*save);
      copy_eager(*save, options_);
    }
    hand_over(save);
  } catch (...) {
    give_turn_back();
    throw;
  }
  return save;
}

// Drops what was copied. Where the shelf was closed meanwhile, nothing of it is committed either.
void Pipeline::Conductor::give_turn_back() noexcept {
  try {
    store_->transactions().drop();
  } catch (...) {  // of a shelf that is closed: who lost his save hears why of that
  }
}

// From here on the thread has it. One that ended meanwhile would keep the turn for good.
void Pipeline::Conductor::hand_over(const std::shared_ptr<Save>& save) {
  const std::lock_guard lock(mutex_);
  if (!planted(Bug::feed_closed_late)) check_open();
  TENSORSHELF_ASSERT(next_ == nullptr);  // else two have the turn
  ++saves_;
  save->released();
  next_ = newest_ = save;
  staging_ = true;
  changed_.notify_all();
}

// ---- the thread's part --------------------------------------------------------------------------

// Both were checked. CPUs can be refused where the process lost some since: then it copies on those
// that are left, which slows others and loses nothing.
void Pipeline::Conductor::keep_to_itself() const {
  if (options_.nice > 0) {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), options_.nice);
  }
  if (options_.cpus.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options_.cpus) CPU_SET(cpu, &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);  // of this thread, and of those that it starts
}

void Pipeline::Conductor::run() {
  keep_to_itself();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || next_; });
    if (!next_) return;
    const auto save = std::exchange(next_, nullptr);
    lock.unlock();
    conduct(*save);
    lock.lock();
    staging_ = next_ != nullptr;
    changed_.notify_all();
  }
}

void Pipeline::Conductor::copy_lazy(Save& save) {
  if (planted(Bug::feed_eager_lazily)) {
    Pace unpaced(save, 0);
    for (const Source& source : save.eager) copy(source, save, unpaced, options_);
  }
  save.moment.take_lines();
  take_queued(save, options_.trace);
  std::size_t count = save.lazy.size();
  if (planted(Bug::feed_source_left_out) && count > 1) --count;
  Pace pace(save, options_.bytes_per_second);
  auto one = [&](std::size_t part) {
    try {
      copy(save.at(save.eager.size() + part, options_.workers), save, pace, options_);
    } catch (...) {
      if (!planted(Bug::feed_part_committed)) throw;
    }
  };
  side_by_side(options_.workers, count, PartJob(one));
  save.all_copied();
}

void Pipeline::Conductor::compare(Save& save) {
  const Source* changed =
      save.moment.first_changed(*store_, options_.check_one_in, options_.workers);
  if (changed == nullptr || planted(Bug::feed_torn_committed)) return;
  ++torn_;
  throw Error(
      Errc::torn,
      fmt::format("'{}' changed while it was copied: the save{} was abandoned",
                  FeedAccess::tensor(changed->target)->name(),
                  save.step ? fmt::format(" of step {}", *save.step) : ""),
      "Change it when the save is staged (wait_staged(); of an autosave auto.gate()), or have "
      "it copied before the save returns (an eager source; autosave(overlap=False)).");
}

// Nothing is frozen behind what waits for a decision. Who closes waits for none.
void Pipeline::Conductor::prepare(Save& save, bool& turn_ended) {
  const bool decided = planted(Bug::feed_decision_not_awaited) || store_->decisions().await([this] {
    const std::lock_guard lock(mutex_);
    return closed_;
  });
  if (!decided) {
    throw Error(Errc::unresolved,
                "the pipeline was closed while a save waited for the decision on the one before",
                "resolve() what is prepared, then close the pipeline.");
  }
  save.prepared(store_->transactions().prepare_save(save.step, *save.id, turn_ended));
}

void Pipeline::Conductor::conduct(Save& save) {
  bool turn_ended = false;
  try {
    if (planted(Bug::feed_staged_early)) save.staged();
    copy_lazy(save);  // into the open attempt alone, which is dropped where anything fails (I13)
    if (planted(Bug::feed_not_drained)) {
      const std::lock_guard lock(mutex_);
      check_open();
    }
    compare(save);  // what changed meanwhile is in no version (I9)
    save.staged();  // from here on no source is looked at
    check_name(file_);
    store_->catalog().check_media();
    if (save.id && !planted(Bug::feed_prepared_committed)) return prepare(save, turn_ended);
    const auto step = planted(Bug::feed_step_left_out) ? std::nullopt : save.step;
    save.launched(store_->transactions().launch_save(step, turn_ended));
  } catch (...) {
    save.blame(std::current_exception());  // before the turn is free: who takes it is to hear of it
    if (!turn_ended) give_turn_back();
    save.queued.reset();  // a ticket may live for long
    save.moment.let_go();
    save.failed();
  }
}

}  // namespace tensorshelf
