// Reads of any alignment through O_DIRECT: what is aligned goes straight into the caller's bytes,
// the rest through page-aligned bounce buffers, kept for reuse. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <vector>

#include "media/block/backend.hpp"
#include "media/block/os.hpp"

namespace tensorshelf {

class BlockReader {
 public:
  BlockReader(BlockBackend& backend, std::filesystem::path path);

  // Throws Errc::io with the device's errno, or Errc::truncated where the file ends before.
  void read(std::uint64_t at, std::span<std::byte> bytes);

 private:
  void read_pages(std::uint64_t at, std::span<std::byte> pages);
  void finish_page(std::uint64_t at, std::span<std::byte> page, std::uint64_t done);
  struct Bounce {
    PageMemory memory;
    bool huge = false;  // made huge pages, as far as the kernel does that
  };

  Bounce take_bounce();
  void give_bounce(Bounce bounce);

  BlockBackend& backend_;
  const std::filesystem::path path_;
  std::mutex mutex_;
  std::vector<Bounce> bounces_;
};

}  // namespace tensorshelf
