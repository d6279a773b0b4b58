// What the block medium needs of the operating system, and nothing more: begin a write, learn how
// it ended, write or read at once, make durable. One implementation per way to write, and one in
// the tests that makes the Nth completion fail.
//
// Results are as the kernel gives them: bytes done, or a negative errno. Judging them (short
// writes, retries, errors that must not be lost) is StagingBuffers' work, so that it is done once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tensorshelf {

struct DeviceWrite {
  std::uint64_t at = 0;
  std::span<const std::byte> bytes;  // in the buffer, or lent; stays put until it completes
  unsigned buffer = 0;               // whose turn it is; comes back with the completion
};

struct DeviceCompletion {
  unsigned buffer = 0;
  std::int64_t result = 0;

  // The backend itself failed: no write's end can be learned any more.
  static constexpr unsigned kBroken = ~0u;
};

// How many of several writes were begun, from the first on; a negative errno where not all were.
struct DeviceBegun {
  std::size_t count = 0;
  int error = 0;
};

// Thread-safety: one thread at a time in submit(), one in complete(); the two may overlap each
// other and all else.
class BlockBackend {
 public:
  virtual ~BlockBackend() = default;

  // Begins writes, in one call of the kernel where it can, and in any order. None was begun if this
  // throws.
  [[nodiscard]] virtual DeviceBegun submit(std::span<const DeviceWrite> writes) = 0;

  // The end of one write that was begun. block: waits for it (there is one); else empty at once
  // where none has ended. Throws nothing.
  virtual std::optional<DeviceCompletion> complete(bool block) = 0;

  [[nodiscard]] virtual std::int64_t write_now(std::uint64_t at,
                                               std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) = 0;

  // Through the kernel's page cache, where caches(): from and to it at once, and a write is on its
  // way to the device by sync() at the latest.
  virtual bool caches() const { return false; }
  [[nodiscard]] virtual std::int64_t write_cached(std::uint64_t at,
                                                  std::span<const std::byte> bytes) {
    return write_now(at, bytes);
  }
  [[nodiscard]] virtual std::int64_t read_cached(std::uint64_t at, std::span<std::byte> bytes) {
    return read_now(at, bytes);
  }

  // fdatasync: 0 or a negative errno. Never called again after it failed.
  [[nodiscard]] virtual int sync() = 0;

  // Fallbacks taken since it was made, a sentence each. Not while submit() runs.
  virtual std::vector<std::string> notes() const { return {}; }

  // In a forked child: gives up what was inherited, touching nothing that the parent uses.
  virtual void abandon() noexcept {}
};

// The memory that every write lies in which is not lent: buffer i is
// [i * buffer_bytes, + buffer_bytes).
struct StagingShape {
  std::span<std::byte> memory;
  std::uint64_t buffer_bytes = 0;
  unsigned buffers = 0;
};

// Writes with pwrite, in the thread that asks for the completion: no thread of its own.
std::unique_ptr<BlockBackend> make_pwrite_backend(int fd, const StagingShape& shape);

// Writes through io_uring, with the file and large buffers registered. Null, with the reason and
// the remedy added to `notes`, where the kernel or this build refuses.
std::unique_ptr<BlockBackend> make_uring_backend(int fd, const StagingShape& shape,
                                                 std::vector<std::string>& notes);
bool io_uring_supported();  // in this build

// Reads, beside whoever writes the file: through io_uring where that is to be had, which holds up
// no writer, else with pread. For a file that is open to be read around the page cache.
std::unique_ptr<BlockBackend> make_read_backend(int fd);

}  // namespace tensorshelf
