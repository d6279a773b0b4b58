#include "store/rollback.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/open_attempt.hpp"
#include "store/commit/turn.hpp"
#include "store/state/kept_places.hpp"

namespace tensorshelf {

// Slots that were moved since stay where they are: the old version names none of these, and others
// between may.
void Rollback::keep_places(Version& version) const {
  std::shared_ptr<Names> names;
  for (const auto& [name, named] : *version.names) {
    std::shared_ptr<Holding> now;
    {
      std::lock_guard lock(named.tensor->mutex);
      // Also of one that is gone, and held in other places.
      now = keep_places_of(state_, *named.tensor);
    }
    if (!now || now == named.holding) continue;
    if (!names) names = std::make_shared<Names>(*version.names);
    names->find(name)->second.holding = now;
    version.tree.open_leaf(named.records_leaf);
    version.tree.move_tensor(named.records_leaf, named.tensor->layout.tensor_id, now->slot_at());
  }
  if (names) version.names = std::move(names);
}

// What it would bring back is read, but for what the newest has as well: Errc::corrupt where a
// chunk of that is damaged, before anything is changed. The turn is ours.
void Rollback::check_sound(std::uint64_t number) {
  const auto room = std::make_unique_for_overwrite<Reader::PieceRoom>();
  const auto is_in_newest = [&](const StoredTensor& tensor, std::uint64_t chunk) {
    const std::lock_guard lock(state_.structure);
    const Version& newest = *state_.versions.retained.back();
    const std::uint64_t cell = tensor.cell(chunk);
    return has(newest, tensor) &&
           newest.tree.record(cell) == state_.retained_version(number).tree.record(cell);
  };
  try {
    const auto held = follower_.hold(number, VersionHold::By::thread);
    for (const auto& [name, named] : held->names()) {
      StoredTensor& tensor = *named.tensor;
      for (std::uint64_t at = 0; at < tensor.layout.size_bytes;) {
        const std::uint64_t chunk = at / kChunkBytes;
        at += is_in_newest(tensor, chunk)
                  ? tensor.chunk_bytes(chunk)
                  : reader_.piece(tensor, Of::version(number), at, room->bytes).size;
      }
    }
  } catch (const Error& error) {
    if (error.code() == Errc::stale) return;  // which is told in its turn
    if (error.code() != Errc::corrupt) throw;
    throw Error(
        error.code(),
        fmt::format("nothing is rolled back, for version {} is damaged: {}", number, error.what()),
        error.remedy(), error.os_error());
  }
}

// The pages of the old version under a new root: nothing is copied. What tensors it had that are
// gone since, it has again, with their extents, which it never gave up. With the gate closed.
std::shared_ptr<Version> Rollback::as_next(std::uint64_t number) {
  auto version = std::make_shared<Version>();
  version->root = freezer_.next_root({});
  {
    // As a whole: one that is only held (version_hold.hpp) may go at any moment.
    std::lock_guard lock(state_.structure);
    const Version& old = state_.retained_version(number);
    version->tree = old.tree.successor(state_.open->sequence);
    version->names = old.names;
    version->tensor_bytes = old.tensor_bytes;
    version->root.step = old.root.step;
    if (planted(Bug::rollback_floor_old)) version->root.floor = old.root.floor;
    if (planted(Bug::rollback_id_old)) {
      state_.next_tensor_id = version->root.next_tensor_id = old.root.next_tensor_id;
    }
  }
  if (!planted(Bug::rolled_back_to_old_places)) keep_places(*version);
  state_.name_attached(version->tree);
  version->root.tensor_count = version->names->size();
  version->root.data_bytes = 0;
  return version;
}

void Rollback::check_nothing_on_its_way() const {
  std::lock_guard lock(state_.structure);
  if (state_.versions.undecided()) state_.throw_unresolved("nothing can be rolled back");
  if (state_.versions.in_flight.empty()) return;
  throw Error(Errc::uncommitted,
              fmt::format("a rollback of {}, and a version is on its way", state_.path),
              "Wait for what persist(wait=False) returned first.");
}

Commit Rollback::to(std::uint64_t number) {
  state_.check_writable();
  refuse_inside(state_, "rollback() was called");
  const Turn turn(state_);  // so that nothing is on its way after this look
  check_nothing_on_its_way();
  if (!planted(Bug::rolled_back_to_damage)) check_sound(number);
  std::optional<Flight> flight;
  {
    const ClosedGate closed = freezer_.close_gate();
    check_nothing_uncommitted(state_, "a rollback");
    freezer_.check_may_commit();
    auto version = as_next(number);
    if (planted(Bug::revived_given_back)) {
      for (const auto& [name, named] : *version->names) {
        const auto there = state_.open->names->find(name);
        const bool same =
            there != state_.open->names->end() && there->second.tensor == named.tensor;
        if (!same) named.holding->give_back();
      }
    }
    const auto before = state_.open->names;
    auto next = state_.attempt_over(version, state_.open->sequence);
    flight = freezer_.launch(std::move(version), std::move(next));
    update_handles(*before, *state_.open->names);
  }
  return sealer_.seal(std::move(*flight));
}

}  // namespace tensorshelf
