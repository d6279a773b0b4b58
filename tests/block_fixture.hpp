// What the tests of the block medium share: a folder on the disk under test, a backend that counts
// and injects, and one that reorders.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "catch.hpp"
#include "media/block/medium.hpp"
#include "media/block/os.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

namespace tensorshelf::testing {

// A folder in the working directory (which is on a disk where /tmp may be memory).
class Folder {
 public:
  explicit Folder(const std::filesystem::path& parent = std::filesystem::current_path())
      : path_(scratch::make_directory(parent)) {}
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path file(const std::string& name = "a.shelf") const { return path_ / name; }

  std::shared_ptr<ShelfFile> create(const std::string& name = "a.shelf") const {
    auto made = std::make_shared<ShelfFile>(ShelfFile::create(file(name)));
    made->publish(false);
    return made;
  }

 private:
  std::filesystem::path path_;
};

// Ends the program where a test would wait for ever.
struct Alarm {
  Alarm() { ::alarm(300); }
  ~Alarm() { ::alarm(0); }
};

// What a forked child does that takes memory where its parent's was, and then destroys what it
// inherited: 0 where its own is still there, 2 where the kernel has it inherit all.
inline int memory_of_a_child(std::unique_ptr<PageMemory> inherited) {
  const auto there = inherited->bytes();
  void* mine = ::mmap(there.data(), there.size(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mine == MAP_FAILED) return 2;
  inherited.reset();
  unsigned char resident = 0;
  return ::mincore(mine, kPageBytes, &resident) == 0 ? 0 : 1;
}

// The file's bytes as any other program sees them.
inline Bytes bytes_on_disk(const std::filesystem::path& path) {
  Bytes bytes(std::filesystem::file_size(path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::pread(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  ::close(fd);
  return bytes;
}

// Everything that reached the backend, and what to do to it. Written by the threads that write,
// read by the test when they are done.
struct Tap {
  struct Range {
    std::uint64_t at;
    std::uint64_t size_bytes;
  };
  std::vector<Range> submitted;
  unsigned submissions = 0;  // of one write or several at once
  unsigned completions = 0;
  unsigned syncs = 0;

  // What the n-th (from 0) submit is cut down to, in bytes; what the n-th completion says instead
  // of `real`; the result of the next fdatasync and block write. Empty: the real thing.
  std::function<std::uint64_t(unsigned n, std::uint64_t size_bytes)> cut;
  std::function<std::int64_t(unsigned n, std::int64_t real)> complete;
  std::function<int()> refuse_submit;
  std::function<int(int real)> sync;
  std::function<std::int64_t(std::int64_t real)> write_now;
  std::function<std::int64_t(std::uint64_t at, std::int64_t real)> read_now;

  // Whether the page cache is used at all, with what went through it; and what a write there says.
  bool caches = false;
  std::vector<Range> cached;
  unsigned looks = 0;
  std::function<std::int64_t(unsigned n, std::int64_t real)> write_cached;
};

class TappedBackend final : public BlockBackend {
 public:
  TappedBackend(std::unique_ptr<BlockBackend> inner, std::shared_ptr<Tap> tap)
      : inner_(std::move(inner)), tap_(std::move(tap)) {}

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    const std::lock_guard lock(mutex_);
    ++tap_->submissions;
    std::vector<DeviceWrite> real;
    int refused = 0;
    for (const DeviceWrite& write : writes) {
      if (tap_->refuse_submit) refused = tap_->refuse_submit();
      if (refused < 0) break;
      const auto n = static_cast<unsigned>(tap_->submitted.size());
      tap_->submitted.push_back({write.at, write.bytes.size()});
      real.push_back(write);
      if (tap_->cut) real.back().bytes = write.bytes.first(tap_->cut(n, write.bytes.size()));
    }
    if (!real.empty() || refused == 0) {
      const DeviceBegun begun = inner_->submit(real);
      if (begun.error < 0) return begun;
    }
    return {real.size(), refused};
  }
  std::optional<DeviceCompletion> complete(bool block) override {
    auto completion = inner_->complete(block);
    if (!completion) return completion;
    const std::lock_guard lock(mutex_);
    const unsigned n = tap_->completions++;
    if (tap_->complete) completion->result = tap_->complete(n, completion->result);
    return completion;
  }
  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    const std::int64_t real = inner_->write_now(at, bytes);
    return tap_->write_now ? tap_->write_now(real) : real;
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    const std::int64_t real = inner_->read_now(at, bytes);
    return tap_->read_now ? tap_->read_now(at, real) : real;
  }
  bool caches() const override { return tap_->caches && inner_->caches(); }
  std::int64_t write_cached(std::uint64_t at, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    const auto n = static_cast<unsigned>(tap_->cached.size());
    tap_->cached.push_back({at, bytes.size()});
    const std::int64_t real = inner_->write_cached(at, bytes);
    return tap_->write_cached ? tap_->write_cached(n, real) : real;
  }
  std::int64_t read_cached(std::uint64_t at, std::span<std::byte> bytes) override {
    ++tap_->looks;
    return inner_->read_cached(at, bytes);
  }
  int sync() override {
    ++tap_->syncs;
    const int real = inner_->sync();
    return tap_->sync ? tap_->sync(real) : real;
  }
  std::vector<std::string> notes() const override { return inner_->notes(); }
  void abandon() noexcept override { inner_->abandon(); }

 private:
  std::unique_ptr<BlockBackend> inner_;
  std::shared_ptr<Tap> tap_;
  std::mutex mutex_;
};

// A backend over another one: what goes at once goes on to it, and what is begun is for whoever
// derives from this.
class ForwardingBackend : public BlockBackend {
 public:
  explicit ForwardingBackend(std::unique_ptr<BlockBackend> inner) : inner_(std::move(inner)) {}

  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    return inner_->write_now(at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    return inner_->read_now(at, bytes);
  }
  int sync() override { return inner_->sync(); }

 private:
  std::unique_ptr<BlockBackend> inner_;
};

// Performs what was begun newest first: legal for a device, and fatal to a medium that leaves the
// order of two writes to the same page to it.
class NewestFirstBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    const std::lock_guard lock(mutex_);
    begun_.insert(begun_.end(), writes.begin(), writes.end());
    return {writes.size(), 0};
  }
  std::optional<DeviceCompletion> complete(bool block) override {
    if (!block) return {};
    DeviceWrite write;
    {
      const std::lock_guard lock(mutex_);
      write = begun_.back();
      begun_.pop_back();
    }
    return DeviceCompletion{write.buffer, write_now(write.at, write.bytes)};
  }

 private:
  std::mutex mutex_;
  std::vector<DeviceWrite> begun_;
};

inline BlockSeam tapped(std::shared_ptr<Tap> tap) {
  BlockSeam seam;
  seam.wrap = [tap](std::unique_ptr<BlockBackend> inner) {
    return std::make_unique<TappedBackend>(std::move(inner), tap);
  };
  return seam;
}

// TENSORSHELF_SEED repeats a run.
inline std::uint64_t fresh_seed() {
  const char* const given = std::getenv("TENSORSHELF_SEED");
  return given != nullptr ? std::stoull(given) : std::random_device{}() % 1'000'000'000;
}

inline bool has_note(const Medium& medium, const std::string& words) {
  for (const std::string& note : medium.promises().notes) {
    if (note.find(words) != std::string::npos) return true;
  }
  return false;
}

inline Bytes read_back(Medium& medium, std::uint64_t at, std::uint64_t size_bytes) {
  Bytes bytes(size_bytes);
  medium.read(at, bytes);
  return bytes;
}

}  // namespace tensorshelf::testing
