// The few system calls of the block medium, with their results as io_uring gives them (bytes or a
// negative errno), its page-aligned memory, and its error texts.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

// One pwrite or pread, repeated only where a signal interrupted it before it began.
[[nodiscard]] std::int64_t pwrite_once(int fd, std::uint64_t at, std::span<const std::byte> bytes);
[[nodiscard]] std::int64_t pread_once(int fd, std::uint64_t at, std::span<std::byte> bytes);
// fdatasync, once: after a failure the kernel may have dropped the pages.
[[nodiscard]] int sync_once(int fd);

// Anonymous memory for O_DIRECT: aligned to 2 MiB so that it can be huge pages, zeroed, given by
// the kernel as it is touched, and not inherited by forked children (whose copy-on-write would
// otherwise fight with writes in flight): there its addresses are free, and soon somebody else's.
class PageMemory {
 public:
  explicit PageMemory(std::uint64_t size_bytes);
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&&) = delete;
  ~PageMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  void* mapping_;
  std::size_t mapped_bytes_;
  std::span<std::byte> bytes_;
  pid_t process_;
};

struct FailedTransfer {
  const char* verb;  // "write", "read", "barrier"
  std::uint64_t at = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t result = 0;  // negative errno, or the bytes that went through
};
Error transfer_error(const std::filesystem::path& path, const FailedTransfer& failed);

}  // namespace tensorshelf
