#include "sim_drive.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "bytes.hpp"

namespace tensorshelf::testing {
namespace {

void put(std::vector<std::byte>& image, std::uint64_t at, std::span<const std::byte> bytes) {
  if (image.size() < at + bytes.size()) image.resize(at + bytes.size());
  std::memcpy(&image[at], bytes.data(), bytes.size());
}

}  // namespace

class SimDrive::Backend final : public BlockBackend {
 public:
  explicit Backend(SimDrive& drive) : drive_(drive) {}
  ~Backend() override {
    if (drive_.begun_count_ != drive_.ended_count_) {
      drive_.wrongs_.emplace_back("destroyed with writes under way, of which nobody saw the end");
    }
  }
  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    for (const DeviceWrite& write : writes) drive_.submit(write);
    return {writes.size(), 0};
  }
  std::optional<DeviceCompletion> complete(bool block) override { return drive_.complete(block); }
  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    return drive_.write_now(at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    return drive_.read_now(at, bytes);
  }
  int sync() override { return drive_.sync(); }
  bool caches() const override { return drive_.faults_.caches; }
  std::int64_t write_cached(std::uint64_t at, std::span<const std::byte> bytes) override {
    return drive_.write_cached(at, bytes);
  }
  std::int64_t read_cached(std::uint64_t at, std::span<std::byte> bytes) override {
    return drive_.read_cached(at, bytes);
  }

 private:
  SimDrive& drive_;
};

SimDrive::SimDrive(std::shared_ptr<ShelfFile> file, std::vector<std::byte> contents,
                   std::uint64_t seed, const DriveFaults& faults)
    : file_(std::move(file)),
      faults_(faults),
      random_(seed),
      visible_(contents),
      durable_(std::move(contents)),
      settled_file_(file_state()) {}

void SimDrive::go_on(const DriveFaults& faults) {
  faults_ = faults;
  events_ = syncs_ = reads_ = begun_count_ = ended_count_ = cached_count_ = 0;
  sync_failed_ = failure_told_ = false;
}

BlockSeam SimDrive::seam() {
  BlockSeam seam;
  seam.wrap = [this](const std::unique_ptr<BlockBackend>&) {
    return std::make_unique<Backend>(*this);
  };
  return seam;
}

SimDrive::FileState SimDrive::file_state() const {
  struct stat status {};
  if (::fstat(file_->fd(), &status) != 0) return {};
  return {static_cast<std::uint64_t>(status.st_size), static_cast<std::uint64_t>(status.st_blocks)};
}

std::vector<std::byte> SimDrive::durable_copy() const {
  const std::lock_guard lock(mutex_);
  return durable_;
}

bool SimDrive::settled() const { return pending_.empty() && settled_file_ == file_state(); }

bool SimDrive::event() {
  if (++events_ == faults_.cut_at_event && !dead_) {
    left_ = image_after_power_loss();
    dead_ = true;
  }
  return !dead_;
}

void SimDrive::land_some_sectors(std::vector<std::byte>& image, std::uint64_t at,
                                 std::span<const std::byte> bytes, unsigned percent) {
  for (std::size_t i = 0; i < bytes.size(); i += kSectorBytes) {
    if (chance(percent)) put(image, at + i, bytes.subspan(i, kSectorBytes));
  }
}

// Nothing and all are among them.
unsigned SimDrive::some_percent() {
  constexpr unsigned kPercents[] = {0, 10, 50, 90, 100};
  return kPercents[random_() % std::size(kPercents)];
}

std::vector<std::byte> SimDrive::image_after_power_loss() {
  const unsigned percent = some_percent();
  std::vector<std::byte> image = durable_;
  for (const Landed& write : pending_) land_some_sectors(image, write.at, write.bytes, percent);
  for (const Begun& begun : in_flight_) {
    land_some_sectors(image, begun.write.at, begun.bytes, percent);
  }
  image.resize(chance(50) ? settled_file_.length : file_state().length);
  return image;
}

// As O_DIRECT has it: whole pages, from whole pages of memory.
void SimDrive::check_shape(std::uint64_t at, std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (at % kPageBytes != 0 || bytes.size() % kPageBytes != 0 || address % kPageBytes != 0 ||
      bytes.empty()) {
    wrongs_.push_back("unaligned: " + std::to_string(bytes.size()) + " at " + std::to_string(at));
  }
}

void SimDrive::land(std::uint64_t at, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  put(visible_, at, bytes);
  for (std::uint64_t done = 0; done < bytes.size(); done += kSectorBytes) unsure_.erase(at + done);
  ++landed_count_;
  pending_.push_back({at, {bytes.begin(), bytes.end()}});
}

// Of a write that failed: any of its sectors.
void SimDrive::land_part(std::uint64_t at, std::span<const std::byte> bytes) {
  const unsigned percent = some_percent();
  for (std::uint64_t done = 0; done < bytes.size(); done += kSectorBytes) {
    const std::uint64_t end = std::min<std::uint64_t>(done + kSectorBytes, bytes.size());
    if (chance(percent)) land(at + done, bytes.subspan(done, end - done));
  }
}

void SimDrive::submit(const DeviceWrite& write) {
  const std::lock_guard lock(mutex_);
  check_shape(write.at, write.bytes);
  if (failure_told_) wrongs_.emplace_back("a write was begun after a failure had been told");
  in_flight_.push_back({write, {write.bytes.begin(), write.bytes.end()}});
  ++begun_count_;
  event();
}

std::optional<DeviceCompletion> SimDrive::complete(bool block) {
  const std::lock_guard lock(mutex_);
  if (in_flight_.empty()) {
    if (block) wrongs_.emplace_back("waits for a write that was never begun");
    return {};
  }
  if (!block && chance(60)) return {};
  const bool alive = event();
  const auto chosen =
      in_flight_.begin() + static_cast<std::ptrdiff_t>(random_() % in_flight_.size());
  const Begun begun = std::move(*chosen);
  const DeviceWrite& write = begun.write;
  in_flight_.erase(chosen);
  if (!same(write.bytes, begun.bytes)) {
    wrongs_.emplace_back("bytes changed while their write was under way");
  }
  ++ended_count_;
  failure_told_ = failure_told_ || !alive || ended_count_ == faults_.fail_write;
  if (!alive) return DeviceCompletion{write.buffer, -EIO};
  if (ended_count_ == faults_.fail_write) {
    land_part(write.at, write.bytes);
    return DeviceCompletion{write.buffer, -EIO};
  }
  if (chance(faults_.untried_percent)) {
    constexpr int kCauses[] = {EAGAIN, EINTR, ECANCELED};
    return DeviceCompletion{write.buffer, -kCauses[random_() % std::size(kCauses)]};
  }
  const std::uint64_t size_bytes = ending(write.bytes.size());
  land(write.at, write.bytes.first(size_bytes));
  return DeviceCompletion{write.buffer, static_cast<std::int64_t>(size_bytes)};
}

// How much of a page or more goes through. Less than a page only now and then: a drive that does
// not get through one in some tries is an error.
std::uint64_t SimDrive::ending(std::uint64_t size_bytes) {
  if (!chance(faults_.short_percent)) return size_bytes;
  const std::uint64_t sectors = size_bytes / kSectorBytes;
  const std::uint64_t cut = (1 + random_() % (sectors - 1)) * kSectorBytes;
  return cut < kPageBytes && chance(90) ? kPageBytes : cut;
}

std::int64_t SimDrive::write_now(std::uint64_t at, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  check_shape(at, bytes);
  in_flight_.push_back({{at, bytes, DeviceCompletion::kBroken}, {bytes.begin(), bytes.end()}});
  const bool alive = event();
  in_flight_.pop_back();
  ++begun_count_;
  const bool fails = ++ended_count_ == faults_.fail_write;
  failure_told_ = failure_told_ || !alive || fails;
  if (!alive) return -EIO;
  if (fails) {
    land_part(at, bytes);
    return -EIO;
  }
  const std::uint64_t size_bytes = ending(bytes.size());
  land(at, bytes.first(size_bytes));
  return static_cast<std::int64_t>(size_bytes);
}

// Any shape does. What fails may have left a part there.
std::int64_t SimDrive::write_cached(std::uint64_t at, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!faults_.caches) wrongs_.emplace_back("written through a cache that is not there");
  if (failure_told_) wrongs_.emplace_back("a write was made after a failure had been told");
  if (!in_flight_.empty()) {
    wrongs_.emplace_back("written through the cache beside what is on its way around it");
  }
  ++begun_count_;
  ++ended_count_;
  ++cached_count_;
  const bool alive = event();
  const bool fails = !alive || ended_count_ == faults_.fail_write;
  failure_told_ = failure_told_ || fails;
  if (alive) fails ? land_part(at, bytes) : land(at, bytes);
  return fails ? -EIO : static_cast<std::int64_t>(bytes.size());
}

void SimDrive::show(std::uint64_t at, std::span<std::byte> bytes) const {
  const std::uint64_t there =
      at < visible_.size() ? std::min<std::uint64_t>(bytes.size(), visible_.size() - at) : 0;
  if (there > 0) std::memcpy(bytes.data(), &visible_[at], there);
  std::memset(bytes.data() + there, 0, bytes.size() - there);
}

void SimDrive::show_older_sectors(std::uint64_t at, std::span<std::byte> bytes) {
  const std::uint64_t end = at + bytes.size();
  for (auto unsure = unsure_.lower_bound(at); unsure != unsure_.end() && *unsure < end; ++unsure) {
    if (chance(50)) continue;
    const auto sector = bytes.subspan(*unsure - at).first(std::min(kSectorBytes, end - *unsure));
    const bool there = *unsure < durable_.size();
    for (std::size_t i = 0; i < sector.size(); ++i) {
      sector[i] = there ? durable_[*unsure + i] : std::byte{0};
    }
  }
}

std::int64_t SimDrive::read_now(std::uint64_t at, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (++reads_ == faults_.fail_read) return -EIO;
  const std::uint64_t length = file_state().length;
  if (at >= length) return 0;
  std::uint64_t size_bytes = std::min<std::uint64_t>(bytes.size(), length - at);
  if (size_bytes >= kPageBytes) size_bytes = ending(size_bytes);
  show(at, bytes.first(size_bytes));
  show_older_sectors(at, bytes.first(size_bytes));
  return static_cast<std::int64_t>(size_bytes);
}

std::int64_t SimDrive::read_cached(std::uint64_t at, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!faults_.caches) wrongs_.emplace_back("read from a cache that is not there");
  const std::uint64_t length = file_state().length;
  if (at >= length) return 0;
  const std::uint64_t size_bytes = std::min<std::uint64_t>(bytes.size(), length - at);
  show(at, bytes.first(size_bytes));
  return static_cast<std::int64_t>(size_bytes);
}

// The kernel keeps the pages, marked clean, and hands some of them on.
void SimDrive::make_unsure(const std::vector<Landed>& writes) {
  const unsigned percent = some_percent();
  for (const Landed& write : writes) land_some_sectors(durable_, write.at, write.bytes, percent);
  durable_.resize(std::max(durable_.size(), visible_.size()));
  for (const Landed& write : writes) {
    for (std::uint64_t done = 0; done < write.bytes.size(); done += kSectorBytes) {
      const std::uint64_t at = write.at + done;
      if (std::memcmp(&durable_[at], &visible_[at], kSectorBytes) != 0) unsure_.insert(at);
    }
  }
}

int SimDrive::sync() {
  std::vector<Landed> settling;
  FileState file;
  {
    const std::lock_guard lock(mutex_);
    const bool alive = event();
    if (sync_failed_) wrongs_.emplace_back("a flush was repeated after it had failed");
    ++syncs_;
    sync_failed_ = !alive || syncs_ == faults_.fail_sync;
    failure_told_ = failure_told_ || sync_failed_;
    settling = std::exchange(pending_, {});
    if (sync_failed_) {
      if (alive) make_unsure(settling);
      return -EIO;
    }
    file = file_state();
  }
  std::this_thread::yield();  // what lands from here on is not settled by this flush
  const std::lock_guard lock(mutex_);
  for (const Landed& write : settling) put(durable_, write.at, write.bytes);
  settled_file_ = file;
  return 0;
}

}  // namespace tensorshelf::testing
