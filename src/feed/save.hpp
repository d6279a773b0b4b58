// One save, from its begin to its version: what its ticket asks and its pipeline tells. Any thread
// may call anything.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "feed/moment.hpp"
#include "store/store.hpp"
#include "store/threads/fork_guard.hpp"

namespace tensorshelf {

struct Save {
  using Clock = std::chrono::steady_clock;
  // That much later, or as late as the clock can say: nanoseconds::max() is for ever.
  static Clock::time_point after(std::chrono::nanoseconds time) {
    const auto now = Clock::now();
    return time > Clock::time_point::max() - now ? Clock::time_point::max() : now + time;
  }

  Save(std::shared_ptr<Store> on, std::shared_ptr<const SavePlan> what,
       std::optional<std::uint64_t> at, std::optional<std::string> prepared_as,
       std::uint64_t round);

  // Called by the pipeline, in this order. Where a step fails: blame() in its place, then failed(),
  // once nothing of the save is left in the shelf.
  void released();
  void source_copied(const CopyTimes& times);
  void all_copied();
  void staged();
  void launched(std::shared_future<Commit> on_its_way);
  void prepared(Prepared as);  // of a save with an id, in place of launched()
  void blame(std::exception_ptr why) noexcept;
  void failed() noexcept;
  // Returns at that time, or as soon as somebody waits.
  void rest_until(Clock::time_point due);
  void hurry();  // from here on nobody rests

  // Called by the ticket.
  bool has_staged() const;  // or failed
  bool has_landed() const;  // likewise
  bool wait_staged(std::optional<Clock::time_point> until);
  std::optional<Commit> wait_durable(std::optional<Clock::time_point> until);
  std::optional<Prepared> wait_prepared(std::optional<Clock::time_point> until);
  SaveTimes times() const;
  std::vector<CopyTimes> copies() const;

  void check_heard();  // throws what nobody has heard, once

  const std::shared_ptr<Store> store;
  const std::shared_ptr<const SavePlan> plan;
  const std::optional<std::uint64_t> step;
  const std::optional<std::string> id;  // that it is prepared under
  const std::span<const Source> eager;  // of the plan
  const std::span<const Source> lazy;
  // The source that so many workers take at that turn: the eager ones have the first turns.
  const Source& at(std::size_t turn, unsigned workers) const {
    return plan->sources()[workers > 1 ? plan->largest_first()[turn] : turn];
  }
  Moment moment;
  // For the pipeline alone: the first eager sources on a device, whose copies are queued.
  std::unique_ptr<DeviceBatch> queued;
  std::vector<const Source*> queued_sources;

 private:
  enum class Stage { copying, staged, launched, failed };
  bool wait(Stage reached, std::optional<Clock::time_point> until);
  void refuse_unless(bool fits, const char* instead) const;
  void refuse_in_child() const;

  const ForkGuard fork_guard_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  Stage stage_ = Stage::copying;
  SaveTimes times_;
  std::vector<CopyTimes> copies_;
  unsigned waiting_ = 0;  // threads
  bool hurried_ = false;
  std::exception_ptr error_;
  bool heard_ = false;
  std::shared_future<Commit> commit_;
  std::optional<Prepared> prepared_;
};

}  // namespace tensorshelf
