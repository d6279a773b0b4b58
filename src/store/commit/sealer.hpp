// What follows a freeze, to a durable version: docs/design.md has the steps, sealer.cpp their
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tensorshelf/report.hpp>

#include "store/media_set/further_media.hpp"
#include "store/media_set/stamper.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Sealer {
 public:
  explicit Sealer(State& state)
      : state_(state), stamper_(*state.medium, state.further->attached()) {}

  Commit seal(Flight flight);

  // The same in steps, for one that is prepared. Attempts go one by one, in order; after a failure
  // none does.
  void await_turn(const Flight& flight);
  void make_durable(const Flight& flight, Commit& commit);
  void flip_and_publish(Flight& flight, Commit& commit);
  void account(Commit& commit);  // of one that is published: what it took, since times.sealing

  // Where the call throws, the flight and the store have failed. Needs no memory: a flight is
  // always dropped.
  template <typename Call>
  void or_fail(const Flight& flight, Call call) {
    try {
      call();
    } catch (...) {
      fail_flight(flight);
      throw;
    }
  }

 private:
  void fail_flight(const Flight& flight) noexcept;
  void publish(std::shared_ptr<Version>& version) noexcept;
  void drop(const Flight& flight) noexcept;

  State& state_;
  Stamper stamper_;
};

}  // namespace tensorshelf
