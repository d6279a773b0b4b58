// The media of a shelf as one, and what every medium gets around it: bounds and alignment,
// counters, and the poisoned state of I8. A write, word, wait, barrier or growth that fails leaves
// it unknown what is on the medium, so all later ones are refused until the shelf is reopened;
// reads go on. fsync that failed once is never retried, because the kernel may have dropped the
// pages it failed to write.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/side_by_side.hpp"
#include "media/guarded_member.hpp"
#include "media/media.hpp"
#include "media/shifted.hpp"

namespace tensorshelf {
namespace {

void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

struct GuardedMedium::State {
  // Those behind the first come one by one, and none goes.
  std::array<std::unique_ptr<GuardedMember>, kMaxMedia> members;
  std::array<std::atomic<GuardedMember*>, kMaxMedia> there = {};
  std::atomic<bool> several = false;
  std::atomic<std::uint64_t> sequence = 0;  // of tickets, where there are several

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
                "reopen the shelf; the committed version is intact, unless its file was cut short",
                first_errno);
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

  GuardedMember* find(unsigned index) const {
    return index < kMaxMedia ? there[index].load(std::memory_order_acquire) : nullptr;
  }

  GuardedMember& member(std::uint64_t place) const {
    GuardedMember* const found = find(medium_of(place));
    TENSORSHELF_ASSERT(found != nullptr);
    return *found;
  }

  bool within(std::uint64_t at, std::uint64_t size_bytes) const {
    const GuardedMember* const found = find(medium_of(at));
    return found != nullptr && found->within(offset_of(at), size_bytes);
  }

  // Places to read come from the medium itself, which may be damaged or hostile.
  void require_within(std::uint64_t at, std::uint64_t size_bytes) const {
    if (within(at, size_bytes)) return;
    const GuardedMember* const found = find(medium_of(at));
    throw Error(Errc::corrupt,
                fmt::format("{} bytes at offset {} lie beyond the medium's end at {}", size_bytes,
                            offset_of(at), found == nullptr ? 0 : found->size.load()),
                "restore the shelf from a copy; its metadata names bytes it does not have");
  }

  std::uint64_t sequence_of(GuardedMember& from, const Ticket& ticket) {
    from.note(ticket.sequence);
    return several ? ++sequence : ticket.sequence;
  }

  Ticket write(decltype(&Medium::write) by, std::uint64_t at, std::span<const std::byte> bytes,
               std::uint64_t seed) {
    TENSORSHELF_ASSERT(at % kPageBytes == 0);
    TENSORSHELF_ASSERT(bytes.size() <= kChunkBytes);
    TENSORSHELF_ASSERT(within(at, bytes.size()));
    GuardedMember& to = member(at);
    const Ticket ticket = or_poison(
        "write failed", [&] { return to.write(by, offset_of(at), bytes, seed); },
        Errc::corrupt);  // of the source: who wrote looks to it that nothing half-written counts
    add(writes, 1);
    add(bytes_written, bytes.size());
    return {sequence_of(to, ticket), ticket.checksum};
  }

  void barrier() {
    if (!several) {
      members[0]->unsettled = false;
      return members[0]->inner->barrier();  // I1, I2: of the first, whatever it got
    }
    std::array<GuardedMember*, kMaxMedia> each = {};
    std::size_t count = 0;
    for (unsigned i = 0; i < (planted(Bug::first_medium_alone_settled) ? 1 : kMaxMedia); ++i) {
      GuardedMember* const one = find(i);
      if (one == nullptr || !one->unsettled) continue;
      if (one->mapped) {
        one->barrier();  // I7: by this thread, which stored the words
      } else {
        each[count++] = one;
      }
    }
    auto settle = [&](std::size_t part) { each[part]->barrier(); };  // I1, I2: each of the others
    sharing.share(static_cast<unsigned>(count), count, PartJob(settle));
  }
};

GuardedMedium::GuardedMedium(std::unique_ptr<Medium> first) : state_(std::make_unique<State>()) {
  TENSORSHELF_ASSERT(first != nullptr);
  state_->members[0] = std::make_unique<GuardedMember>(std::move(first));
  state_->there[0] = state_->members[0].get();
}

GuardedMedium::~GuardedMedium() = default;

void GuardedMedium::attach(unsigned index, std::unique_ptr<Medium> medium) {
  TENSORSHELF_ASSERT(index > 0 && index < kMaxMedia && !is_attached(index));
  state_->members[index] = std::make_unique<GuardedMember>(std::move(medium));
  state_->several = true;
  state_->there[index].store(state_->members[index].get(), std::memory_order_release);
}

void GuardedMedium::mirror(unsigned of, unsigned index, std::uint64_t shift) {
  TENSORSHELF_ASSERT(of != index && is_attached(of) && is_attached(index));
  GuardedMember& member = *state_->find(of);
  TENSORSHELF_ASSERT(member.mirror == nullptr);
  member.mirror_shift = shift;
  member.mirror = state_->find(index);
}

void GuardedMedium::give_up_mirror(unsigned of) { state_->find(of)->mirror = nullptr; }

bool GuardedMedium::read_mirror(std::uint64_t at, std::span<std::byte> bytes) {
  const GuardedMember& member = state_->member(at);
  GuardedMember* const twin = member.mirror;
  const std::uint64_t there = offset_of(at) + member.mirror_shift;
  if (twin == nullptr || !twin->within(there, bytes.size())) return false;
  twin->inner->read(there, bytes);
  return true;
}

bool GuardedMedium::has_mirror(std::uint64_t place) const {
  return state_->member(place).mirror != nullptr;
}

std::uint64_t GuardedMedium::size_of(unsigned index) {
  GuardedMember& member = state_->member(place_on(index, 0));
  const std::uint64_t now = member.inner->size();
  member.size.store(now, std::memory_order_relaxed);
  return now;
}

Promises GuardedMedium::promises_of(unsigned index) const {
  return state_->member(place_on(index, 0)).inner->promises();
}

bool GuardedMedium::is_attached(unsigned index) const { return state_->find(index) != nullptr; }

bool GuardedMedium::is_mirror_alone() const {
  return dynamic_cast<const ShiftedMedium*>(state_->members[0]->inner.get()) != nullptr;
}

bool GuardedMedium::is_settled(unsigned index) const {
  const GuardedMember& one = *state_->members[index];
  return !one.wrote && !one.unsettled;
}

bool GuardedMedium::is_mapped(std::uint64_t place) const {
  const GuardedMember* const found = state_->find(medium_of(place));
  return found != nullptr && found->mapped;
}

Ticket GuardedMedium::write(std::uint64_t at, std::span<const std::byte> bytes,
                            std::uint64_t seed) {
  return state_->write(&Medium::write, at, bytes, seed);
}

Ticket GuardedMedium::write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                                 std::uint64_t seed) {
  return state_->write(&Medium::write_lent, at, bytes, seed);
}

void GuardedMedium::await_lent(std::span<const std::byte> bytes) noexcept {
  if (planted(Bug::lent_given_back_early)) return;
  for (unsigned i = 0; i < kMaxMedia; ++i) {
    if (GuardedMember* const one = state_->find(i)) one->inner->await_lent(bytes);
  }
}

void GuardedMedium::wait(const Ticket& ticket) {
  if (planted(Bug::wait_left_out)) return;
  state_->or_poison("write failed", [&] {
    if (!state_->several) return state_->members[0]->inner->wait(ticket);
    for (unsigned i = 0; i < (planted(Bug::first_medium_alone_awaited) ? 1 : kMaxMedia); ++i) {
      if (GuardedMember* const one = state_->find(i)) one->wait();
    }
  });
}

void GuardedMedium::barrier() {
  if (state_->leaves_out_barrier()) return;
  state_->or_poison("barrier failed", [&] {
    try {
      state_->barrier();  // I1, I2, whoever asks for it; I8 where it throws
    } catch (const Error&) {
      // (Against I8.)
      if (planted(Bug::barrier_repeated)) return state_->members[0]->inner->barrier();
      if (!planted(Bug::barrier_error_swallowed)) throw;
    }
  });
  add(state_->barriers, 1);
}

void GuardedMedium::store_word(std::uint64_t at, std::uint64_t word) {
  TENSORSHELF_ASSERT(at % sizeof word == 0);
  TENSORSHELF_ASSERT(state_->within(at, sizeof word));
  GuardedMember& member = state_->member(at);
  state_->or_poison("word store failed", [&] { member.store_word(offset_of(at), word); });
  add(state_->words, 1);
}

void GuardedMedium::read(std::uint64_t at, std::span<std::byte> bytes) {
  state_->require_within(at, bytes.size());
  state_->member(at).inner->read(offset_of(at), bytes);
  add(state_->reads, 1);
  add(state_->bytes_read, bytes.size());
}

void GuardedMedium::look(std::uint64_t at, std::span<std::byte> bytes) {
  state_->require_within(at, bytes.size());
  state_->member(at).inner->look(offset_of(at), bytes);
  add(state_->reads, 1);
  add(state_->bytes_read, bytes.size());
}

std::span<const std::byte> GuardedMedium::view(const Extent& extent) {
  state_->require_within(extent.at, extent.size_bytes);
  return state_->member(extent.at).inner->view({offset_of(extent.at), extent.size_bytes});
}

std::uint64_t GuardedMedium::size() { return size_of(0); }

std::uint64_t GuardedMedium::reserve(std::uint64_t end) {
  // So far beyond a medium's end that it would be another's: the first says how much it has.
  const bool beyond = !is_attached(medium_of(end));
  GuardedMember& member = beyond ? *state_->members[0] : state_->member(end);
  const std::uint64_t size_bytes = beyond ? end : offset_of(end);
  // Asked also where the file is as long already: only the medium knows whether that is room.
  const std::uint64_t grown = state_->or_poison(
      "growth failed", [&] { return member.reserve(size_bytes); },
      Errc::full);  // a full medium lost nothing
  return beyond ? grown : place_on(medium_of(end), grown);
}

// What fails here has lost nothing.
std::uint64_t GuardedMedium::shrink(std::uint64_t end) {
  GuardedMember& member = state_->member(end);
  const std::uint64_t size_bytes = offset_of(end);
  TENSORSHELF_ASSERT(size_bytes > 0 && size_bytes % kPageBytes == 0);
  TENSORSHELF_ASSERT(member.within(size_bytes, 0));
  state_->refuse_if_failed();
  return place_on(medium_of(end), member.shrink(size_bytes));
}

bool GuardedMedium::mirror_uncut(unsigned index) const {
  const GuardedMember* const one = state_->find(index);
  return one != nullptr && one->mirror_uncut;
}

Promises GuardedMedium::promises() const { return promises_of(0); }

PinTable* GuardedMedium::pins() { return state_->members[0]->inner->pins(); }

MediumCounters GuardedMedium::counters() const {
  return {state_->writes,   state_->bytes_written, state_->words,
          state_->barriers, state_->reads,         state_->bytes_read};
}

bool GuardedMedium::failed() const { return state_->failed.load(std::memory_order_acquire); }

}  // namespace tensorshelf
