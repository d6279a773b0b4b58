// What every medium gets around it: bounds and alignment, counters, and the poisoned state of I8.
// A write, word, wait, barrier or growth that fails leaves it unknown what is on the medium, so all
// later ones are refused until the shelf is reopened; reads go on. fsync that failed once is never
// retried, because the kernel may have dropped the pages it failed to write.
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <tensorshelf/error.hpp>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "media/media.hpp"

namespace tensorshelf {

struct GuardedMedium::State {
  std::unique_ptr<Medium> inner;
  std::atomic<std::uint64_t> size = 0;

  std::atomic<std::uint64_t> writes = 0;
  std::atomic<std::uint64_t> bytes_written = 0;
  std::atomic<std::uint64_t> words = 0;
  std::atomic<std::uint64_t> barriers = 0;
  std::atomic<std::uint64_t> reads = 0;
  std::atomic<std::uint64_t> bytes_read = 0;

  std::atomic<std::uint64_t> words_before = 0;  // the last barrier; for mistakes on purpose
  std::atomic<std::uint64_t> left_out = 0;

  std::atomic<bool> failed = false;
  std::mutex first_failure_lock;  // guards the two below
  std::string first_failure;      // set once, before `failed`
  int first_errno = 0;

  void poison(std::string_view verb, const char* what, int os_error) noexcept {
    const std::lock_guard lock(first_failure_lock);
    if (failed || planted(Bug::failure_forgotten)) return;
    try {
      first_failure = fmt::format("{}: {}", verb, what);
    } catch (const std::bad_alloc&) {  // then without the reason
    }
    first_errno = os_error;
    failed.store(true, std::memory_order_release);
  }

  void refuse_if_failed() {
    if (!failed.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(first_failure_lock);
    throw Error(Errc::failed, fmt::format("an earlier {}", first_failure),
                "reopen the shelf; the committed version is intact and can be read", first_errno);
  }

  // Runs a call after whose failure nobody knows what the medium holds. Any exception counts, also
  // std::bad_alloc: it may stand for a failed flush, for whose error there was no memory.
  template <class Action>
  auto or_poison(std::string_view verb, Action action, std::optional<Errc> harmless = {}) {
    refuse_if_failed();
    try {
      return action();
    } catch (const Error& error) {
      if (error.code() != harmless) poison(verb, error.what(), error.os_error());
      throw;
    } catch (const std::exception& error) {
      poison(verb, error.what(), 0);
      throw;
    } catch (...) {
      poison(verb, "unknown exception", 0);
      throw;
    }
  }

  // Mistakes on purpose. A barrier behind a word is I2's, any other I1's.
  bool leaves_out_barrier() {
    if (!planted(Bug::flip_without_barrier) && !planted(Bug::ack_without_barrier) &&
        !planted(Bug::two_words_at_once)) {
      return false;
    }
    const std::uint64_t stored = words.load(std::memory_order_relaxed);
    const bool flipped = words_before.exchange(stored) != stored;
    if (!flipped) return planted(Bug::flip_without_barrier);
    return planted(Bug::ack_without_barrier) ||
           (planted(Bug::two_words_at_once) && left_out++ % 2 == 0);
  }

  bool within(std::uint64_t at, std::uint64_t size_bytes) const {
    const std::uint64_t end = size.load(std::memory_order_relaxed);
    return at <= end && size_bytes <= end - at;
  }

  // Places to read come from the medium itself, which may be damaged or hostile.
  void require_within(std::uint64_t at, std::uint64_t size_bytes) const {
    if (within(at, size_bytes)) return;
    throw Error(Errc::corrupt,
                fmt::format("{} bytes at offset {} lie beyond the medium's end at {}", size_bytes,
                            at, size.load(std::memory_order_relaxed)),
                "restore the shelf from a copy; its metadata names bytes it does not have");
  }
};

namespace {

void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

GuardedMedium::GuardedMedium(std::unique_ptr<Medium> inner) : state_(std::make_unique<State>()) {
  TENSORSHELF_ASSERT(inner != nullptr);
  state_->inner = std::move(inner);
  state_->size = state_->inner->size();
}

GuardedMedium::~GuardedMedium() = default;

Ticket GuardedMedium::write(std::uint64_t at, std::span<const std::byte> bytes,
                            std::uint64_t seed) {
  TENSORSHELF_ASSERT(at % kPageBytes == 0);
  TENSORSHELF_ASSERT(bytes.size() <= kChunkBytes);
  TENSORSHELF_ASSERT(state_->within(at, bytes.size()));
  const Ticket ticket = state_->or_poison(
      "write failed", [&] { return state_->inner->write(at, bytes, seed); },
      Errc::corrupt);  // of the source: who wrote looks to it that nothing half-written counts
  add(state_->writes, 1);
  add(state_->bytes_written, bytes.size());
  return ticket;
}

void GuardedMedium::wait(const Ticket& ticket) {
  if (planted(Bug::wait_left_out)) return;
  state_->or_poison("write failed", [&] { state_->inner->wait(ticket); });
}

void GuardedMedium::barrier() {
  if (state_->leaves_out_barrier()) return;
  state_->or_poison("barrier failed", [&] {
    try {
      state_->inner->barrier();
    } catch (const Error&) {
      if (planted(Bug::barrier_repeated)) return state_->inner->barrier();
      if (!planted(Bug::barrier_error_swallowed)) throw;
    }
  });
  add(state_->barriers, 1);
}

void GuardedMedium::store_word(std::uint64_t at, std::uint64_t word) {
  TENSORSHELF_ASSERT(at % sizeof word == 0);
  TENSORSHELF_ASSERT(state_->within(at, sizeof word));
  state_->or_poison("word store failed", [&] { state_->inner->store_word(at, word); });
  add(state_->words, 1);
}

void GuardedMedium::read(std::uint64_t at, std::span<std::byte> bytes) {
  state_->require_within(at, bytes.size());
  state_->inner->read(at, bytes);
  add(state_->reads, 1);
  add(state_->bytes_read, bytes.size());
}

void GuardedMedium::look(std::uint64_t at, std::span<std::byte> bytes) {
  state_->require_within(at, bytes.size());
  state_->inner->look(at, bytes);
  add(state_->reads, 1);
  add(state_->bytes_read, bytes.size());
}

std::span<const std::byte> GuardedMedium::view(const Extent& extent) {
  state_->require_within(extent.at, extent.size_bytes);
  return state_->inner->view(extent);
}

std::uint64_t GuardedMedium::size() {
  const std::uint64_t now = state_->inner->size();
  state_->size.store(now, std::memory_order_relaxed);
  return now;
}

std::uint64_t GuardedMedium::reserve(std::uint64_t size_bytes) {
  // Asked also where the file is as long already: only the medium knows whether that is room.
  const std::uint64_t grown = state_->or_poison(
      "growth failed", [&] { return state_->inner->reserve(size_bytes); },
      Errc::full);  // a full medium lost nothing
  TENSORSHELF_ASSERT(grown >= size_bytes);
  // A file may be longer than the room in it; what is there can still be read.
  if (grown > state_->size.load(std::memory_order_relaxed)) {
    state_->size.store(grown, std::memory_order_relaxed);
  }
  return grown;
}

Promises GuardedMedium::promises() const { return state_->inner->promises(); }

PinTable* GuardedMedium::pins() { return state_->inner->pins(); }

MediumCounters GuardedMedium::counters() const {
  return {state_->writes,   state_->bytes_written, state_->words,
          state_->barriers, state_->reads,         state_->bytes_read};
}

bool GuardedMedium::failed() const { return state_->failed.load(std::memory_order_acquire); }

}  // namespace tensorshelf
