// A mapped medium in memory, of which nothing is there before it is written, and one view can meet
// SIGBUS, as where a page of a file cannot be had for a moment. Reads never do.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include <tensorshelf/medium.hpp>

#include "base/fault_guard.hpp"

namespace tensorshelf::testing {

class FadingMedium final : public Medium {
 public:
  // The view that is lost is number `*countdown` from when that is set, from 1.
  explicit FadingMedium(std::uint64_t size_bytes, std::shared_ptr<unsigned> countdown = {})
      : size_bytes_(size_bytes),
        bytes_(map(size_bytes, -1)),
        countdown_(std::move(countdown)),
        empty_(::memfd_create("fading", 0)),
        gone_(map(kChunkBytes, empty_)) {
    arm_fault_guard();
  }
  ~FadingMedium() override {
    ::munmap(gone_, kChunkBytes);
    ::close(empty_);
    ::munmap(bytes_, size_bytes_);
  }
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    std::memcpy(bytes_ + at, bytes.data(), bytes.size());
    return {0, XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed)};
  }
  void wait(const Ticket& /*ticket*/) override {}
  void barrier() override {}
  void store_word(std::uint64_t at, std::uint64_t word) override {
    std::memcpy(bytes_ + at, &word, sizeof word);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), bytes_ + at, bytes.size());
  }
  std::span<const std::byte> view(const Extent& extent) override {
    const bool lost = countdown_ && *countdown_ > 0 && --*countdown_ == 0;
    return {lost ? gone_ : bytes_ + extent.at, extent.size_bytes};
  }
  std::uint64_t size() override { return size_bytes_; }
  std::uint64_t reserve(std::uint64_t /*size_bytes*/) override { return size_bytes_; }
  Promises promises() const override {
    return {.medium = "memory", .detail = "a test's", .mapped = true, .notes = {}};
  }

 private:
  static std::byte* map(std::uint64_t size_bytes, int file) {
    const int flags = MAP_PRIVATE | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
    void* const at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no address space for a medium");
    return static_cast<std::byte*>(at);
  }

  std::uint64_t size_bytes_;
  std::byte* bytes_;
  std::shared_ptr<unsigned> countdown_;
  int empty_;        // a file of no bytes
  std::byte* gone_;  // a chunk of it
};

}  // namespace tensorshelf::testing
