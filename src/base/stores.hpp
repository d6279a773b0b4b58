// How a copy stores.
#pragma once

namespace tensorshelf {

enum class Stores {
  cached,     // ordinary stores: the target will be read soon (a DMA buffer)
  streaming,  // non-temporal: around the cache, and not ordered until drain_stores()
};

}  // namespace tensorshelf
