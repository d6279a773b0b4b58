// Where a tensor lies stays its own while it is read.
#pragma once

#include <memory>

#include "store/state/state.hpp"

namespace tensorshelf {

// Before its records are looked up: the version that has an erased tensor may be dropped while it
// is read, and what it owned be another's (I3). The shelf is in use, and the tensor's mutex held.
std::shared_ptr<Holding> keep_places_of(const State& state, const StoredTensor& tensor);

}  // namespace tensorshelf
