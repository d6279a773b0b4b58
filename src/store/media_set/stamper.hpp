// Which version wrote last to a medium beside the first: each bears it, so that an older copy of it
// is told from it.
#pragma once

#include <array>
#include <cstdint>

#include "format/format.hpp"
#include "format/medium_set.hpp"
#include "media/media.hpp"
#include "store/media_set/attached_media.hpp"

namespace tensorshelf {

// For whose turn it is to commit. What is given outlives it.
class Stamper {
 public:
  Stamper(GuardedMedium& media, const AttachedMedia& attached)
      : media_(media), attached_(attached) {}

  // Says that this attempt is about to have written there, on those media of `which`: part of its
  // commit, in front of I1's barrier.
  void stamp(MediumSet which, const format::Root& attempt);

 private:
  GuardedMedium& media_;
  const AttachedMedia& attached_;
  std::array<std::uint64_t, kMaxMedia> last_ = {};  // version, in this opening
};

}  // namespace tensorshelf
