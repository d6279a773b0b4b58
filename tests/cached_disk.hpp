// A device behind a cache that forgets: what was written is visible at once, to this process and to
// the next, and durable behind a barrier. A barrier that fails leaves its pages visible, clean and
// on no device, as a kernel's page cache does; nothing but writing them again brings them there.
// A page may be unreadable until it is written anew. Threads may share it; what a test asks it to
// call is called without its lock.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

namespace tensorshelf::testing {

struct CachedDisk {
  static constexpr std::uint64_t kSectorBytes = 512;
  enum class Fate { missing, landed, garbage };
  struct Mutex : std::mutex {  // a copy of the disk has its own
    Mutex() = default;
    Mutex(const Mutex&) {}
  };
  struct Dirty {
    bool word = false;  // rewritten with itself but for a word: never garbage
  };

  Mutex mutex;
  std::vector<std::byte> visible;
  std::vector<std::byte> durable;
  std::map<std::uint64_t, Dirty> dirty;           // sectors that a barrier would make durable
  std::map<std::uint64_t, int> unreadable;        // pages, and the errno of reading them
  std::function<bool(std::uint64_t at)> on_read;  // before a read; false: it gives garbage
  unsigned refused = 0;                           // reads of them
  unsigned events = 0;                            // writes, words and barriers so far
  unsigned barriers = 0;
  std::function<bool(unsigned n)> barrier_fails;  // the n-th, from 0
  std::function<bool(unsigned n)> dies;           // the process, at the n-th event
  std::function<Fate()> fate_of_dirty;            // of a sector; none: it did not land

  void write(std::uint64_t at, std::span<const std::byte> bytes, bool word) {
    const std::lock_guard lock(mutex);
    std::memcpy(visible.data() + at, bytes.data(), bytes.size());
    for (std::uint64_t s = at / kSectorBytes; s * kSectorBytes < at + bytes.size(); ++s) {
      Dirty& sector = dirty.try_emplace(s, Dirty{word}).first->second;
      sector.word = sector.word && word;
    }
    for (std::uint64_t p = at / kPageBytes; p * kPageBytes < at + bytes.size(); ++p) {
      unreadable.erase(p * kPageBytes);  // the drive puts it elsewhere
    }
  }

  void land(std::uint64_t sector) {
    std::memcpy(durable.data() + sector * kSectorBytes, visible.data() + sector * kSectorBytes,
                kSectorBytes);
  }

  // What was under way when a flush failed or the power went.
  void lose_dirty() {
    const std::lock_guard lock(mutex);
    for (const auto& [sector, how] : dirty) {
      const Fate fate = fate_of_dirty ? fate_of_dirty() : Fate::missing;
      if (fate == Fate::landed) land(sector);
      if (fate == Fate::garbage && !how.word) {
        std::memset(durable.data() + sector * kSectorBytes, 0xDB, kSectorBytes);
      }
    }
    dirty.clear();
  }
  void lose_power() {
    lose_dirty();
    visible = durable;
  }
  // For its users, and for those after a power loss.
  void become(std::vector<std::byte> image) {
    visible = std::move(image);
    durable = visible;
  }
};

class CachedMedium final : public Medium {
 public:
  explicit CachedMedium(std::shared_ptr<CachedDisk> disk) : disk_(std::move(disk)) {}

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    event();
    disk_->write(at, bytes, false);
    return {++sequence_, XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed)};
  }
  void wait(const Ticket& /*ticket*/) override {}
  void barrier() override {
    event();
    if (const unsigned n = disk_->barriers++; disk_->barrier_fails && disk_->barrier_fails(n)) {
      disk_->lose_dirty();
      throw Error(Errc::io, "the barrier failed", "Open the shelf again.", EIO);
    }
    const std::lock_guard lock(disk_->mutex);
    for (const auto& [sector, how] : disk_->dirty) disk_->land(sector);
    disk_->dirty.clear();
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    event();
    std::vector<std::byte> page(kPageBytes);
    const std::uint64_t page_at = at / kPageBytes * kPageBytes;
    read(page_at, page);
    std::memcpy(page.data() + (at - page_at), &word, sizeof word);
    disk_->write(page_at, page, true);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    check_readable(at, bytes.size());
    // Pages that are read together are not of one moment.
    for (std::size_t done = 0; done < bytes.size(); done += kPageBytes) {
      const auto page = bytes.subspan(done, std::min(kPageBytes, bytes.size() - done));
      const bool good = !disk_->on_read || disk_->on_read(at + done);
      const std::lock_guard lock(disk_->mutex);
      std::memcpy(page.data(), disk_->visible.data() + at + done, page.size());
      if (!good) std::memset(page.data(), 0xDB, page.size());
    }
  }
  std::span<const std::byte> view(const Extent& /*extent*/) override { return {}; }
  std::uint64_t size() override {
    const std::lock_guard lock(disk_->mutex);
    return disk_->visible.size();
  }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    std::unique_lock lock(disk_->mutex);
    if (size_bytes > disk_->visible.size()) {
      lock.unlock();
      event();
      lock.lock();
      disk_->visible.resize(round_up(size_bytes, kPageBytes));
      disk_->durable.resize(disk_->visible.size());
    }
    return disk_->visible.size();
  }
  Promises promises() const override {
    return {.medium = "cached",
            .detail = "a test's",
            .survives = Survives::power_loss,
            .mapped = false,
            .needs_flush = false,
            .volatile_cache = true,
            .atomic_bytes = CachedDisk::kSectorBytes,
            .notes = {}};
  }

 private:
  void check_readable(std::uint64_t at, std::uint64_t size_bytes) {
    const std::lock_guard lock(disk_->mutex);
    for (const auto& [page, error] : disk_->unreadable) {
      if (page >= at + size_bytes || page + kPageBytes <= at) continue;
      ++disk_->refused;
      throw Error(Errc::io,
                  "a read at " + std::to_string(page) + " failed: " + std::strerror(error),
                  "Look for the drive's errors.", error);
    }
  }
  void event() {
    std::unique_lock lock(disk_->mutex);
    const unsigned n = disk_->events++;
    lock.unlock();
    if (disk_->dies && disk_->dies(n)) {
      throw Error(Errc::io, "the process died", "Open the shelf again.", EIO);
    }
  }

  std::shared_ptr<CachedDisk> disk_;
  std::uint64_t sequence_ = 0;
};

}  // namespace tensorshelf::testing
