// The block medium: a file on any file system, or a raw block device. Owns the staging memory and
// the backend; knows nothing of what the bytes mean.
//
// Assumes that a sector of the device lands whole or not at all, and that fdatasync returns only
// when all that was written through this file rests on the medium. Writes reach the device without
// order until barrier() (I1); after a failed write or barrier nothing is written (I8), and a failed
// fdatasync is never repeated: the kernel may have dropped the pages it failed for.
#include "media/block/medium.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "media/block/buffers.hpp"
#include "media/block/cached.hpp"
#include "media/block/grow.hpp"
#include "media/block/os.hpp"
#include "media/block/reader.hpp"
#include "media/block/words.hpp"
#include "media/pins.hpp"

namespace tensorshelf {
namespace {

constexpr unsigned kMaxQueueDepth = 1024;
// Between two barriers. Of many small writes neighbours are joined, and go around the cache.
constexpr unsigned kMostCached = 16;
constexpr std::uint64_t kAllRoom = ~std::uint64_t{0};

void check_tuning(const BlockTuning& tuning) {
  const bool buffer_good = tuning.buffer_bytes >= kChunkBytes &&
                           tuning.buffer_bytes % kChunkBytes == 0 &&
                           tuning.buffer_bytes <= 1024 * kChunkBytes;
  const bool depth_good = tuning.queue_depth >= 1 && tuning.queue_depth <= kMaxQueueDepth;
  if (buffer_good && depth_good) return;
  throw Error(Errc::bad_argument,
              fmt::format("{} buffers of {} bytes are no tuning of the block medium",
                          tuning.queue_depth, tuning.buffer_bytes),
              fmt::format("the buffer is a multiple of 1 MiB up to 1 GiB, queue_depth 1 to {}",
                          kMaxQueueDepth));
}

std::uint64_t whole_pages(std::uint64_t size_bytes) { return size_bytes / kPageBytes * kPageBytes; }

class BlockMedium final : public Medium {
 public:
  BlockMedium(std::shared_ptr<ShelfFile> file, const OpenOptions& options, const BlockSeam& seam)
      : file_(std::move(file)),
        max_size_bytes_(options.max_size_bytes),
        zeroed_bytes_(options.zero_room ? options.block.zeroed_bytes : 0),
        pins_(make_pin_table(file_)),
        memory_(options.block.buffer_bytes * options.block.queue_depth),
        size_bytes_(whole_pages(file_->size_bytes())),
        room_bytes_(file_->writable() && file_->kind() == FileKind::regular ? 0 : kAllRoom),
        probe_(seam.probe) {
    stored_.reserve(WordPages::kMost);
    describe(options.block);
    if (!seam.note.empty()) promises_.notes.push_back(seam.note);
    const StagingShape shape{memory_.bytes(), options.block.buffer_bytes,
                             options.block.queue_depth};
    backend_ = choose_backend(shape, options.block);
    // Where others than this kernel reach the file, what its cache shows is not what there is. And
    // a reader must not have its pages there: where the kernel cannot drop one that is being read,
    // as a write goes around the cache, it fails the writer's next flush.
    const bool ours = promises_.one_machine && file_->kind() == FileKind::regular;
    if (ours && file_->writable()) {
      backend_ = make_cached_backend(std::move(backend_), file_->fd());
    }
    if (seam.wrap) backend_ = seam.wrap(std::move(backend_));
    staging_ = std::make_unique<StagingBuffers>(*backend_, shape, file_->path());
    reader_ = std::make_unique<BlockReader>(*backend_, file_->path());
  }

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    try_direct_write(at);
    if (!planted(Bug::word_page_not_followed)) word_pages_.follow(at, bytes);
    const bool small = bytes.size() <= StagingBuffers::kMostCachedBytes;
    if (small && backend_->caches() && cached_++ < kMostCached) {
      if (const auto ticket = staging_->write_cached(at, bytes, seed)) return *ticket;
    }
    return staging_->write(at, bytes, seed);
  }

  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override {
    if (!StagingBuffers::can_lend(bytes)) return write(at, bytes, seed);
    try_direct_write(at);
    if (!planted(Bug::word_page_not_followed)) word_pages_.follow(at, bytes);
    return staging_->write_lent(at, bytes, seed);
  }

  void await_lent(std::span<const std::byte> bytes) noexcept override {
    if (::getpid() != process_) return;  // the drive has its parent's pages, and no say of ours
    if (!planted(Bug::lent_not_awaited)) staging_->await_lent(bytes);
  }

  void wait(const Ticket& ticket) override { staging_->wait(ticket.sequence); }

  void barrier() override {
    // All words at once, and no other writer's bytes.
    if (!planted(Bug::words_not_drained)) staging_->drain_pages(stored_);
    stored_.clear();
    staging_->check();
    // I1, I2: of whichever the store makes this one.
    int result = planted(Bug::flush_left_out) ? 0 : backend_->sync();
    if (result < 0 && planted(Bug::flush_repeated)) result = backend_->sync();  // breaks I8
    if (result < 0) fail({"barrier (fdatasync)", 0, 0, result});
    cached_ = 0;
  }

  void store_word(std::uint64_t at, std::uint64_t word) override {
    const std::uint64_t page_at = whole_pages(at);
    try_direct_write(page_at);
    staging_->check();
    std::span<std::byte> page = word_pages_.find(page_at);
    if (page.empty()) {
      staging_->drain(page_at, kPageBytes);
      page = word_pages_.add(page_at);
      reader_->read(page_at, page);
      word_pages_.keep_added();
    }
    std::memcpy(page.data() + (at - page_at), &word, sizeof word);
    // One request of one page whose other bytes the medium already has: torn sectors do no harm,
    // and the word lies within one (I4).
    if (backend_->caches() && staging_->write_cached(page_at, page, 0)) return;
    stored_.push_back(page_at);  // before: a word that nobody waits for would be no word
    staging_->write(page_at, page, 0);
  }

  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (file_->writable()) staging_->drain(at, bytes.size());
    reader_->read(at, bytes);
  }

  void look(std::uint64_t at, std::span<std::byte> bytes) override {
    if (!backend_->caches()) return read(at, bytes);
    staging_->drain(at, bytes.size());
    const std::int64_t result = backend_->read_cached(at, bytes);
    if (result == static_cast<std::int64_t>(bytes.size())) return;
    throw transfer_error(file_->path(), {"read", at, bytes.size(), result});
  }

  std::span<const std::byte> view(const Extent& /*extent*/) override { return {}; }

  // A writer is the one who makes the file grow.
  std::uint64_t size() override {
    if (!file_->writable()) size_bytes_ = whole_pages(file_->size_bytes());
    return size_bytes_;
  }

  std::uint64_t reserve(std::uint64_t size_bytes) override {
    TENSORSHELF_ASSERT(size_bytes > 0);
    const FileGrowth growth{file_->fd(), file_->path(), size_bytes_,
                            round_up(size_bytes, kPageBytes)};
    if (growth.to_bytes > growth.from_bytes) {
      check_limits(growth);
      staging_->check();
    }
    const std::uint64_t there = std::min(growth.from_bytes, growth.to_bytes);
    if (there > room_bytes_) {  // as far as it is asked for: a sparse file may go on for terabytes
      try_direct_write(there - kPageBytes);
      fill_holes({file_->fd(), file_->path(), room_bytes_, there}, *backend_, *staging_);
      room_bytes_ = there;
    }
    if (growth.to_bytes > growth.from_bytes) {
      try_direct_write(growth.from_bytes);
      const bool small = growth.to_bytes - growth.from_bytes <= zeroed_bytes_;
      grow_file(growth, *backend_, *staging_, small);
      room_bytes_ = size_bytes_ = growth.to_bytes;
    }
    return std::min(size_bytes_, room_bytes_);
  }

  // What is on its way there comes to its end first: it would make the file longer again.
  std::uint64_t shrink(std::uint64_t size_bytes) override {
    if (!file_->writable() || file_->kind() != FileKind::regular) return size();
    TENSORSHELF_ASSERT(size_bytes > 0 && size_bytes % kPageBytes == 0 && size_bytes <= size_bytes_);
    staging_->drain(size_bytes, size_bytes_ - size_bytes);
    staging_->check();
    cut_file(file_->fd(), file_->path(), size_bytes);
    word_pages_.forget_from(size_bytes);
    size_bytes_ = size_bytes;
    room_bytes_ = std::min(room_bytes_, size_bytes);
    return size_bytes;
  }

  PinTable* pins() override { return pins_.get(); }

  Promises promises() const override {
    std::unique_lock lock(promises_mutex_);
    Promises promises = promises_;
    promises.detail = place_ + (direct_ ? ", O_DIRECT" : ", buffered") + way_;
    lock.unlock();
    for (std::string& note : staging_->backend_notes()) promises.notes.push_back(std::move(note));
    return promises;
  }

  // A child after fork() may only destroy, and must touch neither the ring nor the condition
  // variable that its parent's threads use: it lets go of them instead.
  ~BlockMedium() override {
    if (::getpid() == process_) return;
    backend_->abandon();
    static_cast<void>(staging_.release());
    static_cast<void>(backend_.release());
  }

 private:
  void check_limits(const FileGrowth& growth) const {
    if (file_->kind() == FileKind::block_device) {
      throw full_error(growth, fmt::format("the device has {}", size_text(growth.from_bytes)),
                       "use a larger device, or a file, which grows by itself");
    }
    if (max_size_bytes_ != 0 && growth.to_bytes > max_size_bytes_) {
      throw full_error(growth, fmt::format("the size is capped at {}", size_text(max_size_bytes_)),
                       "open the shelf with a larger size=, or without one");
    }
    TENSORSHELF_ASSERT(file_->writable());
  }

  void describe(const BlockTuning& tuning) {
    BlockFacts facts = probe_facts(file_->fd(), file_->kind());
    if (facts.sector_bytes > kPageBytes) {
      throw Error(
          Errc::unsupported,
          fmt::format("{}: the device has sectors of {}, the limit is {}", file_->path().string(),
                      size_text(facts.sector_bytes), size_text(kPageBytes)),
          "use a device with sectors of 512 bytes or 4 KiB");
    }
    promises_.medium = "block";
    promises_.survives = facts.survives;
    promises_.volatile_cache = facts.volatile_cache;
    promises_.one_machine = facts.one_machine;
    promises_.atomic_bytes = facts.sector_bytes;
    promises_.notes = std::move(facts.notes);
    if (facts.in_memory) {
      promises_.notes.emplace_back(
          "Memory holds the bytes: they survive a process crash, not a power loss. Put the shelf "
          "on a drive to survive that too.");
    } else if (facts.volatile_cache) {
      promises_.remarks.emplace_back(
          "The drive may have a volatile write cache: surviving a power loss rests on it honouring "
          "flushes. A drive with power-loss protection does not depend on that.");
    }
    place_ = facts.place;
    if (!tuning.direct) {
      probe_.set_direct(file_->fd(), false);
      promises_.notes.emplace_back(
          "O_DIRECT switched off by option: writing through the page cache, which costs a second "
          "copy and memory. Switch it on again to go around the cache.");
    } else if (const std::string refused = probe_direct(*file_, probe_); !refused.empty()) {
      note_no_direct(refused);
    } else {
      direct_ = true;
    }
    direct_write_tried_ = !direct_ || !file_->writable();
  }

  void note_no_direct(const std::string& refused) {
    direct_ = false;
    promises_.notes.push_back(
        refused +
        ": writing through the page cache, which costs a second copy and memory. Use a file "
        "system that supports it, such as ext4 or xfs.");
  }

  // Not before there is something to write: see probe_direct_write().
  void try_direct_write(std::uint64_t at) {
    if (direct_write_tried_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(promises_mutex_);
    if (direct_write_tried_) return;
    const std::string refused = probe_direct_write(*file_, at, probe_);
    if (!refused.empty()) note_no_direct(refused);
    direct_write_tried_.store(true, std::memory_order_release);
  }

  std::unique_ptr<BlockBackend> choose_backend(const StagingShape& shape,
                                               const BlockTuning& tuning) {
    if (!file_->writable()) {  // reads only
      way_ = ", read-only";
      const bool around_cache = direct_ && tuning.io_uring;
      return around_cache ? make_read_backend(file_->fd()) : make_pwrite_backend(file_->fd(), {});
    }
    if (tuning.io_uring) {
      if (auto backend = make_uring_backend(file_->fd(), shape, promises_.notes)) {
        way_ = ", io_uring";
        return backend;
      }
    } else {
      promises_.notes.emplace_back(
          "io_uring switched off by option: writing with pwrite, which is slower. Switch it on "
          "again to keep several writes in flight.");
    }
    way_ = ", pwrite";
    return make_pwrite_backend(file_->fd(), shape);
  }

  [[noreturn]] void fail(const FailedTransfer& failed) {
    staging_->fail(failed);  // before its text, for which there may be no memory
    throw transfer_error(file_->path(), failed);
  }

  const pid_t process_ = ::getpid();
  const std::shared_ptr<ShelfFile> file_;
  const std::uint64_t max_size_bytes_;
  const std::uint64_t zeroed_bytes_;  // up to so many of new room at a time
  const std::unique_ptr<PinTable> pins_;
  PageMemory memory_;
  WordPages word_pages_;
  std::vector<std::uint64_t> stored_;  // pages with words that no barrier() has covered
  std::atomic<unsigned> cached_ = 0;   // small writes since the last barrier()
  std::uint64_t size_bytes_;
  std::uint64_t room_bytes_;  // from 0 to here every block is allocated; beyond there may be holes
  const ProbeCalls probe_;
  std::string place_;
  const char* way_ = "";
  mutable std::mutex promises_mutex_;  // the two below, from the first write on
  Promises promises_;                  // but for the detail, which is put together when asked for
  bool direct_ = false;
  std::atomic<bool> direct_write_tried_ = false;
  std::unique_ptr<BlockBackend> backend_;
  std::unique_ptr<StagingBuffers> staging_;  // after the backend, which it uses to its end
  std::unique_ptr<BlockReader> reader_;
};

}  // namespace

std::unique_ptr<Medium> make_block_medium(std::shared_ptr<ShelfFile> file,
                                          const OpenOptions& options, const BlockSeam& seam) {
  if (file->kind() == FileKind::dax_device) {
    throw Error(
        Errc::unsupported,
        fmt::format("{} is a DevDAX device, which can only be mapped", file->path().native()),
        "leave the tier automatic, or use tier=\"pmem\"");
  }
  check_tuning(options.block);
  return std::make_unique<BlockMedium>(std::move(file), options, seam);
}

std::unique_ptr<Medium> make_block_medium(std::shared_ptr<ShelfFile> file,
                                          const OpenOptions& options, std::string note) {
  BlockSeam seam;
  seam.note = std::move(note);
  return make_block_medium(std::move(file), options, seam);
}

}  // namespace tensorshelf
