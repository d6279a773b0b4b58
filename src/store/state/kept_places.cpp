#include "store/state/kept_places.hpp"

#include <mutex>

#include "base/planted.hpp"

namespace tensorshelf {

// What holds a tensor's places. The last version that had a tensor that is gone in its last places
// may be gone as well, and ones that somebody keeps have it in those of before. The newest of these
// shares every place that an older one names.
std::shared_ptr<Holding> keep_places_of(const State& state, const StoredTensor& tensor) {
  if (planted(Bug::read_holds_nothing)) return nullptr;
  auto newest = tensor.holding.lock();
  if (newest || planted(Bug::newest_places_held)) return newest;
  const std::lock_guard lock(state.structure);
  const auto first = state.versions.retained.begin();
  for (auto version = state.versions.retained.end(); version != first;) {
    const Named* const named = named_in(*(*--version)->names, tensor);
    if (planted(Bug::oldest_places_held) && version != first) continue;
    if (named != nullptr) return named->holding;
  }
  return nullptr;
}

}  // namespace tensorshelf
