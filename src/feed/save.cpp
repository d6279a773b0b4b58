#include "feed/save.hpp"

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"

namespace tensorshelf {
namespace {

std::span<const Source> part(const SavePlan& plan, bool lazy) {
  const std::span<const Source> all = plan.sources();
  const auto first = std::find_if(all.begin(), all.end(), [](const Source& s) { return s.lazy; });
  const auto eager = static_cast<std::size_t>(first - all.begin());
  return lazy ? all.subspan(eager) : all.first(eager);
}

}  // namespace

Save::Save(std::shared_ptr<Store> on, std::shared_ptr<const SavePlan> what,
           std::optional<std::uint64_t> at, std::optional<std::string> prepared_as,
           std::uint64_t round)
    : store(std::move(on)),
      plan(std::move(what)),
      step(at),
      id(std::move(prepared_as)),
      eager(part(*plan, false)),
      lazy(part(*plan, true)),
      moment(lazy, round) {
  times_.began = Clock::now();
}

// ---- of the pipeline ----------------------------------------------------------------------------

void Save::released() {
  const std::lock_guard lock(mutex_);
  times_.released = Clock::now();
}

void Save::source_copied(const CopyTimes& times) {
  const std::lock_guard lock(mutex_);
  copies_.push_back(times);
}

void Save::all_copied() {
  const std::lock_guard lock(mutex_);
  times_.copied = Clock::now();
}

void Save::staged() {
  const std::lock_guard lock(mutex_);
  times_.staged = Clock::now();
  stage_ = Stage::staged;
  changed_.notify_all();
}

void Save::launched(std::shared_future<Commit> on_its_way) {
  const std::lock_guard lock(mutex_);
  times_.launched = Clock::now();
  commit_ = std::move(on_its_way);
  stage_ = Stage::launched;
  changed_.notify_all();
}

void Save::prepared(Prepared as) {
  const std::lock_guard lock(mutex_);
  times_.launched = Clock::now();
  prepared_ = std::move(as);
  stage_ = Stage::launched;
  changed_.notify_all();
}

void Save::blame(std::exception_ptr why) noexcept {
  const std::lock_guard lock(mutex_);
  error_ = std::move(why);
}

void Save::failed() noexcept {
  const std::lock_guard lock(mutex_);
  stage_ = Stage::failed;
  changed_.notify_all();
}

void Save::rest_until(Clock::time_point due) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, due, [this] { return hurried_ || waiting_ > 0; });
}

void Save::hurry() {
  const std::lock_guard lock(mutex_);
  hurried_ = true;
  changed_.notify_all();
}

void Save::check_heard() {
  std::unique_lock lock(mutex_);
  // Who hears of a failure finds nothing of it left.
  changed_.wait(lock, [this] { return !error_ || stage_ == Stage::failed; });
  if (error_ && !std::exchange(heard_, true)) std::rethrow_exception(error_);
}

// ---- of the ticket ------------------------------------------------------------------------------

void Save::refuse_in_child() const {
  if (!fork_guard_.in_child()) return;
  throw Error(Errc::forked, "the save was begun by the parent of this process",
              "Wait for it there.");
}

bool Save::has_staged() const {
  refuse_in_child();
  const std::lock_guard lock(mutex_);
  return stage_ >= Stage::staged;
}

bool Save::has_landed() const {
  refuse_in_child();
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::failed) return true;
  if (prepared_) return true;
  if (planted(Bug::feed_durable_early)) return stage_ == Stage::launched;
  return stage_ == Stage::launched &&
         commit_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Until that stage or a failure, which is thrown; false where neither came in time.
bool Save::wait(Stage reached, std::optional<Clock::time_point> until) {
  refuse_in_child();
  store->refuse_inside("a save was waited for");
  std::unique_lock lock(mutex_);
  const auto there = [&] { return stage_ >= reached; };
  if (!there()) {
    ++waiting_;
    changed_.notify_all();  // who rests
    if (until) {
      changed_.wait_until(lock, *until, there);
    } else {
      changed_.wait(lock, there);
    }
    --waiting_;
  }
  if (stage_ == Stage::failed) {
    heard_ = true;
    std::rethrow_exception(error_);
  }
  return there();
}

bool Save::wait_staged(std::optional<Clock::time_point> until) {
  return wait(Stage::staged, until);
}

void Save::refuse_unless(bool fits, const char* instead) const {
  if (fits) return;
  throw Error(Errc::bad_argument,
              id ? "the save is prepared, and no version before it is resolved"
                 : "the save is committed, and not prepared",
              instead);
}

std::optional<Prepared> Save::wait_prepared(std::optional<Clock::time_point> until) {
  refuse_unless(id.has_value(), "Wait with wait_durable(), or give save() an id.");
  if (!wait(Stage::launched, until)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return prepared_;
}

std::optional<Commit> Save::wait_durable(std::optional<Clock::time_point> until) {
  refuse_unless(!id, "Wait with wait_prepared(), and then decide with Shelf::resolve().");
  if (!wait(Stage::launched, until)) return std::nullopt;
  if (planted(Bug::feed_durable_early)) return Commit{.step = step};
  if (until && commit_.wait_until(*until) != std::future_status::ready) return std::nullopt;
  return commit_.get();
}

SaveTimes Save::times() const {
  refuse_in_child();
  const std::lock_guard lock(mutex_);
  return times_;
}

std::vector<CopyTimes> Save::copies() const {
  refuse_in_child();
  const std::lock_guard lock(mutex_);
  return copies_;
}

}  // namespace tensorshelf
