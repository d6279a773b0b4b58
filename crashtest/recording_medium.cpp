#include "recording_medium.hpp"

#include <xxhash.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

namespace tensorshelf::crash {

namespace {

constexpr std::uint64_t kWays = 3;  // to fail: with nothing done, with half of it, with all

}  // namespace

bool ReadFaults::meet(std::uint64_t at, std::uint64_t size_bytes) const {
  return std::any_of(pages.begin(), pages.end(), [&](std::uint64_t page) {
    return page < at + size_bytes && at < page + kPageBytes;
  });
}

void ReadFaults::heal(std::uint64_t at, std::uint64_t size_bytes) {
  std::erase_if(
      pages, [&](std::uint64_t page) { return page < at + size_bytes && at < page + kPageBytes; });
}

RecordingMedium::RecordingMedium(Disk& disk, Log& log, const Behaviour& behaviour, ReadSet* reads)
    : disk_(disk), log_(log), behaviour_(behaviour), reads_(reads) {
  log_.second_bytes = behaviour_.second_bytes;
  if (behaviour_.unsure) behaviour_.unsure->begin_process();
}

RecordingMedium::~RecordingMedium() {
  while (!lent_.empty()) take_lent(lent_.front().bytes);
  const bool pmem = behaviour_.personality == Personality::pmem;  // where all is visible at once
  if (pmem ? !unsettled_ : held_.empty()) return;
  const std::uint64_t seed = behaviour_.seed + log_.events.size();
  log_.events.emplace_back(pmem ? DeathEvent{} : held_.end(log_, disk_, seed));
}

void RecordingMedium::happens(Event event) {
  unsettled_ =
      (unsettled_ && !is<BarrierEvent>(event)) || is<WriteEvent>(event) || is<WordEvent>(event);
  log_.events.push_back(std::move(event));
  held_.note(log_, log_.events.size() - 1, disk_);
}

unsigned RecordingMedium::this_thread() {
  const auto number = static_cast<unsigned>(threads_.size());
  return threads_.try_emplace(std::this_thread::get_id(), number).first->second;
}

Stretch RecordingMedium::keep(std::uint64_t at, std::span<const std::byte> content) {
  const Stretch stretch{.at = at, .size_bytes = content.size(), .bytes_at = log_.bytes.size()};
  log_.bytes.insert(log_.bytes.end(), content.begin(), content.end());
  return stretch;
}

// With what is undefined behind them, up to the end of their last page.
Stretch RecordingMedium::keep_page(std::uint64_t at, std::span<const std::byte> content) {
  Stretch stretch = keep(at, content);
  stretch.size_bytes = round_up(content.size(), kPageBytes);
  log_.bytes.resize(stretch.bytes_at + stretch.size_bytes, std::byte{0xDB});
  return stretch;
}

void RecordingMedium::fail_if_told(const char* call, bool loses_all, Part part,
                                   const std::function<void()>& in_part) {
  if (log_.events.size() != behaviour_.fails_at) return;
  happens(FailureEvent{.call = call, .orphans = loses_all, .part = part});
  if (in_part && behaviour_.fails_at % kWays != 0) in_part();
  become_unsure();
  throw Error(Errc::io, fmt::format("the simulated {} failed", call), "Open the shelf again.", 5);
}

void RecordingMedium::tell_late() {
  if (!std::exchange(untold_, false)) return;
  throw Error(Errc::io, "a simulated write failed before this call", "Open the shelf again.", EIO);
}

void RecordingMedium::become_unsure() {
  if (behaviour_.personality == Personality::pmem) return;
  unsure_ = Unsure(log_, disk_.capacity_bytes(), Unsure::What::no_barrier_covered,
                   behaviour_.seed + log_.events.size());
}

void RecordingMedium::written_anew(std::uint64_t at, std::uint64_t size_bytes) {
  if (behaviour_.faults) behaviour_.faults->heal(at, size_bytes);
  if (behaviour_.unsure) behaviour_.unsure->settle(at, size_bytes);
  unsure_.settle(at, size_bytes);
}

// What a call that failed has done all the same: visible, and settled by nobody.
void RecordingMedium::write_in_part(std::uint64_t at, std::span<const std::byte> bytes) {
  const bool whole = behaviour_.fails_at % kWays == 2;
  const std::uint64_t unit =
      behaviour_.personality == Personality::pmem ? kWordBytes : kSectorBytes;
  const std::uint64_t half =
      std::min<std::uint64_t>(round_up(bytes.size() / 2, unit), bytes.size());
  const std::uint64_t part = whole ? bytes.size() : half;
  if (part == 0) return;
  sequence_ = log_.events.size() + 1;
  const Stretch stretch = whole ? keep_page(at, bytes) : keep(at, bytes.first(part));
  happens(
      WriteEvent{.stored = stretch, .ticket = sequence_, .thread = this_thread(), .failed = true});
  disk_.write(at, log_.content(stretch));
}

// A growth that failed leaves a longer file, as a process does that died within it.
void RecordingMedium::grow_in_part(std::uint64_t size_bytes, std::uint64_t way) {
  if (way % kWays == 0) return;
  const std::uint64_t before = disk_.size_bytes();
  const std::uint64_t half = (before + size_bytes) / 2 / kPageBytes * kPageBytes;
  const std::uint64_t part = way % kWays == 1 ? half : size_bytes;
  if (part <= before) return;  // there were holes to fill
  disk_.grow(part);
  log_.events.emplace_back(GrowthEvent{.size_bytes = part, .settles = false, .room = false});
}

void RecordingMedium::assert_room(std::uint64_t at, std::uint64_t size_bytes) const {
  const std::uint64_t room = disk_.room_bytes();
  TENSORSHELF_ASSERT(at <= room && size_bytes <= room - at);
}

// What is not is the mistake of whoever asks, but of a reader whose writer made it shorter.
bool RecordingMedium::is_there(std::uint64_t at, std::uint64_t size_bytes) const {
  const bool there = at + size_bytes <= disk_.size_bytes();
  TENSORSHELF_ASSERT(there || log_.events.empty());
  return there;
}

void RecordingMedium::require_there(std::uint64_t at, std::uint64_t size_bytes) const {
  if (is_there(at, size_bytes)) return;
  throw Error(
      Errc::truncated,
      fmt::format("the simulated medium ends at {:#x}, and {} bytes at {:#x} were to be read",
                  disk_.size_bytes(), size_bytes, at),
      "Open the shelf again.");
}

Ticket RecordingMedium::write(std::uint64_t at, std::span<const std::byte> bytes,
                              std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(at % kPageBytes == 0 && bytes.size() <= kChunkBytes);
  assert_room(at, bytes.size());
  tell_late();
  try {
    fail_if_told("write", false, Part::all, [&] { write_in_part(at, bytes); });
  } catch (const Error&) {
    if (!behaviour_.tells_late || behaviour_.personality == Personality::pmem) throw;
    untold_ = true;
    sequence_ = log_.events.size();
    return {sequence_, XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed)};
  }
  const std::uint64_t sequence = sequence_ = log_.events.size() + 1;
  const Stretch stretch = keep_page(at, bytes);
  happens(WriteEvent{.stored = stretch,
                     .ticket = sequence,
                     .thread = this_thread(),
                     .drained = !behaviour_.bugs.worker_without_drain});
  disk_.write(at, log_.content(stretch));
  written_anew(at, stretch.size_bytes);
  return {sequence, XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed)};
}

Ticket RecordingMedium::write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                                   std::uint64_t seed) {
  const Ticket ticket = write(at, bytes, seed);
  const std::lock_guard lock(mutex_);
  if (untold_) return ticket;
  const auto& written = std::get<WriteEvent>(log_.events[ticket.sequence - 1]);
  const bool pages = bytes.size() % kPageBytes == 0 &&
                     reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageBytes == 0;
  if (behaviour_.personality == Personality::block && pages) {
    lent_.push_back({bytes, written.stored});
  }
  return ticket;
}

void RecordingMedium::await_lent(std::span<const std::byte> bytes) noexcept {
  const std::lock_guard lock(mutex_);
  take_lent(bytes);
}

// Those of them that lie, in part or whole, in `bytes`.
void RecordingMedium::take_lent(std::span<const std::byte> bytes) {
  std::erase_if(lent_, [&](const Lent& lent) {
    const std::less<> before;
    if (!before(lent.bytes.data(), bytes.data() + bytes.size()) ||
        !before(bytes.data(), lent.bytes.data() + lent.bytes.size())) {
      return false;
    }
    std::byte* const noted = log_.bytes.data() + lent.stored.bytes_at;
    if (std::memcmp(noted, lent.bytes.data(), lent.bytes.size()) == 0) return true;
    std::memcpy(noted, lent.bytes.data(), lent.bytes.size());
    disk_.write(lent.stored.at, lent.bytes);
    return true;
  });
}

void RecordingMedium::wait_for(const Ticket& ticket, Part part) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(ticket.sequence <= sequence_);
  while (!lent_.empty()) take_lent(lent_.front().bytes);
  tell_late();
  fail_if_told("wait", true, part);
  happens(WaitEvent{ticket.sequence, part});
}

void RecordingMedium::settle(Part part) {
  const std::lock_guard lock(mutex_);
  tell_late();
  fail_if_told("barrier", true, part);
  happens(BarrierEvent{this_thread(), part});
}

void RecordingMedium::store_word(std::uint64_t at, std::uint64_t word) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(at % kWordBytes == 0);
  assert_room(at, kWordBytes);
  tell_late();
  const auto store = [&](bool failed) {
    std::array<std::byte, kWordBytes> bytes;
    std::memcpy(bytes.data(), &word, sizeof word);
    const auto record = [&](std::uint64_t place, std::span<const std::byte> content) {
      const Stretch stretch = keep(place, content);
      happens(WordEvent{.stored = stretch, .thread = this_thread(), .failed = failed});
      disk_.write(place, log_.content(stretch));
    };
    if (behaviour_.bugs.torn_word) {
      constexpr std::size_t half = kWordBytes / 2;
      record(at, std::span(bytes).first(half));
      record(at + half, std::span(bytes).last(half));
    } else if (behaviour_.personality == Personality::pmem) {
      record(at, bytes);
    } else {
      const std::uint64_t page = at / kPageBytes * kPageBytes;
      std::vector<std::byte> content(kPageBytes);
      show(page, content);
      std::memcpy(content.data() + (at - page), &word, sizeof word);
      record(page, content);
      if (!failed) written_anew(page, kPageBytes);
    }
  };
  fail_if_told("word", false, Part::all, [&] { store(true); });
  store(false);
}

void RecordingMedium::read(std::uint64_t at, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  require_there(at, bytes.size());
  if (bytes.empty()) return;
  if (behaviour_.faults && behaviour_.faults->meet(at, bytes.size())) {
    if (behaviour_.faults->once) behaviour_.faults->heal(at, bytes.size());
    throw Error(Errc::io, fmt::format("reading {} bytes at {:#x} failed", bytes.size(), at),
                "Part of the simulated medium cannot be read.", EIO);
  }
  if (reads_) reads_->add(at, bytes.size());
  show(at, bytes);
}

void RecordingMedium::look(std::uint64_t at, std::span<std::byte> bytes) {
  if (behaviour_.personality == Personality::pmem) return read(at, bytes);
  const std::lock_guard lock(mutex_);
  require_there(at, bytes.size());
  if (reads_) reads_->add(at, bytes.size());
  copy_out(at, bytes);
}

void RecordingMedium::copy_out(std::uint64_t at, std::span<std::byte> bytes) const {
  std::memcpy(bytes.data(), disk_.bytes().data() + at, bytes.size());
}

void RecordingMedium::show(std::uint64_t at, std::span<std::byte> bytes) {
  copy_out(at, bytes);
  if (behaviour_.unsure) behaviour_.unsure->show(at, bytes);
  unsure_.show(at, bytes);
}

std::span<const std::byte> RecordingMedium::view(const Extent& extent) {
  if (behaviour_.personality == Personality::block) return {};
  const std::lock_guard lock(mutex_);
  if (!is_there(extent.at, extent.size_bytes)) return {};
  if (behaviour_.faults && behaviour_.faults->meet(extent.at, extent.size_bytes)) return {};
  if (reads_) reads_->add(extent.at, extent.size_bytes);
  return disk_.bytes().subspan(extent.at, extent.size_bytes);
}

std::uint64_t RecordingMedium::size() {
  const std::lock_guard lock(mutex_);
  return disk_.size_bytes();
}

// Errc::full, where it ends, and once where it is told to.
void RecordingMedium::refuse_growth(std::uint64_t size_bytes) {
  const bool told = log_.events.size() == behaviour_.full_at;
  if (!told && size_bytes <= behaviour_.max_size_bytes) return;
  if (told) grow_in_part(size_bytes, std::exchange(behaviour_.full_at, ~std::uint64_t{0}));
  throw Error(Errc::full,
              fmt::format("the simulated medium ends at {} bytes, {} were asked for",
                          told ? disk_.room_bytes() : behaviour_.max_size_bytes, size_bytes),
              "raise Behaviour::max_size_bytes");
}

std::uint64_t RecordingMedium::reserve(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  std::uint64_t size = round_up(size_bytes, kPageBytes);
  if (size <= disk_.room_bytes()) return disk_.room_bytes();
  tell_late();
  refuse_growth(size);
  size = std::clamp(round_up(size, behaviour_.granule_bytes), size, behaviour_.max_size_bytes);
  fail_if_told("reserve", false, Part::all, [&] { grow_in_part(size, behaviour_.fails_at); });
  const bool first = disk_.size_bytes() == 0;  // as it is formatted
  disk_.grow(size);
  disk_.make_room(size);
  const bool settles = first || !behaviour_.bugs.growth_not_settled;
  log_.events.emplace_back(GrowthEvent{.size_bytes = size, .settles = settles});
  return size;
}

std::uint64_t RecordingMedium::shrink(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(size_bytes > 0 && size_bytes % kPageBytes == 0);
  TENSORSHELF_ASSERT(size_bytes <= disk_.size_bytes());
  const std::uint64_t before = disk_.size_bytes();
  if (size_bytes == before) return size_bytes;
  if (log_.events.size() == behaviour_.full_at) {
    behaviour_.full_at = ~std::uint64_t{0};
    throw Error(Errc::io, "the simulated medium cannot be made shorter", "Go on.", EIO);
  }
  happens(CutEvent{size_bytes});
  disk_.cut(size_bytes);
  written_anew(size_bytes, before - size_bytes);
  return size_bytes;
}

Promises RecordingMedium::promises() const {
  const bool pmem = behaviour_.personality == Personality::pmem;
  return {.medium = personality_name(behaviour_.personality),
          .detail = "recorded in memory",
          .survives = Survives::power_loss,
          .mapped = pmem,
          .needs_flush = pmem,
          .volatile_cache = !pmem,
          .one_machine = !pmem,  // so that both ways to look for a rival are explored
          .atomic_bytes = pmem ? kWordBytes : kSectorBytes,
          .notes = {}};
}

namespace {

// One of two, of one disk.
class HalfMedium final : public Medium {
 public:
  HalfMedium(std::shared_ptr<RecordingMedium> both, Part part, std::uint64_t second_bytes)
      : both_(std::move(both)),
        part_(part),
        second_bytes_(second_bytes),
        base_(part == Part::first ? second_bytes : 0) {}

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    return noted(both_->write(base_ + at, bytes, seed));
  }
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override {
    return noted(both_->write_lent(base_ + at, bytes, seed));
  }
  void await_lent(std::span<const std::byte> bytes) noexcept override { both_->await_lent(bytes); }
  void wait(const Ticket&) override { both_->wait_for({last_, 0}, part_); }
  void barrier() override { both_->settle(part_); }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    both_->store_word(base_ + at, word);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    both_->read(base_ + at, bytes);
  }
  void look(std::uint64_t at, std::span<std::byte> bytes) override {
    both_->look(base_ + at, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    return both_->view({base_ + extent.at, extent.size_bytes});
  }
  std::uint64_t size() override {
    return part_ == Part::second ? second_bytes_ : both_->size() - second_bytes_;
  }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (part_ == Part::first) return both_->reserve(base_ + size_bytes) - base_;
    if (size_bytes <= second_bytes_) return second_bytes_;
    throw Error(Errc::full, fmt::format("the second medium has {} bytes", second_bytes_),
                "Raise kSecondBytes.");
  }
  std::uint64_t shrink(std::uint64_t size_bytes) override {
    return part_ == Part::first ? both_->shrink(base_ + size_bytes) - base_ : second_bytes_;
  }
  Promises promises() const override { return both_->promises(); }

 private:
  // Sequences that do not rise, as those of what goes through a cache: a wait is for all before it.
  Ticket noted(const Ticket& ticket) {
    std::uint64_t seen = last_;
    while (seen < ticket.sequence && !last_.compare_exchange_weak(seen, ticket.sequence)) {
    }
    return {1, ticket.checksum};
  }

  std::shared_ptr<RecordingMedium> both_;
  Part part_;
  std::uint64_t second_bytes_;
  std::uint64_t base_;
  std::atomic<std::uint64_t> last_ = 0;
};

}  // namespace

Recorded recorded(Disk& disk, Log& log, const Behaviour& behaviour, ReadSet* reads) {
  const std::uint64_t second = behaviour.second_bytes;
  if (second == 0) return {std::make_unique<RecordingMedium>(disk, log, behaviour, reads)};
  const auto both = std::make_shared<RecordingMedium>(disk, log, behaviour, reads);
  if (disk.size_bytes() == 0) both->reserve(second);
  Recorded halves{std::make_unique<HalfMedium>(both, Part::first, second)};
  auto other = std::make_unique<HalfMedium>(both, Part::second, second);
  if (behaviour.mirrored) {
    halves.mirrors.push_back({0, std::move(other)});
  } else {
    halves.also.push_back(std::move(other));
  }
  return halves;
}

PlaceTensor place_on_both(const Behaviour& behaviour) {
  if (behaviour.second_bytes == 0 || behaviour.mirrored) return {};
  return [](std::string_view name, std::uint64_t size_bytes) -> std::vector<unsigned> {
    if (size_bytes > kChunkBytes) return {0, 1};
    return {static_cast<unsigned>(name.back()) % 2};
  };
}

}  // namespace tensorshelf::crash
