// What the file or device under a block medium really does, found by looking and by trying: some
// file systems accept O_DIRECT when it is set and refuse the write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "media/file.hpp"

namespace tensorshelf {

struct BlockFacts {
  std::string place;  // "file on ext4", "block device"
  Survives survives = Survives::power_loss;
  bool volatile_cache = true;        // taken as given unless the kernel knows better
  std::uint64_t sector_bytes = 512;  // the smallest write of the device, and its atomic unit
  std::vector<std::string> notes;
};
BlockFacts probe_facts(int fd, FileKind kind);

// The calls a probe makes; tests put refusals in place of them.
struct ProbeCalls {
  std::function<int(int fd, bool direct)> set_direct;  // 0 or a negative errno
  std::function<std::int64_t(int fd, std::uint64_t at, std::span<std::byte>)> read;
  std::function<std::int64_t(int fd, std::uint64_t at, std::span<const std::byte>)> write;
};
ProbeCalls real_probe_calls();

// Sets O_DIRECT on the descriptor when it works, and leaves it off when it does not; returns an
// empty text, or why it does not work. Changes no byte: a file's first page is read and written
// back, an empty file is empty again afterwards. Nothing is written to a device (another
// program's write could fall between) or through a read-only descriptor.
std::string probe_direct(const ShelfFile& file, const ProbeCalls& calls);

}  // namespace tensorshelf
