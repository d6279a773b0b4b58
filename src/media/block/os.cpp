#include "media/block/os.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <tensorshelf/extent.hpp>

#include "base/huge_pages.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"

namespace tensorshelf {

std::int64_t pwrite_once(int fd, std::uint64_t at, std::span<const std::byte> bytes) {
  for (;;) {
    const auto done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done >= 0) return done;
    if (errno != EINTR) return -errno;
  }
}

std::int64_t pread_once(int fd, std::uint64_t at, std::span<std::byte> bytes) {
  for (;;) {
    const auto done = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done >= 0) return done;
    if (errno != EINTR) return -errno;
  }
}

// I8: never again after it failed.
int sync_once(int fd) { return ::fdatasync(fd) == 0 ? 0 : -errno; }

PageMemory::PageMemory(std::uint64_t size_bytes)
    : mapped_bytes_(round_up(size_bytes, kPageBytes) +
                    (size_bytes < kHugePageBytes ? 0 : kHugePageBytes)),
      process_(::getpid()) {
  mapping_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    throw Error(Errc::io, fmt::format("no memory for staging buffers of {}", size_text(size_bytes)),
                "lower the block tuning's buffer_bytes or queue_depth, or raise `ulimit -v`",
                errno);
  }
  void* start = mapping_;
  if (size_bytes >= kHugePageBytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    start = static_cast<std::byte*>(mapping_) + (round_up(address, kHugePageBytes) - address);
  }
  // A child that shared the pages would make one side's writes go to copies, while the device reads
  // the pages that were registered. A kernel without it leaves what every fork() has.
  ::madvise(mapping_, mapped_bytes_, MADV_DONTFORK);
  bytes_ = {static_cast<std::byte*>(start), size_bytes};
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      bytes_(std::exchange(other.bytes_, {})),
      process_(other.process_) {}

PageMemory::~PageMemory() {
  const bool ours = ::getpid() == process_ || planted(Bug::child_unmaps);
  if (mapping_ != nullptr && ours) ::munmap(mapping_, mapped_bytes_);
}

Error transfer_error(const std::filesystem::path& path, const FailedTransfer& failed) {
  const bool short_count = failed.result >= 0;
  const int os_error = short_count ? 0 : static_cast<int>(-failed.result);
  const std::string cause = short_count ? fmt::format("only {} of {} bytes went through",
                                                      failed.result, failed.size_bytes)
                                        : std::generic_category().message(os_error);
  const std::string place = failed.size_bytes == 0
                                ? std::string()
                                : fmt::format(" of {} bytes at {}", failed.size_bytes, failed.at);
  return Error(Errc::io,
               fmt::format("{}: {}{} failed: {}", path.string(), failed.verb, place, cause),
               "look for the drive's errors (dmesg, smartctl, a full thin pool), then reopen the "
               "shelf: the last committed version is not affected by a failed write",
               os_error);
}

}  // namespace tensorshelf
