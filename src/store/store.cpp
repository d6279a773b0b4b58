#include "store/store.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/commit/turn.hpp"

namespace tensorshelf {
namespace {

constexpr const char* kOpenAgain = "Open the shelf again: its last version is safe.";

}  // namespace

Store::Store(const ShelfMedia& media, const OpenOptions& options, std::string path)
    : state_(media, options, std::move(path)),
      reader_(state_),
      stager_(state_, reader_),
      tensors_(state_, stager_),
      freezer_(state_, stager_),
      sealer_(state_),
      launcher_(state_, freezer_, sealer_),
      decisions_(state_, freezer_, sealer_),
      transactions_(state_, freezer_, sealer_, launcher_, decisions_),
      catalog_(state_),
      follower_(state_),
      compactor_(state_, stager_, freezer_, sealer_),
      rollback_(state_, reader_, follower_, freezer_, sealer_),
      healing_(state_, reader_, stager_, freezer_, sealer_) {}

Store::~Store() { let_go(); }

// Whoever hears of it or not, the shelf stays at its last durable version.
void Store::let_go() noexcept {
  const auto tell = [this](const Error& error) {
    if (planted(Bug::let_go_in_silence)) return;
    if (state_.asked.on_unheard) return state_.asked.on_unheard(error);
    fmt::print(stderr, "tensorshelf: {}: {}. {}\n", code_name(error.code()), error.what(),
               error.remedy());
  };
  try {
    try {
      close();
    } catch (const Error& error) {
      tell(error);
    } catch (const std::exception& error) {  // there was no memory
      tell(Error(Errc::failed, error.what(), kOpenAgain));
    }
  } catch (...) {  // by who was told
  }
}

std::unique_ptr<StoredAssignment> Store::assign(const std::shared_ptr<StoredTensor>& tensor) {
  return std::make_unique<StoredAssignment>(stager_, tensor);
}

std::unique_ptr<StoredAssignment> Store::assign(const NewTensor& made) {
  return std::make_unique<StoredAssignment>(stager_, made);
}

void Store::write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
                  std::uint64_t offset) {
  tensor->prefetch();
  StoredAssignment(stager_, tensor).write_once(bytes, offset);
}

bool Store::has_staged(StoredTensor& tensor, std::uint64_t chunk,
                       std::span<const std::byte> bytes) {
  std::optional<WriterScope> inside;  // who closes or abandons takes the open attempt away
  if (!planted(Bug::compared_outside_gate)) {
    inside.emplace(*state_.gate, state_.patience);
    state_.health.check_usable();
    state_.check_not_abandoned();
  }
  return stager_.has(tensor, chunk, bytes);
}

Commit Store::persist(std::optional<std::uint64_t> step) {
  const auto begin = std::chrono::steady_clock::now();
  state_.check_writable();
  refuse_inside("persist() was called");
  Flight flight;
  {
    const Turn turn(state_);  // not while it is sealed: others may freeze
    flight = freezer_.freeze(step);
  }
  Commit commit = sealer_.seal(std::move(flight));
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  commit.seconds = std::chrono::duration<double>(elapsed).count();
  return commit;
}

std::shared_future<Commit> Store::persist_async(std::optional<std::uint64_t> step) {
  state_.check_writable();
  refuse_inside("persist_async() was called");
  const Turn turn(state_);
  return launcher_.launch(step);
}

void Store::close() {
  if (closed()) return;
  if (state_.health.in_child()) {
    // The committing thread and whoever waits at the gate stayed in the parent: joining the one or
    // destroying the other would never end.
    static_cast<void>(launcher_.take().release());
    static_cast<void>(state_.gate.release());
    static_cast<void>(state_.published.release());
    static_cast<void>(state_.waiters.release());
    state_.health.close();
    return;
  }
  refuse_inside("close() was called");
  std::unique_ptr<Committer> committer;  // whoever closes takes it, behind the gate
  {
    const Patience deaf;  // half a close would be none
    // Waits for writers, and then for commits in flight.
    const ClosedGate closed(*state_.gate, deaf);
    if (state_.begun.saving && !planted(Bug::closed_over_save)) {
      state_.health.keep_lost_save(std::make_exception_ptr(
          Error(Errc::closed, state_.path + " was closed while a save was being staged",
                "Close its pipeline first, which waits for it.")));
    }
    state_.wait_until_quiet(deaf);
    state_.health.close();
    state_.uses.close();  // and for those who read
    committer = launcher_.take();
    std::vector<std::shared_ptr<Version>> gone;
    std::vector<std::shared_ptr<Version>> left;  // prepared: it stays on the medium
    std::shared_ptr<Attempt> open;
    std::lock_guard lock(state_.structure);
    left.swap(state_.versions.in_flight);
    state_.versions.prepared.reset();
    gone.swap(state_.versions.retained);
    open.swap(state_.open);
    state_.heap.reset();
    state_.medium.reset();
  }
  committer.reset();
  state_.health.throw_all_unheard();
}

}  // namespace tensorshelf
