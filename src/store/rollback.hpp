// A version made the newest once more, as one of its own: its pages under a new root, with nothing
// copied.
#pragma once

#include <cstdint>
#include <memory>

#include <tensorshelf/report.hpp>

#include "store/commit/freezer.hpp"
#include "store/commit/sealer.hpp"
#include "store/reading/follow.hpp"
#include "store/reading/reader.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Rollback {
 public:
  Rollback(State& state, Reader& reader, Follower& follower, Freezer& freezer, Sealer& sealer)
      : state_(state), reader_(reader), follower_(follower), freezer_(freezer), sealer_(sealer) {}

  // Durable when it returns. Errors as Shelf::rollback().
  Commit to(std::uint64_t version);

 private:
  void check_nothing_on_its_way() const;
  void check_sound(std::uint64_t version);
  void keep_places(Version& version) const;
  std::shared_ptr<Version> as_next(std::uint64_t version);

  State& state_;
  Reader& reader_;
  Follower& follower_;
  Freezer& freezer_;
  Sealer& sealer_;
};

}  // namespace tensorshelf
