#include "recording_medium.hpp"

#include <xxhash.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

namespace tensorshelf::crash {

const char* personality_name(Personality personality) {
  return personality == Personality::pmem ? "pmem" : "block";
}

void Log::clear() {
  events.clear();
  bytes.clear();
}

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
    : disk_(disk), log_(log), behaviour_(behaviour), reads_(reads) {}

RecordingMedium::~RecordingMedium() {
  if (waited_ < sequence_) record({.kind = EventKind::wait, .sequence = sequence_}, {});
}

unsigned RecordingMedium::this_thread() {
  const auto number = static_cast<unsigned>(threads_.size());
  return threads_.try_emplace(std::this_thread::get_id(), number).first->second;
}

void RecordingMedium::record(Event event, std::span<const std::byte> content) {
  event.thread = this_thread();
  event.bytes_at = log_.bytes.size();
  event.size_bytes = content.size();
  log_.bytes.insert(log_.bytes.end(), content.begin(), content.end());
  log_.events.push_back(event);
}

void RecordingMedium::fail_if_told(const char* call, bool loses_all) {
  if (log_.events.size() != behaviour_.fails_at) return;
  record({.kind = EventKind::lost, .at = loses_all, .name = call}, {});
  throw Error(Errc::io, fmt::format("the simulated {} failed", call), "Open the shelf again.", 5);
}

Ticket RecordingMedium::write(std::uint64_t at, std::span<const std::byte> bytes,
                              std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(at % kPageBytes == 0 && bytes.size() <= kChunkBytes);
  TENSORSHELF_ASSERT(at + bytes.size() <= disk_.size_bytes());
  fail_if_told("write", false);
  const std::uint64_t sequence = sequence_ = log_.events.size() + 1;
  const std::size_t content_at = log_.bytes.size();
  record({.kind = EventKind::write,
          .drained = !behaviour_.bugs.worker_without_drain,
          .at = at,
          .sequence = sequence},
         bytes);
  if (behaviour_.personality == Personality::block) {
    log_.bytes.resize(content_at + round_up(bytes.size(), kPageBytes), std::byte{0xDB});
    log_.events.back().size_bytes = log_.bytes.size() - content_at;
  }
  disk_.write(at, log_.content(log_.events.back()));
  if (behaviour_.faults) behaviour_.faults->heal(at, bytes.size());
  return {sequence, XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed)};
}

void RecordingMedium::wait(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(ticket.sequence <= sequence_);
  fail_if_told("wait", true);
  waited_ = std::max(waited_, ticket.sequence);
  record({.kind = EventKind::wait, .sequence = ticket.sequence}, {});
}

void RecordingMedium::barrier() {
  const std::lock_guard lock(mutex_);
  fail_if_told("barrier", true);
  record({.kind = EventKind::barrier, .sequence = sequence_}, {});
}

void RecordingMedium::store_word(std::uint64_t at, std::uint64_t word) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(at % kWordBytes == 0 && at + kWordBytes <= disk_.size_bytes());
  fail_if_told("word", false);
  std::array<std::byte, kWordBytes> bytes;
  std::memcpy(bytes.data(), &word, sizeof word);
  disk_.write(at, bytes);
  if (behaviour_.bugs.torn_word) {
    constexpr std::size_t half = kWordBytes / 2;
    record({.kind = EventKind::word, .at = at}, std::span(bytes).first(half));
    record({.kind = EventKind::word, .at = at + half}, std::span(bytes).last(half));
  } else if (behaviour_.personality == Personality::pmem) {
    record({.kind = EventKind::word, .at = at}, bytes);
  } else {
    const std::uint64_t page = at / kPageBytes * kPageBytes;
    record({.kind = EventKind::word, .at = page}, disk_.bytes().subspan(page, kPageBytes));
    if (behaviour_.faults) behaviour_.faults->heal(page, kPageBytes);
  }
}

void RecordingMedium::read(std::uint64_t at, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(at + bytes.size() <= disk_.size_bytes());
  if (bytes.empty()) return;
  if (behaviour_.faults && behaviour_.faults->meet(at, bytes.size())) {
    if (behaviour_.faults->once) behaviour_.faults->heal(at, bytes.size());
    throw Error(Errc::io, fmt::format("reading {} bytes at {:#x} failed", bytes.size(), at),
                "Part of the simulated medium cannot be read.", EIO);
  }
  if (reads_) reads_->add(at, bytes.size());
  std::memcpy(bytes.data(), disk_.bytes().data() + at, bytes.size());
}

std::span<const std::byte> RecordingMedium::view(const Extent& extent) {
  if (behaviour_.personality == Personality::block) return {};
  const std::lock_guard lock(mutex_);
  TENSORSHELF_ASSERT(extent.at + extent.size_bytes <= disk_.size_bytes());
  if (behaviour_.faults && behaviour_.faults->meet(extent.at, extent.size_bytes)) return {};
  if (reads_) reads_->add(extent.at, extent.size_bytes);
  return disk_.bytes().subspan(extent.at, extent.size_bytes);
}

std::uint64_t RecordingMedium::size() {
  const std::lock_guard lock(mutex_);
  return disk_.size_bytes();
}

std::uint64_t RecordingMedium::reserve(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t size = round_up(size_bytes, kPageBytes);
  if (size > behaviour_.max_size_bytes) {
    throw Error(Errc::full,
                fmt::format("the simulated medium ends at {} bytes, {} were asked for",
                            behaviour_.max_size_bytes, size_bytes),
                "raise Behaviour::max_size_bytes");
  }
  if (size > disk_.size_bytes()) {
    fail_if_told("reserve", false);
    const bool first = disk_.size_bytes() == 0;  // as it is formatted
    disk_.grow(size);
    const bool settles = first || !behaviour_.bugs.growth_not_settled;
    record({.kind = EventKind::reserve, .drained = settles, .at = size}, {});
  }
  return disk_.size_bytes();
}

Promises RecordingMedium::promises() const {
  const bool pmem = behaviour_.personality == Personality::pmem;
  return {.medium = personality_name(behaviour_.personality),
          .detail = "recorded in memory",
          .survives = Survives::power_loss,
          .mapped = pmem,
          .needs_flush = pmem,
          .volatile_cache = !pmem,
          .atomic_bytes = pmem ? kWordBytes : kSectorBytes,
          .notes = {}};
}

}  // namespace tensorshelf::crash
