// An attempt that is durable, and neither committed nor abandoned (I14).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <tensorshelf/report.hpp>

#include "store/manifest/attempt.hpp"
#include "store/recovery/find_damage.hpp"
#include "store/recovery/load_root.hpp"

namespace tensorshelf {

// An attempt that was found prepared (I14).
struct FoundPrepared {
  Prepared info;
  std::shared_ptr<Version> version;    // none where it cannot be loaded: see `damage`
  std::optional<DamagedChunk> damage;  // of a chunk, or of what names it: it cannot be committed
};

// One that waits for its decision, whoever prepared it.
struct PreparedAttempt : FoundPrepared {
  std::uint64_t metadata_bytes = 0;
  bool decided = false;  // it is being committed
};

}  // namespace tensorshelf
