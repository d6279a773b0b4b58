// I10: another writer of the same shelf, past the lock: on a machine whose locks this one does not
// hear of, say. It is looked for before anything is written for an attempt, once for all of that,
// and again before what another may have is written over.
#pragma once

#include <atomic>

#include "format/format.hpp"
#include "media/media.hpp"
#include "store/recovery/recover.hpp"
#include "store/threads/health.hpp"

namespace tensorshelf {

// Any thread. What is given outlives it.
class RivalWatch {
 public:
  RivalWatch(Medium& medium, const Recovered& opened, const format::Seeds& seeds, bool one_machine,
             Health& health)
      : medium_(medium),
        opened_(opened),
        seeds_(seeds),
        one_machine_(one_machine),
        health_(health) {}
  RivalWatch(const RivalWatch&) = delete;
  RivalWatch& operator=(const RivalWatch&) = delete;

  // All throw Errc::busy where there is one, and what reading throws.
  void look();        // where nobody has since the attempt was begun
  void look_again();  // however long ago that was; the store commits no more where there is one
  void look_here() const { check_no_rival(medium_, opened_, seeds_); }  // on one machine, too

  void attempt_begun() noexcept { looked_ = false; }

 private:
  Medium& medium_;
  const Recovered& opened_;
  const format::Seeds& seeds_;
  const bool one_machine_;
  Health& health_;
  std::atomic<bool> looked_ = false;
};

}  // namespace tensorshelf
