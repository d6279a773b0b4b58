// Makes a shelf as small as what is in it, while it is used. Slots that nothing names get other
// places, as far in front as there is room; what is assigned goes there by itself, for assignments
// take the lowest free slot, and what nobody assigns is copied. Each step is part of an ordinary
// version, of whoever commits. A place that was left stays the tensor's until the last version that
// has it there is gone (holding.hpp), so any crash finds each version as it was (I3). At the end
// the media are cut, behind all versions whose roots reach further.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tensorshelf/report.hpp>

#include "store/commit/freezer.hpp"
#include "store/commit/sealer.hpp"
#include "store/commit/stager.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

std::vector<unsigned> media_of(const State& state);  // by number; but for mirrors

class Compactor {
 public:
  Compactor(State& state, Stager& stager, Freezer& freezer, Sealer& sealer)
      : state_(state), stager_(stager), freezer_(freezer), sealer_(sealer) {}

  // One at a time; any number of threads may use the shelf meanwhile. `patience`: how long it waits
  // for the commit of what somebody has assigned. Errors: Shelf::compact().
  CompactReport run(std::chrono::duration<double> patience);

 private:
  static constexpr std::chrono::milliseconds kPause{1};
  // So much goes with one version, and is cut off at once: others wait for either.
  static constexpr std::uint64_t kAtOnceBytes = 8 * 1024 * 1024;
  // After so many rounds, of as many commits as there are homes, it waits no more for somebody who
  // assigns to stop: then it copies what it can, and ends.
  static constexpr std::uint64_t kRestless = 4;
  using Tensors = std::vector<std::shared_ptr<StoredTensor>>;
  class Fences;

  void begin();
  void move_all();
  // Whether something lies elsewhere now. Pages of the manifest are moved only while nothing is on
  // its way: `waits` says to wait for that.
  bool lower(const Goals& goals, bool waits);
  bool open_pages(std::uint64_t goal, bool waits);
  Tensors behind(const Goals& goals);  // that have slots there, as they lie
  bool relocate(StoredTensor& tensor, const Goals& goals);
  bool carry(const Goals& goals);
  bool is_cold(StoredTensor& tensor) const;
  bool lies_well(const Goals& goals) const;
  bool commit_next();  // ours, or somebody's: false
  bool freeze_own(std::optional<Flight>& flight);
  void cut();
  bool reaches_no_further(const PerMedium& ends) const;
  void shorten(const PerMedium& from);
  bool shorten_to(unsigned medium, std::uint64_t size_bytes);

  State& state_;
  Stager& stager_;
  Freezer& freezer_;
  Sealer& sealer_;
  QueueLock one_;
  MediumSet fixed_;  // that could not be made shorter
  // What belongs to the run under way.
  CompactReport report_;
  std::uint64_t began_ = 0;  // the version then
  bool alone_ = false;       // nobody had assigned anything at the last commit
  std::chrono::duration<double> patience_{};
};

}  // namespace tensorshelf
