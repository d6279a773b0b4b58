// The pool medium: the objects of a libpmemobj pool as one run of bytes, mapped by the library.
//
//                   a write                                  a word
//   one replica     streaming stores, sfence                 8-byte store, persist
//   several         a copy, hashed; from that the library    the same, which copies the word
//                   copies to each, around the cache         to each
//   no DAX          the same, then msync                     the same
//
// Replicas follow only what goes through the library. They are given one copy of the source, so
// that all get the same bytes, those that were hashed, whatever the source becomes (I9). A crash in
// between leaves replicas that differ. The first is the one that is read; so an opening for writing
// that finds the pool left in use copies it over the others before anything is written (I12):
// else what one of them alone holds could become valid when the first is lost.
//
// Keeps I7: each writing thread drains its own stores. Keeps I4: a word is one aligned 8-byte
// store.
#include "media/pool/medium.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "base/fault_guard.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "media/file_room.hpp"
#include "media/mapped.hpp"
#include "media/pins.hpp"
#include "media/pool/pool.hpp"
#include "media/pool/recognise.hpp"

namespace tensorshelf {
namespace {

#if defined(__x86_64__)
constexpr bool kStreamingIsDurable = true;
#else
constexpr bool kStreamingIsDurable = false;  // no such stores: what was written is persisted
#endif

// Wherever the library touches memory on its own: replicas lie at addresses that it alone knows.
std::span<const std::byte> anywhere() {
  return {reinterpret_cast<const std::byte*>(kPageBytes),
          std::size_t{std::numeric_limits<std::ptrdiff_t>::max()}};
}

class PoolMedium final : public Medium {
 public:
  PoolMedium(std::shared_ptr<ShelfFile> file, PoolParts parts, std::unique_ptr<Pool> pool,
             std::string note)
      : file_(std::move(file)),
        parts_(std::move(parts)),
        place_(place_of(parts_, *file_)),
        pool_(std::move(pool)),
        pins_(make_pin_table(file_)),
        note_(std::move(note)) {
    arm_fault_guard();
    for (const PoolStretch& stretch : pool_->stretches()) size_bytes_ += stretch.size_bytes;
    if (file_->writable() && parts_.replicas > 1) begin_use();
  }

  // A forked child has the mapping of its parent, and closing it would write to it.
  ~PoolMedium() override {
    if (::getpid() != process_) {
      static_cast<void>(pool_.release());
      return;
    }
    if (in_use_ && !failed_) pool_->set_in_use(false);
  }

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    std::uint64_t checksum = 0;
    if (const PoolStretch& stretch = stretch_at(at); at + bytes.size() <= stretch.end()) {
      checksum = write_piece(stretch.base + (at - stretch.at), bytes, seed);
    } else {
      checksum = write_across(at, bytes, seed);
    }
    return {sequence_.fetch_add(1, std::memory_order_relaxed) + 1, checksum};
  }

  void wait(const Ticket&) override {}  // write() copied

  void barrier() override { pool_->drain(); }  // I1, I2: all else was drained where it was stored

  void store_word(std::uint64_t at, std::uint64_t word) override {
    const PoolStretch& stretch = stretch_at(at);
    auto* const target = reinterpret_cast<std::uint64_t*>(stretch.base + (at - stretch.at));
    const auto store = [&] {
      std::atomic_ref(*target).store(word, std::memory_order_release);  // I4
      if (planted(Bug::replica_word_left)) return;
      pool_->persist(target, sizeof *target);  // I2, I7
    };
    if (!touch_mapped(anywhere(), store)) throw_bad("unwritable", at, sizeof word, Errc::io);
  }

  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const PoolStretch& stretch = stretch_at(at);
      const std::size_t size = std::min<std::uint64_t>(bytes.size(), stretch.end() - at);
      const std::span source(stretch.base + (at - stretch.at), size);
      const auto copy = [&] { std::memcpy(bytes.data(), source.data(), size); };
      if (!touch_mapped(std::as_bytes(source), copy)) {
        throw_bad("unreadable", at, size, Errc::io);
      }
      at += size;
      bytes = bytes.subspan(size);
    }
  }

  // In place where one object holds it whole.
  std::span<const std::byte> view(const Extent& extent) override {
    if (extent.size_bytes == 0) return {};
    const PoolStretch& stretch = stretch_at(extent.at);
    if (extent.end() > stretch.end()) return {};
    return {stretch.base + (extent.at - stretch.at), extent.size_bytes};
  }

  std::uint64_t size() override { return size_bytes_; }

  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (size_bytes <= size_bytes_) return size_bytes_;
    throw Error(Errc::full,
                fmt::format("{} has {}, and {} are needed: a pool does not grow",
                            file_->path().native(), size_text(size_bytes_), size_text(size_bytes)),
                "erase tensors, or copy the shelf into a larger pool (snapshot)");
  }

  Promises promises() const override;
  PinTable* pins() override { return pins_.get(); }

 private:
  const PoolStretch& stretch_at(std::uint64_t at) const {
    const auto& all = pool_->stretches();
    const auto behind = std::ranges::upper_bound(all, at, {}, &PoolStretch::at);
    TENSORSHELF_ASSERT(behind != all.begin() && at < std::prev(behind)->end());
    return *std::prev(behind);
  }

  // Whether stores and a fence do, as they do on tmpfs, where nothing outlives the memory anyway.
  bool stores_suffice() const {
    if (parts_.replicas > 1 && !planted(Bug::replica_not_written)) return false;
    return place_.tmpfs || (place_.dax && kStreamingIsDurable);
  }

  std::uint64_t write_piece(std::byte* target, std::span<const std::byte> bytes,
                            std::uint64_t seed) {
    std::uint64_t checksum = 0;
    bool done = false;
    if (stores_suffice()) {
      const bool streams = place_.dax || bytes.size() >= kSmallestStreamed;
      const Stores stores = streams ? Stores::streaming : Stores::cached;
      const auto copy = [&] { checksum = copy_and_hash(target, bytes, seed, stores); };
      const std::span<const std::byte> written(target, bytes.size());
      take(bytes, [&] { done = touch_mapped(written, copy); });
    } else {
      thread_local std::vector<std::byte> copied;  // a chunk at most
      copied.resize(std::max(copied.size(), bytes.size()));
      std::byte* const first = copied.data();
      take(bytes, [&] { checksum = copy_and_hash(first, bytes, seed, Stores::cached); });
      done = touch_mapped(anywhere(), [&] { pool_->copy(target, first, bytes.size()); });
    }
    if (!done) throw_bad("unwritable", place_in_shelf(target), bytes.size(), Errc::io);
    drain_stores();  // I7
    return checksum;
  }

  template <typename Copy>
  void take(std::span<const std::byte> bytes, const Copy& copy) {
    take_given(bytes, is_shown(bytes.data()), copy, [&] {
      throw_bad("unreadable", place_in_shelf(bytes.data()), bytes.size(), Errc::corrupt);
    });
  }

  bool is_shown(const std::byte* byte) const {
    return std::ranges::any_of(pool_->stretches(), [&](const PoolStretch& stretch) {
      return std::less_equal()(stretch.base, byte) &&
             std::less()(byte, stretch.base + stretch.size_bytes);
    });
  }

  // Over the end of an object: hashed as it is copied into a buffer, for the hash is of the whole.
  std::uint64_t write_across(std::uint64_t at, std::span<const std::byte> bytes,
                             std::uint64_t seed) {
    std::vector<std::byte> copied(bytes.size());
    std::uint64_t checksum = 0;
    take(bytes, [&] { checksum = copy_and_hash(copied.data(), bytes, seed, Stores::cached); });
    std::span<const std::byte> rest = copied;
    while (!rest.empty()) {
      const PoolStretch& stretch = stretch_at(at);
      const auto piece = rest.first(std::min<std::uint64_t>(rest.size(), stretch.end() - at));
      write_piece(stretch.base + (at - stretch.at), piece, 0);
      at += piece.size();
      rest = rest.subspan(piece.size());
    }
    return checksum;
  }

  std::uint64_t place_in_shelf(const std::byte* target) const {
    for (const PoolStretch& stretch : pool_->stretches()) {
      if (target >= stretch.base && target < stretch.base + stretch.size_bytes) {
        return stretch.at + static_cast<std::uint64_t>(target - stretch.base);
      }
    }
    return 0;
  }

  void begin_use() {
    if (pool_->was_in_use() && !planted(Bug::replicas_left_apart)) {
      for (const PoolStretch& stretch : pool_->stretches()) {
        // I12: what the first replica shows is in each of them before anything is written
        const auto copy = [&] { pool_->persist(stretch.base, stretch.size_bytes); };
        if (!touch_mapped(anywhere(), copy)) {
          throw_bad("unreadable", stretch.at, stretch.size_bytes, Errc::io);
        }
      }
    }
    if (!planted(Bug::replicas_apart_unnoted)) pool_->set_in_use(true);
    in_use_ = true;
  }

  [[noreturn]] void throw_bad(const char* state, std::uint64_t at, std::uint64_t size_bytes,
                              Errc code) {
    failed_ = failed_ || code == Errc::io;
    throw Error(
        code,
        fmt::format("{} bytes at {} of {} are {}: the memory below reports an error", size_bytes,
                    at, file_->path().native(), state),
        "check the device (dmesg, ndctl list --media-errors); then, with the shelf closed, " +
            mending(*file_, parts_),
        EIO);
  }

  const std::shared_ptr<ShelfFile> file_;
  const PoolParts parts_;
  const PoolPlace place_;
  std::unique_ptr<Pool> pool_;
  const std::unique_ptr<PinTable> pins_;
  const std::string note_;
  const pid_t process_ = ::getpid();
  std::uint64_t size_bytes_ = 0;
  bool in_use_ = false;
  std::atomic<bool> failed_ = false;
  std::atomic<std::uint64_t> sequence_ = 0;
};

Promises PoolMedium::promises() const {
  Promises found;
  found.medium = "pool";
  found.mapped = true;
  found.needs_flush = place_.dax;
  found.detail = fmt::format(
      "libpmemobj pool on {}, {}", place_.systems,
      parts_.replicas == 1 ? "one replica" : fmt::format("{} replicas", parts_.replicas));
  found.survives = place_.dax && !place_.no_adr ? Survives::power_loss : Survives::process_crash;
  if (!note_.empty()) found.notes.push_back(note_);
  if (!place_.dax) {
    found.notes.push_back(
        "a part lies on no persistent memory (PMEM emulation): the shelf outlives a crash of the "
        "process; for a power loss keep every part on FS-DAX or DevDAX");
  }
  if (place_.no_adr) {
    found.notes.push_back(kNoAdrNote);
  }
  for (const char* name : {"PMEM_IS_PMEM_FORCE", "PMEM_NO_FLUSH"}) {
    const char* value = ::secure_getenv(name);
    if (value == nullptr || std::strcmp(value, "0") == 0) continue;
    found.survives = Survives::process_crash;
    found.notes.push_back(fmt::format(
        "{}={} is set: libpmemobj obeys it, and a power loss can lose acknowledged data; unset it",
        name, value));
  }
  return found;
}

[[noreturn]] void throw_no_pool(const ShelfFile& file) {
  const bool set = file.path().extension() == ".set";
  throw Error(Errc::not_a_shelf,
              fmt::format("{} is no {}", file.path().native(),
                          set ? "pool set: its first line is not PMEMPOOLSET" : "pool"),
              set ? "correct the pool set file, see poolset(5)" : "leave the tier automatic");
}

// A pool file's room is taken before it is a pool: a store into a hole of a full file system is a
// SIGBUS and not an error.
void size_pool_file(const ShelfFile& file, std::uint64_t size_bytes) {
  if (size_bytes < PMEMOBJ_MIN_POOL) {
    throw Error(Errc::bad_argument,
                fmt::format("{}: a pool has its size for good, and {} was said",
                            file.path().native(), size_bytes == 0 ? "none" : size_text(size_bytes)),
                fmt::format("say size=, of {} at least", size_text(PMEMOBJ_MIN_POOL)));
  }
  const FileGrowth growth{file.fd(), file.path(), 0, size_bytes / kPageBytes * kPageBytes};
  ask_for_room(growth);
  int error = set_length(file.fd(), growth.to_bytes);
  if (error == 0) error = allocate(growth);
  refuse_if_full(growth, error);
  if (error == 0 || error == EOPNOTSUPP) return;
  throw Error(Errc::io, fmt::format("{} cannot be sized", file.path().native()),
              "check the file system, and dmesg", error);
}

std::unique_ptr<Pool> open_set(const ShelfFile& file, const PoolParts& parts, Mode mode,
                               std::uint64_t largest_object_bytes) {
  if (parts.any_directory()) {
    throw Error(
        Errc::unsupported,
        fmt::format("{} has directories as parts, in which a pool grows", file.path().native()),
        "name a file or device for each part: a shelf takes all room of its pool at once");
  }
  for (auto part = parts.parts.begin(); part != parts.parts.end(); ++part) {
    if (std::ranges::find(parts.parts.begin(), part, part->path, &PoolPart::path) == part) continue;
    throw Error(Errc::not_a_shelf,
                fmt::format("{} names {} twice", file.path().native(), part->path.native()),
                "name each part once, see poolset(5)");
  }
  const bool there = parts.any_made();
  if (there && mode == Mode::create) {
    throw Error(Errc::exists, fmt::format("{} has parts already", file.path().native()),
                "use mode=\"a\" to open the shelf, mode=\"w\" to make it anew");
  }
  if (there || parts.parts.empty()) {
    return Pool::open(file, parts, file.writable() ? Pool::Access::write : Pool::Access::read);
  }
  if (mode == Mode::create || mode == Mode::replace) {
    return Pool::create(file, parts, largest_object_bytes);
  }
  throw Error(Errc::not_found,
              fmt::format("no shelf at {}: none of its parts is there", file.path().native()),
              "check the paths in it, or create one with mode=\"a\" or mode=\"x\"", ENOENT);
}

}  // namespace

bool pool_supported() { return true; }

std::unique_ptr<Medium> make_pool_medium(std::shared_ptr<ShelfFile> file,
                                         const OpenOptions& options, std::string note) {
  return make_pool_medium_of(std::move(file), options, std::move(note), 0);
}

std::unique_ptr<Medium> make_pool_medium_of(std::shared_ptr<ShelfFile> file,
                                            const OpenOptions& options, std::string note,
                                            std::uint64_t largest_object_bytes) {
  PoolParts parts = parts_of(*file);
  std::unique_ptr<Pool> pool;
  if (is_pool_set(*file)) {
    pool = open_set(*file, parts, options.mode, largest_object_bytes);
  } else if (file->unpublished()) {
    size_pool_file(*file, options.max_size_bytes);
    pool = Pool::create(*file, parts, largest_object_bytes);
  } else if (is_pool(*file)) {
    pool = Pool::open(*file, parts, file->writable() ? Pool::Access::write : Pool::Access::read);
  } else {
    throw_no_pool(*file);
  }
  return std::make_unique<PoolMedium>(std::move(file), std::move(parts), std::move(pool),
                                      std::move(note));
}

}  // namespace tensorshelf
