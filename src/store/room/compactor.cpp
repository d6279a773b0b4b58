#include "store/room/compactor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/turn.hpp"
#include "store/io/chunk_io.hpp"
#include "store/media_set/further_media.hpp"
#include "store/state/kept_places.hpp"

namespace tensorshelf {

using Clock = std::chrono::steady_clock;

namespace {

// How much is the shelf's, on all media.
std::uint64_t room_of(State& state) {
  const ClosedGate closed(*state.gate, state.patience);
  state.check_writable();
  std::uint64_t bytes = 0;
  for (const unsigned medium : media_of(state)) bytes += state.heap->capacity_bytes(medium);
  return bytes;
}

}  // namespace

std::vector<unsigned> media_of(const State& state) {
  std::vector<unsigned> media = {0};
  for (const AttachedMedium& each : state.further->attached().all()) {
    if (!each.mirrors) media.push_back(each.index);
  }
  return media;
}

// Until it goes, what is taken is taken in front of the goals.
class Compactor::Fences {
 public:
  explicit Fences(const State& state) : media_(media_of(state)), heap_(state.heap) {
    goals.fill(0);
  }
  ~Fences() {
    for (const unsigned medium : media_) heap_->drop_fence(medium);
  }
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // Anew: what was given back meanwhile lets them come down.
  void set() {
    for (const unsigned medium : media_) goals[medium] = heap_->fence(medium);
  }

  Goals goals;

 private:
  const std::vector<unsigned> media_;
  const std::shared_ptr<Heap> heap_;  // close() takes it away
};

CompactReport Compactor::run(std::chrono::duration<double> patience) {
  if (!(patience.count() >= 0)) {
    throw Error(Errc::bad_argument, fmt::format("a patience of {} seconds", patience.count()),
                "Use 0 or more seconds.");
  }
  state_.check_writable();
  refuse_inside(state_, "compact() was called");
  const QueueScope one(one_, *state_.waiters, state_.patience);
  patience_ = patience;
  report_ = {};
  report_.bytes_before = room_of(state_);
  begin();
  move_all();
  cut();
  report_.bytes_after = room_of(state_);
  report_.version = state_.version;
  return std::move(report_);
}

void Compactor::begin() {
  const ClosedGate closed(*state_.gate, state_.patience);
  state_.check_writable();
  state_.check_not_abandoned();
  {
    const std::lock_guard lock(state_.structure);
    if (state_.versions.undecided()) state_.throw_unresolved("nothing can be moved");
  }
  began_ = state_.newest()->number();
  alone_ = !state_.open->changed();
}

// Until all lies in front, or nothing moves any more although every version from before the last
// move is gone, or is held on to.
void Compactor::move_all() {
  std::optional<Fences> fences;
  const std::uint64_t slots = state_.opened.slot_count;
  for (std::uint64_t changed = began_, assigned = began_;;) {
    {
      const ClosedGate closed(*state_.gate, state_.patience);
      state_.check_writable();
      if (!fences) fences.emplace(state_);
      fences->set();
    }
    // What somebody assigned last is cold so many versions later; who never rests does not count.
    const std::uint64_t now = state_.version;
    const bool last =
        now - changed > kRestless * slots || now - std::max(changed, assigned) > slots;
    const bool moved = lower(fences->goals, last);
    const bool copied = carry(fences->goals);
    if (!moved && !copied && (last || lies_well(fences->goals))) return;
    const bool ours = commit_next();
    if (moved || copied) changed = state_.version;
    if (!ours) assigned = state_.version;
  }
}

// Whether nothing lies behind the goals, nor will come down when an older version goes.
bool Compactor::lies_well(const Goals& goals) const {
  const ClosedGate closed(*state_.gate, state_.patience);
  const auto lock = state_.lock_usable();
  const auto same = [&](const auto& version) { return version->names == state_.open->names; };
  const auto media = media_of(state_);
  return std::ranges::all_of(state_.versions.retained, same) &&
         std::ranges::all_of(state_.versions.in_flight, same) &&
         std::ranges::all_of(media, [&](unsigned medium) {
           return state_.heap->taken_end(medium) <= goals[medium];
         });
}

// ---- values that nobody assigns -----------------------------------------------------------------

// Whether a part of it was not assigned since this began, or for as many versions as there can be:
// nobody moves that by assigning it. (carry() asks when whoever commits has had the time to.)
bool Compactor::is_cold(StoredTensor& tensor) const {
  const auto lock = state_.lock_usable();
  const Version& newest = *state_.versions.retained.back();
  if (!has(newest, tensor)) return false;
  for (std::uint64_t i = 0; i < tensor.layout.chunk_count(); ++i) {
    const std::uint64_t written = format::chunk_version(newest.tree.record(tensor.cell(i)));
    if (written <= began_ || written + state_.opened.slot_count <= newest.number()) return true;
  }
  return false;
}

namespace {

// What is damaged stays where it is: a commit could not copy all of a tensor that is placed whole.
bool is_sound(State& state, StoredTensor& tensor, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t chunk = first; chunk < end; ++chunk) {
    const Use use(state);
    const std::lock_guard lock(tensor.mutex);
    const auto holding = keep_places_of(state, tensor);
    RecordedChunk recorded{tensor, chunk, {}};
    {
      const std::lock_guard structure(state.structure);
      const Version& newest = *state.versions.retained.back();
      if (!has(newest, tensor)) return true;  // it is gone
      recorded.record = newest.tree.record(tensor.cell(chunk));
    }
    if (recorded.verified()) continue;
    if (!chunk_intact(*state.medium, state.seeds, recorded)) return false;
    if (recorded.is_stored()) tensor.set_verified(recorded.slot(), chunk);
  }
  return true;
}

}  // namespace

bool Compactor::carry(const Goals& goals) {
  const std::uint64_t now = state_.version;
  if (!alone_ && now - began_ < state_.opened.slot_count) return false;
  std::uint64_t copied = 0;
  for (const auto& tensor : behind(goals)) {
    if (copied >= kAtOnceBytes) break;
    const std::string name = tensor->name();
    if (std::ranges::find(report_.damaged, name) != report_.damaged.end()) continue;
    if (!is_cold(*tensor)) continue;
    const std::uint64_t chunks = tensor->layout.chunk_count();
    if (!is_sound(state_, *tensor, 0, chunks)) {
      report_.damaged.push_back(name);
      continue;
    }
    for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
      if (copied >= kAtOnceBytes && !tensor->whole()) break;  // else a commit copies the rest
      if (stager_.carry(tensor, chunk, goals)) {
        copied += tensor->chunk_bytes(chunk);
      } else if (!planted(Bug::carried_on_over_rot) &&
                 !is_sound(state_, *tensor, chunk, chunk + 1)) {
        report_.damaged.push_back(name);  // it rotted since it was compared
        break;
      }
    }
  }
  report_.bytes_copied += copied;
  return copied > 0;
}

// ---- commits ------------------------------------------------------------------------------------

// Only where nobody has changed anything: what is half assigned is nobody's to commit but theirs.
bool Compactor::freeze_own(std::optional<Flight>& flight) {
  const Turn turn(state_);
  const ClosedGate closed = freezer_.close_gate();
  state_.check_not_abandoned();
  alone_ = !state_.open->changed();
  if (alone_ || planted(Bug::compacted_along)) flight = freezer_.freeze_behind_gate({});
  return flight.has_value();
}

bool Compactor::commit_next() {
  const std::uint64_t before = state_.version;
  const auto begin = Clock::now();
  while (state_.version == before) {
    std::optional<Flight> flight;
    if (freeze_own(flight)) {
      sealer_.seal(std::move(*flight));
      return true;
    }
    if (Clock::now() - begin >= patience_) {
      throw Error(
          Errc::uncommitted,
          fmt::format("{} has changes that are not committed, and nobody has committed them "
                      "for {} seconds: compact() waits for that",
                      state_.path, patience_.count()),
          "persist() or discard() them. It moves what it can beside a thread that persists, "
          "and by itself where nothing is uncommitted.");
    }
    state_.patience.pause(kPause);
  }
  return false;
}

}  // namespace tensorshelf
