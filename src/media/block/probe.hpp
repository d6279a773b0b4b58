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
  bool in_memory = false;            // a tmpfs, a RAM disk
  bool volatile_cache = true;        // taken as given unless the kernel knows better
  bool one_machine = false;          // one kernel alone has the file system
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

// Sets O_DIRECT on the descriptor when setting it and reading work, and leaves it off when they do
// not; returns an empty text, or why they do not work. Writes nothing: whether this is a shelf,
// nobody has looked yet.
std::string probe_direct(const ShelfFile& file, const ProbeCalls& calls);

// The same for writing, asked before the first write, of the page at `at` that this write is for:
// it is about to be replaced, so a power loss in between can damage nothing that anybody keeps.
// Changes no byte: what is there is written back, and the file is as long afterwards as before.
// Nothing is written to a device: another program's write could fall between.
std::string probe_direct_write(const ShelfFile& file, std::uint64_t at, const ProbeCalls& calls);

}  // namespace tensorshelf
