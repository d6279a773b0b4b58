// A drive that exists in memory, in place of the backend under a block medium. It breaks whatever
// a drive and its kernel do not promise, by seed: writes end out of order, in part, or not at all;
// what was not settled by a flush is lost, sector by sector, when the power goes.
//
//   begun       submit() returned; lands at any time, but is seen once complete() told its end
//   visible     what every read sees
//   pending     visible, and on no medium yet: the power may take each of its sectors. What lies in
//               the kernel's page cache is no more than that
//   durable     landed before a sync() began that succeeded
//   unsure      was pending when a sync() failed. Some sectors are durable all the same. Of each
//               other one a read around the cache gives what was there before or what is visible,
//               and the next read maybe the other; a read from the cache gives what is visible, and
//               the power takes it. So it stays, for the next process too, until it is written anew
//
// The file below it gives nothing but its length and its blocks, which are settled as data are.
// What the medium does wrong by itself (a flush repeated after it failed, a write begun and never
// asked after, ...) is noted in wrongs(), for a destructor cannot fail a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "media/block/medium.hpp"

namespace tensorshelf::testing {

// What goes wrong, and how often.
struct DriveFaults {
  unsigned short_percent = 0;      // of writes and reads: a part went through
  unsigned untried_percent = 0;    // nothing was (-EAGAIN and its like), and not the drive's fault
  std::uint64_t fail_write = 0;    // the n-th completion or other write, from 1, is -EIO in part
  std::uint64_t fail_sync = 0;     // the n-th flush, from 1; what was pending is unsure
  std::uint64_t fail_read = 0;     // the n-th read around the cache, from 1, is -EIO
  std::uint64_t cut_at_event = 0;  // the power goes at the n-th call, from 1
  bool caches = false;             // the kernel's page cache stands before the drive
};

class SimDrive {
 public:
  static constexpr std::uint64_t kSectorBytes = 512;

  SimDrive(std::shared_ptr<ShelfFile> file, std::vector<std::byte> contents, std::uint64_t seed,
           const DriveFaults& faults = {});

  // The seam that puts the drive under a block medium. The drive outlives the medium.
  BlockSeam seam();

  // For the next process that opens it, with faults counted from here.
  void go_on(const DriveFaults& faults);

  void fail_sync_after(std::uint64_t others) { faults_.fail_sync = syncs_ + others + 1; }

  // What the power leaves now: settled bytes, and of all others whatever the seed says.
  std::vector<std::byte> image_after_power_loss();

  bool power_is_gone() const { return dead_; }
  bool failure_told() const { return failure_told_; }  // of a write or flush
  bool read_failed() const { return faults_.fail_read != 0 && reads_ >= faults_.fail_read; }
  bool unsure() const { return !unsure_.empty(); }       // of some sector
  std::vector<std::byte> left() const { return left_; }  // when the power went

  std::span<const std::byte> visible() const { return visible_; }
  std::span<const std::byte> durable() const { return durable_; }
  std::vector<std::byte> durable_copy() const;  // while other threads write
  bool settled() const;  // nothing is pending, of the file's length and blocks neither
  std::uint64_t events() const { return events_; }
  std::uint64_t syncs() const { return syncs_; }
  std::uint64_t landed() const { return landed_count_; }
  std::uint64_t begun() const { return begun_count_; }
  std::uint64_t ended() const { return ended_count_; }
  std::uint64_t cached() const { return cached_count_; }
  std::vector<std::string> wrongs() const { return wrongs_; }

 private:
  class Backend;
  struct Landed {
    std::uint64_t at;
    std::vector<std::byte> bytes;
  };
  struct Begun {
    DeviceWrite write;
    std::vector<std::byte> bytes;  // as they were then: the drive may have taken them at once
  };
  struct FileState {
    std::uint64_t length = 0;
    std::uint64_t blocks = 0;
    friend bool operator==(const FileState&, const FileState&) = default;
  };

  void submit(const DeviceWrite& write);
  std::optional<DeviceCompletion> complete(bool block);
  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes);
  std::int64_t write_cached(std::uint64_t at, std::span<const std::byte> bytes);
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes);
  std::int64_t read_cached(std::uint64_t at, std::span<std::byte> bytes);
  int sync();

  bool event();  // false: the power is gone
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  unsigned some_percent();
  std::uint64_t ending(std::uint64_t size_bytes);
  void check_shape(std::uint64_t at, std::span<const std::byte> bytes);
  void land(std::uint64_t at, std::span<const std::byte> bytes);
  void land_part(std::uint64_t at, std::span<const std::byte> bytes);
  void make_unsure(const std::vector<Landed>& writes);
  void show(std::uint64_t at, std::span<std::byte> bytes) const;
  void show_older_sectors(std::uint64_t at, std::span<std::byte> bytes);
  void land_some_sectors(std::vector<std::byte>& image, std::uint64_t at,
                         std::span<const std::byte> bytes, unsigned percent);
  FileState file_state() const;

  mutable std::mutex mutex_;
  const std::shared_ptr<ShelfFile> file_;
  DriveFaults faults_;
  std::mt19937_64 random_;
  std::vector<std::byte> visible_;
  std::vector<std::byte> durable_;
  std::vector<Landed> pending_;
  std::set<std::uint64_t> unsure_;  // places of sectors
  std::vector<Begun> in_flight_;
  FileState settled_file_;
  std::vector<std::byte> left_;
  bool dead_ = false;
  bool sync_failed_ = false;
  bool failure_told_ = false;
  std::uint64_t events_ = 0;
  std::uint64_t syncs_ = 0;
  std::uint64_t reads_ = 0;
  std::uint64_t landed_count_ = 0;
  std::uint64_t begun_count_ = 0;
  std::uint64_t ended_count_ = 0;
  std::uint64_t cached_count_ = 0;
  std::vector<std::string> wrongs_;
};

}  // namespace tensorshelf::testing
