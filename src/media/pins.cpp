#include "media/pins.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <tensorshelf/error.hpp>

#include "media/file_lock.hpp"

namespace tensorshelf {
namespace {

// Where the locks lie. Of a version: one byte that says it is pinned, and one whose place says by
// whom, for the kernel does not tell whose lock of an open file description it found.
constexpr std::uint64_t kFirmAt = std::uint64_t{1} << 60;
constexpr std::uint64_t kOutrunAt = kFirmAt + 2;  // not side by side: neighbours become one lock
constexpr std::uint64_t kReadersAt = kFirmAt + 4;
constexpr std::uint64_t kNamesAt = std::uint64_t{1} << 61;
constexpr std::uint64_t kPinsAt = std::uint64_t{1} << 62;
constexpr std::uint64_t kAllVersions = std::uint64_t{1} << 61;

constexpr unsigned kSecondsBits = 32;
constexpr unsigned kPidBits = 22;  // PID_MAX_LIMIT of 64-bit Linux
constexpr std::uint64_t kNamedVersions = 64;

std::uint64_t names_of(std::uint64_t version) {
  return kNamesAt + ((version % kNamedVersions) << (kPidBits + kSecondsBits));
}

std::uint64_t name_at(std::uint64_t version, const PinHolder& holder) {
  const std::uint64_t pid = holder.pid & ((std::uint64_t{1} << kPidBits) - 1);
  return names_of(version) + (pid << kSecondsBits) + (holder.since_seconds & 0xFFFFFFFF);
}

struct flock lock_of(short type, std::uint64_t at, std::uint64_t size) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = static_cast<off_t>(size);
  return lock;
}

using Clock = std::chrono::steady_clock;

class FilePins final : public PinTable {
 public:
  // `folder`: in place of the file, and owned; -1: none.
  FilePins(std::shared_ptr<ShelfFile> file, int folder)
      : file_(std::move(file)), folder_(folder), fd_(folder < 0 ? file_->fd() : folder) {}
  ~FilePins() override {
    if (folder_ >= 0) ::close(folder_);
  }

  Clock::time_point appear() override {
    const std::lock_guard lock(mutex_);
    if (!heard_at_) {
      set(F_RDLCK, kReadersAt);
      heard_at_ = Clock::now() + 2 * kHearing;
    }
    return *heard_at_;
  }

  void take(std::uint64_t version) override {
    const std::lock_guard lock(mutex_);
    if (counts_.contains(version)) {
      ++counts_[version].count;
      return;
    }
    const auto now = static_cast<std::uint64_t>(::time(nullptr));
    const PinHolder self{static_cast<std::uint64_t>(::getpid()), now};
    auto& there = counts_.emplace(version, Taken{1, self}).first->second;
    try {
      set(F_RDLCK, name_at(version, there.self));  // first: who sees the pin is told whose it is
      set(F_RDLCK, kPinsAt + version);
    } catch (...) {
      give_back(version);
      throw;
    }
  }

  void drop(std::uint64_t version) noexcept override {
    if (in_child()) return;
    const std::lock_guard lock(mutex_);
    const auto there = counts_.find(version);
    if (there != counts_.end() && --there->second.count == 0) give_back(version);
  }

  void take_all() override {
    const std::lock_guard lock(mutex_);
    if (all_ == 0) set(F_RDLCK, kPinsAt, kAllVersions);
    ++all_;
  }

  void drop_all() noexcept override {
    if (in_child()) return;
    const std::lock_guard lock(mutex_);
    if (--all_ > 0) return;
    std::uint64_t from = 0;
    for (const auto& [version, taken] : counts_) {
      if (version > from) unset(kPinsAt + from, version - from);
      from = version + 1;
    }
    unset(kPinsAt + from, kAllVersions - from);
  }

  bool take_firm() override {
    const std::lock_guard lock(mutex_);
    if (firm_ == 0) {
      set(F_RDLCK, kFirmAt);
      if (is_outrun()) {
        unset(kFirmAt);
        return false;
      }
    }
    ++firm_;
    return true;
  }

  void drop_firm() noexcept override {
    if (in_child()) return;
    const std::lock_guard lock(mutex_);
    if (--firm_ == 0) unset(kFirmAt);
  }

  bool is_outrun() const noexcept override { return first_locked(kOutrunAt, 1).has_value(); }

  // The clock is read before the look, and behind the flip.
  bool any_readers() noexcept override {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (readers_ || now - looked_ > kHearing) {
      readers_ = first_locked(kReadersAt, 1).has_value();
      looked_ = now;
    }
    return readers_;
  }

  std::optional<std::uint64_t> find(std::uint64_t first,
                                    std::uint64_t last) const noexcept override {
    if (first > last) return std::nullopt;
    const auto at = first_locked(kPinsAt + first, last - first + 1);
    if (!at) return std::nullopt;
    return std::max(first, *at - kPinsAt);  // neighbours of one reader are one lock
  }

  PinHolder holder(std::uint64_t version) const noexcept override {
    const auto at = first_locked(names_of(version), std::uint64_t{1} << (kPidBits + kSecondsBits));
    if (!at || *at < names_of(version)) return {};
    const std::uint64_t name = *at - names_of(version);
    return {name >> kSecondsBits, name & 0xFFFFFFFF};
  }

  bool outrun() override {
    const std::lock_guard lock(mutex_);
    set(F_RDLCK, kOutrunAt);
    if (!first_locked(kFirmAt, 1)) return true;
    unset(kOutrunAt);
    return false;
  }

 private:
  // Which shares its parent's locks: what it gave back the parent would have lost.
  bool in_child() const noexcept { return ::getpid() != process_; }

  struct Taken {
    std::size_t count;
    PinHolder self;
  };

  void set(short type, std::uint64_t at, std::uint64_t size = 1) const {
    struct flock lock = lock_of(type, at, size);
    if (::fcntl(fd_, F_OFD_SETLK, &lock) == 0) return;
    const int error = errno;
    throw Error(Errc::io,
                fmt::format("no version of {} can be held: {}", file_->path().native(),
                            std::generic_category().message(error)),
                "Keep the shelf on a file system that locks parts of a file.", error);
  }

  void unset(std::uint64_t at, std::uint64_t size = 1) const noexcept {
    struct flock lock = lock_of(F_UNLCK, at, size);
    ::fcntl(fd_, F_OFD_SETLK, &lock);
  }

  void give_back(std::uint64_t version) noexcept {
    const auto there = counts_.find(version);
    if (all_ == 0) unset(kPinsAt + version);
    const std::uint64_t name = name_at(version, there->second.self);
    counts_.erase(there);
    const bool shared = std::ranges::any_of(  // by one that is kNamedVersions away
        counts_,
        [&](const auto& other) { return name_at(other.first, other.second.self) == name; });
    if (!shared) unset(name);
  }

  // Where a lock of another opening begins that lies there. A file system without such locks has
  // none, for nobody could take one; where it does not answer, there may be one (I3).
  std::optional<std::uint64_t> first_locked(std::uint64_t at, std::uint64_t size) const noexcept {
    struct flock lock = lock_of(F_WRLCK, at, size);
    if (::fcntl(fd_, F_OFD_GETLK, &lock) != 0) {
      const bool has_none = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
      return has_none ? std::nullopt : std::optional(at);
    }
    if (lock.l_type == F_UNLCK) return std::nullopt;
    return static_cast<std::uint64_t>(lock.l_start);
  }

  const std::shared_ptr<ShelfFile> file_;
  const int folder_;
  const int fd_;
  const pid_t process_ = ::getpid();
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Taken> counts_;
  std::size_t all_ = 0;  // who hold all of them
  std::size_t firm_ = 0;
  std::optional<Clock::time_point> heard_at_;  // this reader
  bool readers_ = false;                       // elsewhere, when they were looked for last
  Clock::time_point looked_ = {};
};

}  // namespace

std::unique_ptr<PinTable> make_pin_table(std::shared_ptr<ShelfFile> file) {
  if (file->kind() != FileKind::dax_device) return std::make_unique<FilePins>(std::move(file), -1);
  const int folder = open_device_folder(file->fd());
  if (folder < 0) return nullptr;
  return std::make_unique<FilePins>(std::move(file), folder);
}

}  // namespace tensorshelf
