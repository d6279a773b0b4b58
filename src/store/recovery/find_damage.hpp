// A version whose chunks are checked before it is taken for what the shelf holds.
#pragma once

#include <optional>
#include <string>

#include <tensorshelf/options.hpp>

#include "format/format.hpp"
#include "media/media.hpp"
#include "store/manifest/attempt.hpp"

namespace tensorshelf {

// The first damaged chunk of a version, in words; with an errno where it could not be read, which
// may pass.
struct DamagedChunk {
  std::string text;
  int os_error = 0;
};

// Reads every chunk that the version names, but for those that `over` names as well. What a mirror
// has is read from there, and is no damage. Takes each tensor's lock, chunk by chunk.
std::optional<DamagedChunk> find_damage(GuardedMedium& medium, const format::Seeds& seeds,
                                        const Version& version, const Progress& progress,
                                        const Version* over = nullptr);

}  // namespace tensorshelf
