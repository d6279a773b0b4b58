// The block medium, with a seam between it and the operating system for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "media/block/backend.hpp"
#include "media/block/probe.hpp"
#include "media/media.hpp"

namespace tensorshelf {

struct BlockSeam {
  ProbeCalls probe = real_probe_calls();
  // Given the real backend, returns what is used in its place.
  std::function<std::unique_ptr<BlockBackend>(std::unique_ptr<BlockBackend>)> wrap;
  std::string note = {};  // as make_block_medium() in media.hpp takes it
};

std::unique_ptr<Medium> make_block_medium(std::shared_ptr<ShelfFile> file,
                                          const OpenOptions& options, const BlockSeam& seam);

}  // namespace tensorshelf
