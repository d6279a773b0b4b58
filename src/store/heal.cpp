#include "store/heal.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/open_attempt.hpp"
#include "store/commit/turn.hpp"
#include "store/io/chunk_io.hpp"
#include "store/reading/elsewhere.hpp"

namespace tensorshelf {

namespace {

// What was found of one tensor.
using Found = std::span<Damage>;

std::vector<Found> by_tensor(std::vector<Damage>& damage) {
  std::vector<Found> found;
  for (std::size_t begin = 0, end = 0; begin < damage.size(); begin = end) {
    while (end < damage.size() && damage[end].tensor == damage[begin].tensor) ++end;
    found.push_back(Found(damage).subspan(begin, end - begin));
  }
  return found;
}

// Restores chunks of one tensor in the open attempt, behind the closed gate.
class Healer {
 public:
  Healer(State& state, Stager& stager, const std::shared_ptr<StoredTensor>& tensor)
      : state_(state), stager_(stager), tensor_(tensor), lock_(tensor->mutex) {}

  void heal(Found found) {
    if (!find_sources(found)) return;
    for (Damage& damage : found) {
      if (damage.healable) restore(damage);
    }
    stager_.check_labels(*tensor_);
  }

 private:
  RecordedChunk recorded(const Damage& damage) const {
    return recorded_in(*state_.open->base, *tensor_, damage.chunk);
  }
  bool read_source(const Damage& damage) const {
    const auto read = damage.in_mirror ? read_own : read_elsewhere;
    return read(*state_.medium, state_.seeds, recorded(damage), {room_.get(), kChunkBytes});
  }
  bool is_still(const Damage& damage) const;
  bool find_sources(Found found) const;
  void restore(Damage& damage);

  State& state_;
  Stager& stager_;
  const std::shared_ptr<StoredTensor>& tensor_;
  std::unique_lock<FairMutex> lock_;
  // Its own: who waits for a slot may call what reads, and uses this thread's scratch.
  const std::unique_ptr<std::byte[]> room_ = std::make_unique<std::byte[]>(kChunkBytes);
};

// Whether what was found is so now: commits went on.
bool Healer::is_still(const Damage& damage) const {
  if (damage.chunk >= tensor_->layout.chunk_count()) return false;  // another of that name
  const RecordedChunk now = recorded(damage);
  if (!now.is_stored() || now.version() != damage.version || now.slot() != damage.slot) {
    return false;
  }
  ++state_.counters.verified;
  const bool intact = chunk_intact(*state_.medium, state_.seeds, now);
  if (!damage.in_mirror) return !intact;
  return intact && mirror_lacks(*state_.medium, state_.seeds, now, {room_.get(), kChunkBytes});
}

// False where nothing is to be done. What is placed whole is copied as a whole: where a chunk that
// is damaged is to be had nowhere, that would be refused, and with it all else.
bool Healer::find_sources(Found found) const {
  bool any = false;
  bool all = true;
  for (Damage& damage : found) {
    damage.healable = false;
    if (!is_still(damage)) continue;
    if (!damage.in_mirror) tensor_->clear_verified(damage.slot, damage.chunk);
    damage.healable = read_source(damage);
    any |= damage.healable;
    all &= damage.healable;
  }
  return any && (all || !tensor_->whole());
}

// From the very copy that was compared, for what lies in the other slot may change meanwhile.
void Healer::restore(Damage& damage) {
  if (!read_source(damage)) ChunkReader(state_).throw_damaged(recorded(damage));
  const std::span<const std::byte> bytes(room_.get(), tensor_->chunk_bytes(damage.chunk));
  stager_.write_anew(tensor_, damage.chunk, bytes, lock_);
  damage.healed = true;
}

}  // namespace

// In turn.
void Healing::check_may_heal() {
  state_.check_writable();
  {
    const std::lock_guard lock(state_.structure);
    if (state_.versions.undecided()) state_.throw_unresolved("nothing can be restored");
  }
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  if (!planted(Bug::healed_along)) check_nothing_uncommitted(state_, "a repair");
}

VerifyReport Healing::heal(const Progress& progress) {
  state_.check_writable();
  refuse_inside(state_, "a repair was asked for");
  {
    const Turn turn(state_);
    check_may_heal();
  }
  return heal(reader_.verify(progress));
}

VerifyReport Healing::heal(VerifyReport report) {
  state_.check_writable();
  refuse_inside(state_, "a repair was asked for");
  report.healed_as.reset();
  for (Damage& damage : report.damage) damage.healed = false;
  std::optional<Flight> flight;
  {
    const Turn turn(state_);
    check_may_heal();
    const auto healable = [](const Damage& damage) { return damage.healable; };
    if (std::any_of(report.damage.begin(), report.damage.end(), healable)) {
      flight = freeze_healed(report);
    }
  }
  if (flight) report.healed_as = sealer_.seal(std::move(*flight)).version;
  return report;
}

// In turn. What it restores is the version's only change: the gate is closed till it is frozen, so
// that nobody's assignment comes along.
std::optional<Flight> Healing::freeze_healed(VerifyReport& report) {
  const ClosedGate closed = freezer_.close_gate();
  if (!planted(Bug::healed_along)) check_nothing_uncommitted(state_, "a repair");
  state_.rival.look();
  auto spare = state_.attempt_over(state_.open->base, state_.open->sequence);
  try {
    for (const Found& found : by_tensor(report.damage)) {
      const auto there = state_.open->names->find(found.front().tensor);
      if (there == state_.open->names->end()) continue;
      const std::shared_ptr<StoredTensor> tensor = there->second.tensor;
      Healer(state_, stager_, tensor).heal(found);
    }
    if (!state_.open->changed()) return std::nullopt;
    return freezer_.freeze_behind_gate({});
  } catch (...) {
    drop_open_attempt(state_, std::move(spare));
    throw;
  }
}

}  // namespace tensorshelf
