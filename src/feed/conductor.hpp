// The thread that brings one save after the other from its sources to the committing thread:
//
//     copy     what the device has brought of eager sources, then the lazy ones, into slots of the
//              open attempt, by PipelineOptions::workers threads
//     compare  what changed meanwhile abandons the save (moment.hpp)
//     staged   the trainer may go on: no source is looked at any more
//     launch   the attempt takes no more, and is sealed behind those before it
//
// Where one of these fails, what was copied is discarded, and then the save has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <tensorshelf/pipeline.hpp>

#include "feed/save.hpp"

namespace tensorshelf {

class Pipeline::Conductor {
 public:
  Conductor(std::shared_ptr<Store> store, std::weak_ptr<const ShelfFile> file,
            const PipelineOptions& options);
  ~Conductor();
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  std::shared_ptr<Save> begin(std::shared_ptr<const SavePlan> plan,
                              std::optional<std::uint64_t> step, std::optional<std::string> id);
  bool drain_for(std::chrono::nanoseconds time);
  void check_may_close() const;
  void close();  // throws nothing of a save's
  void check_heard();
  bool in_child() const { return fork_guard_.in_child(); }
  PipelineStats stats() const;

 private:
  void refuse_in_child() const;
  void check_may_begin(const SavePlan& plan) const;
  void check_open() const;  // the mutex is held
  void hand_over(const std::shared_ptr<Save>& save);
  void give_turn_back() noexcept;
  bool busy() const;
  void hurry();
  void keep_to_itself() const;
  void run();
  void conduct(Save& save);
  void copy_lazy(Save& save);
  void compare(Save& save);
  void prepare(Save& save, bool& turn_ended);

  const std::shared_ptr<Store> store_;
  const std::weak_ptr<const ShelfFile> file_;
  const PipelineOptions options_;
  const ForkGuard fork_guard_;
  std::atomic<std::uint64_t> saves_ = 0;
  std::atomic<std::uint64_t> skipped_ = 0;
  std::atomic<std::uint64_t> torn_ = 0;

  mutable std::mutex mutex_;  // of the next four
  std::condition_variable changed_;
  std::shared_ptr<Save> next_;    // begun, and not taken yet
  std::shared_ptr<Save> newest_;  // that was begun
  bool staging_ = false;          // from hand_over() until the save is launched, or has failed
  bool closed_ = false;
  std::once_flag joined_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tensorshelf
