// The mapped medium: an FS-DAX file, a DevDAX device, or a file on tmpfs. Owns two mappings of the
// same bytes: one to write through, which no one else ever sees, and a read-only one that view()
// hands out, so that a stray store through a view is a SIGSEGV and not a damaged shelf.
//
//              survives        a write is durable after             a word is durable after
//   FS-DAX     power loss      non-temporal stores, sfence          8-byte store, clwb, sfence
//   DevDAX     power loss      the same                             the same
//   eADR       power loss      the same; any store, below 128 KiB   8-byte store, sfence
//   tmpfs      process crash   any store                            any store
//
// Keeps I7: write() drains its own thread's stores before it returns, so barrier() needs only to
// drain those of the committer. Keeps I4: store_word() is one aligned 8-byte store.
//
// Every touch of mapped bytes is guarded: where the file was cut short by someone else, or a line
// is poisoned, the call throws (base/fault_guard.hpp). Bytes that view() shows are not.
#include "media/pmem/medium.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "base/fault_guard.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "media/file_lock.hpp"
#include "media/file_room.hpp"
#include "media/mapped.hpp"
#include "media/pins.hpp"
#include "media/pmem/environment.hpp"
#include "media/pmem/map.hpp"
#include "media/pmem/promises.hpp"
#include "media/pmem/room.hpp"

namespace tensorshelf {

namespace {

constexpr std::uint64_t kTebibyte = std::uint64_t{1} << 40;
constexpr std::uint64_t kFewestAddresses = kTebibyte / 16;
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kMostAddresses = kFewestAddresses;  // its shadow leaves room for no more
#else
constexpr std::uint64_t kMostAddresses = 16 * kTebibyte;  // of 128 TiB that a process has
#endif
#if defined(__x86_64__)
constexpr bool kStreamingLeavesCache = true;
#else
constexpr bool kStreamingLeavesCache = false;             // no such stores: what was written is flushed
#endif

// A file cannot outgrow its file system, which may be enlarged meanwhile, though; a device is
// mapped whole.
AddressWish addresses_for(const FileSystem& system, std::uint64_t now, std::uint64_t max) {
  AddressWish wish{kMostAddresses, now};
  if (system.total_bytes != 0 && system.total_bytes < kMostAddresses / 4) {
    wish.size_bytes = std::max(kFewestAddresses, 4 * system.total_bytes);
  }
  if (max != 0) wish.size_bytes = std::min(wish.size_bytes, max);
  return wish;
}

class PmemMedium final : public Medium {
 public:
  PmemMedium(std::shared_ptr<ShelfFile> file, const OpenOptions& options, FileSystem system,
             const AddressWish& wish, std::string note)
      : file_(std::move(file)),
        max_size_bytes_(is_device() ? 0 : options.max_size_bytes),
        by_file_(system.tmpfs && !options.zero_room),
        system_(std::move(system)),
        domain_(power_fail_domain(file_->fd())),
        environment_(pmem_environment(domain_)),
        alignment_(wish.alignment),
        pins_(make_pin_table(file_)),
        view_(file_->path(), Access::read, wish) {
    if (!note.empty()) environment_.notes.push_back(std::move(note));
    if (is_device() && file_->writable()) device_lock_.emplace(file_->fd(), file_->path());
    if (file_->writable()) work_.emplace(file_->path(), Access::write, wish);
    if (!work_ && !is_device()) {
      PmemMedium::size();  // its writer may be making it shorter
    } else {
      map_to(wish.least_bytes);
      size_bytes_ = view_.size_bytes();
    }
    refuse_msync();
    gaps_ = work_ && !is_device() && has_gaps(*file_, system_, size_bytes_);
  }

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    std::byte* const target = writable(at, bytes.size());
    if (gaps_) fill_gaps(*file_, {at, bytes.size()});
    if (by_file_) return write_by_file(at, bytes, seed);
    const Stores stores = streams(bytes.size()) ? Stores::streaming : Stores::cached;
    std::uint64_t checksum = 0;
    const auto copy = [&] {
      checksum = copy_and_hash(target, bytes, seed, stores);
      // I1: with the drain below, where streaming stores stay in the cache.
      if (needs_flush() && !kStreamingLeavesCache) work_->flush(target, bytes.size());
    };
    const std::span<const std::byte> written(target, bytes.size());
    bool done = false;
    take(bytes, [&] { done = touch_mapped(written, copy); });
    if (!done) throw_gone("unwritable", {at, bytes.size()}, Errc::io);
    if (!planted(Bug::write_not_drained)) drain_stores();  // I7
    return next_ticket(checksum);
  }

  void wait(const Ticket&) override {}  // write() copied

  // Nothing more is needed than the fence: each writing thread has drained its own stores (I7),
  // words are flushed as they are stored, and MAP_SYNC has made the blocks behind every mapped page
  // durable before the page could be written, so there is no file system metadata to sync.
  void barrier() override {
    if (!planted(Bug::barrier_not_drained)) drain_stores();  // I1, I2
  }

  void store_word(std::uint64_t at, std::uint64_t word) override {
    auto* const target = reinterpret_cast<std::uint64_t*>(writable(at, sizeof word));
    TENSORSHELF_ASSERT(at % sizeof word == 0);
    if (gaps_) fill_gaps(*file_, {at / kPageBytes * kPageBytes, sizeof word});
    const auto store = [&] {
      if (planted(Bug::word_in_halves)) std::atomic_ref(*target).store(word & 0xFFFFFFFF);
      std::atomic_ref(*target).store(word, std::memory_order_release);  // I4
      if (needs_flush()) flush_word(target);
    };
    if (!touch_mapped(std::as_bytes(std::span(target, 1)), store)) {
      throw_gone("unwritable", {at, sizeof word}, Errc::io);
    }
    drain_stores();  // I7, as in write()
  }

  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (bytes.empty()) return;
    const auto source = view({at, bytes.size()});
    if (!touch_mapped(source, [&] { std::memcpy(bytes.data(), source.data(), bytes.size()); })) {
      throw_gone("unreadable", {at, bytes.size()}, Errc::truncated);
    }
  }

  std::span<const std::byte> view(const Extent& extent) override {
    TENSORSHELF_ASSERT(extent.at <= view_.size_bytes());
    TENSORSHELF_ASSERT(extent.size_bytes <= view_.size_bytes() - extent.at);
    return {view_.base() + extent.at, extent.size_bytes};
  }

  std::uint64_t size() override;
  std::uint64_t reserve(std::uint64_t size_bytes) override;
  std::uint64_t shrink(std::uint64_t size_bytes) override;
  PinTable* pins() override { return pins_.get(); }

  Promises promises() const override;

 private:
  Ticket next_ticket(std::uint64_t checksum) {
    return {sequence_.fetch_add(1, std::memory_order_relaxed) + 1, checksum};
  }

  // Where pages are not touched ahead: the kernel fills a new one without zeroing it first. What it
  // has, the mapping shows, and outlives the process as stores do (I7). It gets a copy, for the
  // checksum is of what is written, whatever the caller's bytes become meanwhile (I9).
  Ticket write_by_file(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) {
    thread_local std::vector<std::byte> copied;  // a chunk at most
    copied.resize(std::max(copied.size(), bytes.size()));
    std::uint64_t checksum = 0;
    take(bytes, [&] { checksum = copy_and_hash(copied.data(), bytes, seed, Stores::cached); });
    if (planted(Bug::write_hashed_first)) {
      checksum = hash_bytes(bytes, seed);
      write_bytes(*file_, at, bytes);
      return next_ticket(checksum);
    }
    write_bytes(*file_, at, std::span(copied).first(bytes.size()));
    return next_ticket(checksum);
  }

  template <typename Copy>
  void take(std::span<const std::byte> bytes, const Copy& copy) {
    take_given(bytes, is_shown(bytes), copy, [&] {
      const Extent place{static_cast<std::uint64_t>(bytes.data() - view_.base()), bytes.size()};
      throw_gone("unreadable", place, Errc::corrupt, Errc::corrupt);
    });
  }

  bool is_device() const { return file_->kind() == FileKind::dax_device; }
  bool needs_flush() const { return !system_.tmpfs && work_->granularity() != Granularity::byte; }

  void flush_word(const std::uint64_t* word) const {
    if (planted(Bug::word_not_flushed)) return;
    const std::size_t beside = planted(Bug::word_flushed_beside) ? 64 : 0;
    // I2: with the drain behind it; the word was stored as one (I4).
    work_->flush(reinterpret_cast<const std::byte*>(word) + beside, sizeof *word);
  }

  // Where a store is durable once it is in the cache, small writes stay there.
  bool streams(std::size_t size_bytes) const {
    if (needs_flush() && !planted(Bug::write_kept_in_cache)) return true;
    return size_bytes >= kSmallestStreamed;
  }

  std::byte* writable(std::uint64_t at, std::size_t size_bytes) {
    TENSORSHELF_ASSERT(work_.has_value());
    TENSORSHELF_ASSERT(at <= size_bytes_ && size_bytes <= size_bytes_ - at);
    return work_->base() + at;
  }

  // Whether the bytes are some that view() gave, as those of a chunk copied from slot to slot are.
  bool is_shown(std::span<const std::byte> bytes) const {
    const std::byte* const begin = view_.base();
    return std::less_equal()(begin, bytes.data()) &&
           std::less()(bytes.data(), begin + view_.size_bytes());
  }

  // Every segment is to start at a huge page.
  GrowthBounds bounds() const {
    const std::uint64_t addresses = work_ ? work_->address_bytes() : 0;
    return {.cap_bytes = max_size_bytes_,
            .address_bytes = std::min(view_.address_bytes(), addresses),
            .step_bytes = kHugePageBytes};
  }

  [[noreturn]] void throw_gone(const char* state, const Extent& extent, Errc where_cut,
                               Errc where_poisoned = Errc::io) const;
  void refuse_msync() const;
  void map_to(std::uint64_t end);
  void make_found_room(std::uint64_t size_bytes);

  std::shared_ptr<ShelfFile> file_;
  std::optional<DeviceLock> device_lock_;  // of a writer on a device
  std::uint64_t max_size_bytes_;
  const bool by_file_;  // new room is not touched: half of a snapshot's may never be written
  FileSystem system_;
  PowerFailDomain domain_;
  PmemEnvironment environment_;
  std::uint64_t alignment_;  // unit that a device is mapped in
  const std::unique_ptr<PinTable> pins_;
  PmemMap view_;
  std::optional<PmemMap> work_;   // none on a file that is open for reading
  std::uint64_t size_bytes_ = 0;  // the mappings go on beyond it where the file was made shorter
  bool gaps_ = false;             // the file was found with holes: fill them before each store
  std::uint64_t room_bytes_ = 0;  // so far there are blocks, and durable: a length is no room
  std::atomic<std::uint64_t> sequence_ = 0;
};

// libpmem2 would msync() each word, which a device refuses, and then abort the process.
void PmemMedium::refuse_msync() const {
  if (!is_device() || !work_ || work_->granularity() != Granularity::page) return;
  throw Error(Errc::unsupported,
              fmt::format("{} cannot be flushed by msync, as PMEM2_FORCE_GRANULARITY=PAGE demands",
                          file_->path().native()),
              "unset PMEM2_FORCE_GRANULARITY");
}

// A touch of mapped bytes was answered with SIGBUS.
void PmemMedium::throw_gone(const char* state, const Extent& extent, Errc where_cut,
                            Errc where_poisoned) const {
  const std::string place = fmt::format("{} bytes at offset {}", extent.size_bytes, extent.at);
  const std::string path = file_->path().native();
  const std::uint64_t left = is_device() ? view_.size_bytes() : file_->size_bytes();
  if (left < view_.size_bytes() && left < extent.end()) {
    throw Error(where_cut,
                fmt::format("{} was cut to {} while it was open: {} are {}", path, size_text(left),
                            place, state),
                "stop what shortens it, and restore the shelf from a copy",
                where_cut == Errc::io ? EIO : 0);
  }
  throw Error(
      where_poisoned,
      fmt::format("{} of {} are {}: the memory below reports an error there", place, path, state),
      "check the device (dmesg, ndctl list --media-errors)", EIO);
}

// Maps the file up to there, if it is not yet.
void PmemMedium::map_to(std::uint64_t end) {
  if (end <= view_.size_bytes()) return;
  const std::uint64_t size_bytes = end - view_.size_bytes();
  view_.append(file_->fd(), size_bytes);
  if (!work_) return;
  try {
    work_->append(file_->fd(), size_bytes);
  } catch (...) {
    view_.drop_last();
    throw;
  }
}

std::uint64_t PmemMedium::size() {
  while (!work_ && !is_device()) {  // a writer may have made the file longer or shorter since
    const std::uint64_t there =
        std::min(file_->size_bytes() / kPageBytes * kPageBytes, view_.address_bytes());
    try {
      map_to(there);
    } catch (const Error&) {
      if (file_->size_bytes() < there) continue;  // made shorter in between
      throw;
    }
    size_bytes_ = there;
    break;
  }
  return size_bytes_;
}

// Makes room in a file as found. Its holes are filled as far as is asked for: a sparse file may go
// on for terabytes. Where it has none its length alone may not be durable.
void PmemMedium::make_found_room(std::uint64_t size_bytes) {
  if (size_bytes <= room_bytes_) return;
  if (gaps_) {
    allocate_holes(*file_, size_bytes);
  } else if (!is_device()) {
    sync_room(*file_);
  }
  room_bytes_ = gaps_ ? size_bytes : size_bytes_;
}

std::uint64_t PmemMedium::reserve(std::uint64_t size_bytes) {
  TENSORSHELF_ASSERT(size_bytes > 0);
  const std::uint64_t now = size();
  if (size_bytes > now) check_may_grow(*file_, now, size_bytes, bounds());
  make_found_room(std::min(now, round_up(size_bytes, kPageBytes)));
  if (size_bytes <= now) return room_bytes_;
  const Extent room{now, grown_size(*file_, size_bytes, bounds()) - now};
  const std::uint64_t old_file_size = file_->size_bytes();
  add_room(*file_, system_, room);
  try {
    map_to(room.end());
  } catch (...) {
    remove_room(*file_, old_file_size);
    throw;
  }
  if (!by_file_) work_->fault_in(room);
  return room_bytes_ = size_bytes_ = room.end();
}

// The mappings stay, so that what grows there again has its old addresses: until then a touch of
// them is an error of the call, as of any file that was cut.
std::uint64_t PmemMedium::shrink(std::uint64_t size_bytes) {
  if (!work_ || is_device()) return size();
  TENSORSHELF_ASSERT(size_bytes > 0 && size_bytes % kPageBytes == 0 && size_bytes <= size_bytes_);
  cut_file(file_->fd(), file_->path(), size_bytes);
  room_bytes_ = std::min(room_bytes_, size_bytes);
  return size_bytes_ = size_bytes;
}

Promises PmemMedium::promises() const {
  return pmem_promises({.system = system_,
                        .environment = environment_,
                        .domain = domain_,
                        .is_device = is_device(),
                        .alignment = alignment_,
                        .unlocked = device_lock_ && !device_lock_->held(),
                        .needs_flush = view_.granularity() != Granularity::byte});
}

}  // namespace

bool pmem_supported() { return true; }

std::unique_ptr<Medium> make_pmem_medium(std::shared_ptr<ShelfFile> file,
                                         const OpenOptions& options, std::string note) {
  if (file->kind() == FileKind::block_device) throw_not_dax(*file, "a block device");
  if (file->kind() == FileKind::dax_device) {
    const DaxGeometry device = dax_geometry(file->fd(), file->path());
    const AddressWish wish{device.size_bytes, device.size_bytes, device.alignment};
    return std::make_unique<PmemMedium>(std::move(file), options, FileSystem{}, wish,
                                        std::move(note));
  }
  FileSystem system = probe_file_system(file->fd());
  if (!system.dax && !system.tmpfs) throw_not_dax(*file, system.name + " without DAX");
  const std::uint64_t now = file->size_bytes() / kPageBytes * kPageBytes;
  const AddressWish wish = addresses_for(system, now, options.max_size_bytes);
  return std::make_unique<PmemMedium>(std::move(file), options, std::move(system), wish,
                                      std::move(note));
}

}  // namespace tensorshelf
