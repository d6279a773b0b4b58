// The versions that an open store has, from being frozen until nobody keeps them. All of it with
// State::structure held; what is behind the closed gate may read `prepared` without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "store/manifest/records.hpp"
#include "store/recovery/prepared_attempt.hpp"
#include "store/state/holds.hpp"

namespace tensorshelf {

struct VersionSet {
  // Nothing else keeps a version for longer than a call holds the lock: its pages are free, and
  // needed, when it is dropped.
  std::vector<std::shared_ptr<Version>> in_flight;  // frozen, in order
  std::vector<std::shared_ptr<Version>> retained;   // published, the newest last
  Holds holds;                                      // of those published: version_hold.hpp
  std::optional<PreparedAttempt> prepared;          // the first in flight, where it can be loaded
  std::uint64_t given_back = 0;                     // how often something was, or came to nothing

  bool undecided() const { return prepared && !prepared->decided; }
  // Whether it is one of those to be read: what stays for readers elsewhere alone is theirs.
  bool is_offered(const Version& one) const {
    return one.number() >= retained.back()->root.floor || holds.has(one.number());
  }
  // Of those that are offered: the one of this number, or null; and the number of the first.
  const Version* find(std::uint64_t number) const;
  std::uint64_t oldest() const;
  // Whether another version may be made: there can be as many at once as the shelf has slots. With
  // none in flight or kept, for which one could wait, there always can.
  bool may_make(std::size_t slot_count) const {
    if (in_flight.empty() && holds.none()) return true;
    return retained.size() + holds.going + in_flight.size() < slot_count;
  }
};

}  // namespace tensorshelf
