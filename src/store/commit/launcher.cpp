#include "store/commit/launcher.hpp"

#include <exception>
#include <utility>

namespace tensorshelf {

// All that needs memory comes before the attempt is frozen: one that nobody seals would keep all
// that follow it from their turn. Who has the turn posts, so that they come to the committing
// thread in their order.
std::shared_future<Commit> Launcher::launch(std::optional<std::uint64_t> step) {
  const auto flight = std::make_shared<Flight>();
  const auto task = std::make_shared<std::packaged_task<Commit()>>([this, flight] {
    try {
      return sealer_.seal(std::move(*flight));
    } catch (...) {
      state_.health.keep_background(std::current_exception());
      throw;
    }
  });
  auto future = task->get_future().share();
  auto work = Committer::prepare([task] { (*task)(); });
  const ClosedGate closed = freezer_.close_gate();
  if (!committer_) committer_ = std::make_unique<Committer>();
  *flight = freezer_.freeze_behind_gate(step);
  state_.begun.saving = false;  // it takes no more from here on
  committer_->post(std::move(work));
  return future;
}

}  // namespace tensorshelf
