// Plain memory as a medium, for tests. It reserves its whole range of addresses at the start and
// opens it page by page, so views stay put while it grows.
#include "media/memory/medium.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/copy_hash.hpp"

namespace tensorshelf {

namespace {

class MemoryMedium final : public Medium {
 public:
  MemoryMedium(std::uint64_t size_bytes, std::uint64_t max_size_bytes)
      : max_size_(
            std::max(round_up(size_bytes, kPageBytes), max_size_bytes / kPageBytes * kPageBytes)),
        addresses_bytes_(std::max(max_size_, kPageBytes)) {
    void* at = ::mmap(nullptr, addresses_bytes_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      throw Error(Errc::full, fmt::format("no {} bytes of addresses for memory", addresses_bytes_),
                  "give a smaller max_size_bytes", errno);
    }
    base_ = static_cast<std::byte*>(at);
    try {
      reserve(size_bytes);
    } catch (...) {
      ::munmap(base_, addresses_bytes_);
      throw;
    }
  }

  MemoryMedium(const MemoryMedium&) = delete;
  MemoryMedium& operator=(const MemoryMedium&) = delete;
  ~MemoryMedium() override { ::munmap(base_, addresses_bytes_); }

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    const std::uint64_t checksum = copy_and_hash(base_ + at, bytes, seed, Stores::streaming);
    drain_stores();  // I7: no other thread's fence drains these.
    return {sequence_.fetch_add(1, std::memory_order_relaxed) + 1, checksum};
  }

  void wait(const Ticket&) override {}  // write() has taken the bytes

  void barrier() override { drain_stores(); }  // I7: that of the committing thread

  void store_word(std::uint64_t at, std::uint64_t word) override {
    auto* target = reinterpret_cast<std::uint64_t*>(base_ + at);
    std::atomic_ref(*target).store(word, std::memory_order_release);  // I4: one store
  }

  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (!bytes.empty()) std::memcpy(bytes.data(), base_ + at, bytes.size());
  }

  std::span<const std::byte> view(const Extent& extent) override {
    return {base_ + extent.at, extent.size_bytes};
  }

  std::uint64_t size() override { return size_; }

  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (size_bytes <= size_) return size_;
    if (size_bytes > max_size_) {
      throw Error(
          Errc::full,
          fmt::format("memory is full: {} bytes asked, the cap is {}", size_bytes, max_size_),
          "raise the cap, or erase tensors");
    }
    const std::uint64_t wanted = round_up(size_bytes, kPageBytes);
    if (::mprotect(base_ + size_, wanted - size_, PROT_READ | PROT_WRITE) != 0) {
      throw Error(Errc::full, fmt::format("the system gives no {} bytes of memory", wanted),
                  "free memory, or erase tensors", errno);
    }
    return size_ = wanted;
  }

  std::uint64_t shrink(std::uint64_t size_bytes) override {
    TENSORSHELF_ASSERT(size_bytes > 0 && size_bytes % kPageBytes == 0 && size_bytes <= size_);
    std::byte* const end = base_ + size_bytes;
    const std::uint64_t rest = size_ - size_bytes;
    if (rest == 0) return size_;
    if (::mprotect(end, rest, PROT_NONE) != 0) refuse_shrink(errno);
    if (::madvise(end, rest, MADV_DONTNEED) != 0) {  // it is locked, say
      const int error = errno;
      const bool back = ::mprotect(end, rest, PROT_READ | PROT_WRITE) == 0;
      TENSORSHELF_ASSERT(back);
      refuse_shrink(error);
    }
    return size_ = size_bytes;
  }

  Promises promises() const override {
    return {.medium = "memory",
            .detail = "anonymous memory",
            .survives = Survives::nothing,
            .mapped = true,
            .needs_flush = false,
            .volatile_cache = false,
            .atomic_bytes = 8,
            .notes = {"nothing outlives the process; open a path to keep tensors"}};
  }

 private:
  [[noreturn]] static void refuse_shrink(int error) {
    throw Error(Errc::io, "the system does not take memory back",
                "Unlock it (munlockall), or raise vm.max_map_count; all goes on as before.", error);
  }

  const std::uint64_t max_size_;  // in whole pages
  const std::uint64_t addresses_bytes_;
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
  std::atomic<std::uint64_t> sequence_ = 0;
};

}  // namespace

std::unique_ptr<Medium> make_memory_medium(std::uint64_t size_bytes, std::uint64_t max_size_bytes) {
  return std::make_unique<MemoryMedium>(size_bytes, max_size_bytes);
}

}  // namespace tensorshelf
