// A file on any file system or a raw block device, through io_uring and O_DIRECT, each falling back
// where a probing write shows that it is refused. Tests put a seam between it and the system.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "media/block/backend.hpp"
#include "media/block/probe.hpp"
#include "media/file.hpp"

namespace tensorshelf {

// Errc::unsupported for a DevDAX device. `note`, where there is one, says how it came to be chosen,
// and is one of its promises' notes.
std::unique_ptr<Medium> make_block_medium(std::shared_ptr<ShelfFile> file,
                                          const OpenOptions& options, std::string note = {});

struct BlockSeam {
  ProbeCalls probe = real_probe_calls();
  // Given the real backend, returns what is used in its place.
  std::function<std::unique_ptr<BlockBackend>(std::unique_ptr<BlockBackend>)> wrap;
  std::string note = {};  // as the other make_block_medium() takes it
};

std::unique_ptr<Medium> make_block_medium(std::shared_ptr<ShelfFile> file,
                                          const OpenOptions& options, const BlockSeam& seam);

}  // namespace tensorshelf
