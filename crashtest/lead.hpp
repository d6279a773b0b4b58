// A shelf's committing thread on a lead. It goes from one call of the medium to the next as far as
// the program says and waits there, so that what others do beside an attempt in flight, and in
// which of its states, is chosen and not met by chance.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include <tensorshelf/medium.hpp>

namespace tensorshelf::crash {

// Of an attempt in flight: what its next call begins.
enum class Phase : std::uint64_t {
  frozen,     // nothing is written for it yet
  described,  // before the barrier that makes it durable (I1)
  durable,    // before the first copy of its word
  half,       // before the second one
  flipped,    // before the barrier that makes the words durable (I2)
  landed,
};

class Lead {
 public:
  // The calling thread is none that is led.
  static void walk_free();

  // The attempt that is in flight now goes on to that phase; the one behind it waits frozen.
  void let_go_to(Phase phase);
  void let_go();  // of this attempt and all to come
  bool waits();   // the committing thread is where it was let go to
  Phase here();

  // Of the medium.
  enum class Call { write, barrier, word };
  void before(Call call);

 private:
  bool may_pass() const { return free_ || here_ < goal_; }

  std::mutex mutex_;
  std::condition_variable changed_;
  Phase here_ = Phase::frozen;
  Phase goal_ = Phase::frozen;
  bool begun_ = false;  // the attempt has made a call
  unsigned words_ = 0;  // that it stored
  bool waits_ = false;
  bool free_ = false;
};

// The medium under it.
std::unique_ptr<Medium> led(std::unique_ptr<Medium> medium, std::shared_ptr<Lead> lead);

}  // namespace tensorshelf::crash
