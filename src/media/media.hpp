// Every medium there is, and how one is chosen. What a new one touches, CONTRIBUTING.md says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "media/file.hpp"

namespace tensorshelf {

struct MediumCounters {
  std::uint64_t writes = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t words = 0;
  std::uint64_t barriers = 0;
  std::uint64_t reads = 0;
  std::uint64_t bytes_read = 0;
};

// What every medium gets around it: bounds and alignment checks (asserts: they are our mistakes,
// but a read or view beyond the end throws Errc::corrupt, for it comes from a hostile file),
// counters, and the poisoned state of I8. Thread-safe as Medium is.
class GuardedMedium final : public Medium {
 public:
  explicit GuardedMedium(std::unique_ptr<Medium> inner);
  ~GuardedMedium() override;

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override;
  void wait(const Ticket& ticket) override;
  void barrier() override;
  void store_word(std::uint64_t at, std::uint64_t word) override;
  void read(std::uint64_t at, std::span<std::byte> bytes) override;
  void look(std::uint64_t at, std::span<std::byte> bytes) override;
  std::span<const std::byte> view(const Extent& extent) override;
  std::uint64_t size() override;
  std::uint64_t reserve(std::uint64_t size_bytes) override;
  Promises promises() const override;

  MediumCounters counters() const;
  bool failed() const;  // poisoned: what only reads still works

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Plain memory: survives nothing. Grows in place up to max_size_bytes of reserved addresses.
std::unique_ptr<Medium> make_memory_medium(std::uint64_t size_bytes, std::uint64_t max_size_bytes);

// The media on files and devices are made alike. `note`, where there is one, says how this one came
// to be chosen, and is one of its promises' notes.

// Mapped persistent memory through libpmem2: FS-DAX file, DevDAX device, or a file on tmpfs (which
// survives a process crash only, and says so). Errc::not_dax for any other file.
std::unique_ptr<Medium> make_pmem_medium(std::shared_ptr<ShelfFile> file,
                                         const OpenOptions& options, std::string note = {});
bool pmem_supported();  // in this build

// A file on any file system or a raw block device, through io_uring and O_DIRECT, each falling
// back where a probing write shows that it is refused.
std::unique_ptr<Medium> make_block_medium(std::shared_ptr<ShelfFile> file,
                                          const OpenOptions& options, std::string note = {});
bool io_uring_supported();  // in this build

// Chooses: DevDAX device, FS-DAX or tmpfs file -> pmem; everything else -> block. An explicit tier
// is obeyed or refused (Errc::not_dax, Errc::unsupported), never quietly changed. A pmem-capable
// path that has to go to block (build without libpmem2) says so in promises().notes.
std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options);

}  // namespace tensorshelf
