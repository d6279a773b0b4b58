// The staging buffers of the block medium: they join neighbouring small writes into large ones,
// keep several device writes in flight, and keep the first error until everyone has seen it.
//
//   free -> open -> closing -> in_flight -> free
//           place()  close()   submit()     complete()
//
// What is lent takes a buffer's turn, and goes from free to in_flight: its bytes are written from
// where they lie, and the buffer's own memory rests.
//
// Several buffers may be open at once, one per stream of writes that continue each other (tensor
// data, and the two copies of metadata). The copy into a buffer runs outside the lock, so several
// threads copy in parallel; whoever finishes last on a closing buffer submits it.
//
// Order: a write to bytes that a buffer holds lands after that buffer's (in place while the buffer
// is open, else once it is on the device). Writes to different bytes land in any order; order
// between them is what barrier() is for (I1).
// Errors: the first is kept and thrown by every later write(), wait() and check(): it cannot be
// lost (I8). What was not yet submitted is then dropped. It is kept as numbers, so that memory
// which runs out just then can neither lose it nor leave a buffer that nobody submits.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "media/block/backend.hpp"
#include "media/block/os.hpp"

namespace tensorshelf {

class StagingBuffers {
 public:
  // The backend and the memory must outlive it. `path` is for error texts.
  StagingBuffers(BlockBackend& backend, const StagingShape& shape, std::filesystem::path path);
  ~StagingBuffers();  // waits for what is in flight, drops what is open

  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed);
  // At once, through the page cache: for few and small ones, of kMostCachedBytes at most. Nothing
  // is written where another write is on its way to the device: the kernel would have to drop from
  // its cache what that one wrote, may find it beside a page that this one made dirty, in one
  // folio, and then fails the next flush.
  std::optional<Ticket> write_cached(std::uint64_t at, std::span<const std::byte> bytes,
                                     std::uint64_t seed);
  static constexpr std::uint64_t kMostCachedBytes = 64 * 1024;
  // At once, and from where they lie (Medium::write_lent()): whole pages in an aligned place, on
  // their way to the device when it returns.
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed);
  static bool can_lend(std::span<const std::byte> bytes);
  void await_lent(std::span<const std::byte> bytes) noexcept;
  void wait(std::uint64_t sequence);

  // Return when no buffer holds a byte of the range, or of these pages, which leave together. Throw
  // nothing: reads go on after a failure.
  void drain(std::uint64_t at, std::uint64_t size_bytes);
  void drain_pages(std::span<const std::uint64_t> at);

  void check();                                      // throws the kept failure, if any
  void fail(const FailedTransfer& failed) noexcept;  // keeps it, unless there is one already

  // Writes zeros over new room, all of it waited for. While nothing else runs. Returns 0 or an
  // errno, which is not kept: failing to grow loses nothing.
  int write_zeros(std::uint64_t at, std::uint64_t size_bytes);

  std::vector<std::string> backend_notes();

 private:
  enum class State { free, open, closing, in_flight, lost };
  struct Buffer {
    State state = State::free;
    std::byte* memory = nullptr;
    bool huge = false;                  // it was made huge pages, as far as the kernel does that
    const std::byte* lent = nullptr;    // in place of it
    std::uint64_t at = 0;               // on the medium
    std::uint64_t used_bytes = 0;       // reserved by writes, whole pages
    std::uint64_t on_device_bytes = 0;  // of them, done by earlier, short device writes
    std::uint64_t first_sequence = 0;
    std::uint64_t last_sequence = 0;
    unsigned copying = 0;  // threads still copying into it
    unsigned tries = 0;    // in a row without progress

    bool busy() const { return state != State::free && state != State::lost; }
    bool holds(std::uint64_t from, std::uint64_t to) const {
      return busy() && at < to && from < at + used_bytes;
    }
    bool has_lent(std::span<const std::byte> bytes) const {
      const std::less<const std::byte*> lies_before;
      return lent != nullptr && lies_before(lent, bytes.data() + bytes.size()) &&
             lies_before(bytes.data(), lent + used_bytes);
    }
  };
  using Lock = std::unique_lock<std::mutex>;

  Buffer* place(std::uint64_t at, std::uint64_t size_bytes);
  Buffer* least_recent_open();
  Buffer* find_free();
  void close(Buffer& buffer);
  void begin(Buffer& buffer) noexcept;
  void submit() noexcept;
  void release(Buffer& buffer) noexcept;
  void progress(Lock& lock);
  void reap(Lock& lock);
  void complete(const DeviceCompletion& completion) noexcept;
  void give_up_in_flight(const FailedTransfer& failed) noexcept;
  void keep(const FailedTransfer& failed) noexcept;
  void throw_failure() const;
  DeviceWrite rest_of(const Buffer& buffer) const noexcept;  // not yet on the device

  // Closes and waits for every buffer that matches. Allocates nothing.
  template <class Match>
  void settle(Lock& lock, Match match);

  BlockBackend& backend_;
  const std::uint64_t buffer_bytes_;
  const unsigned max_open_;
  const std::span<std::byte> memory_;
  const std::filesystem::path path_;

  std::mutex mutex_;  // all below, and backend_.submit()
  std::condition_variable changed_;
  std::vector<Buffer> buffers_;
  std::vector<DeviceWrite> begun_;  // for the next submit(); there is room for every buffer
  std::uint64_t sequence_ = 0;
  unsigned open_ = 0;
  unsigned in_flight_ = 0;
  std::unique_ptr<std::byte[]> cached_copy_;  // of what write_cached() writes
  bool huge_pages_ = false;
  bool reaping_ = false;  // one thread is in backend_.complete(), without the lock
  std::optional<FailedTransfer> failure_;
};

template <class Match>
void StagingBuffers::settle(Lock& lock, Match match) {
  for (;;) {
    bool busy = false;
    for (Buffer& buffer : buffers_) {
      if (!buffer.busy() || !match(buffer)) continue;
      if (buffer.state == State::open) close(buffer);
      busy = busy || buffer.busy();
    }
    if (!busy) return;
    progress(lock);
  }
}

}  // namespace tensorshelf
