// What a medium was asked to do, in order, with all that was to be stored; and the notes of whoever
// asked. Not thread-safe.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "disk.hpp"

namespace tensorshelf::crash {

struct Stretch {  // of the medium; the bytes for it lie in Log::bytes
  std::uint64_t at = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t bytes_at = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// Of a shelf on two media the disk has both: the second one, of a fixed size, below the first.
enum class Part : std::uint8_t { all, first, second };  // all: there is one medium

// Threads are numbered in order of appearance.
struct WriteEvent {
  Stretch stored;
  std::uint64_t ticket = 0;
  unsigned thread = 0;
  bool drained = true;  // on pmem: its thread fenced before write() returned
  bool failed = false;  // this is the part that there is of it, and no barrier covers that
  friend bool operator==(const WriteEvent&, const WriteEvent&) = default;
};
struct WordEvent {
  Stretch stored;
  unsigned thread = 0;
  bool failed = false;  // as above
  friend bool operator==(const WordEvent&, const WordEvent&) = default;
};
struct WaitEvent {
  std::uint64_t ticket = 0;
  Part part = Part::all;
  friend bool operator==(const WaitEvent&, const WaitEvent&) = default;
};
struct BarrierEvent {
  unsigned thread = 0;
  Part part = Part::all;
  friend bool operator==(const BarrierEvent&, const BarrierEvent&) = default;
};
struct GrowthEvent {
  std::uint64_t size_bytes = 0;  // of the medium, from then on, unless it is longer
  bool settles = true;           // with the next barrier
  bool room = true;              // to write to; else it is a length alone
  friend bool operator==(const GrowthEvent&, const GrowthEvent&) = default;
};
struct CutEvent {  // the medium was made shorter
  std::uint64_t size_bytes = 0;
  friend bool operator==(const CutEvent&, const CutEvent&) = default;
};
struct MarkEvent {  // a note of the caller's
  std::uint64_t number = 0;
  std::uint64_t kind = 0;
  const char* name = "mark";  // static; for traces
  friend bool operator==(const MarkEvent&, const MarkEvent&) = default;
};
struct FailureEvent {
  const char* call = "";
  bool orphans = false;  // all that was unsettled
  Part part = Part::all;
  friend bool operator==(const FailureEvent&, const FailureEvent&) = default;
};
struct Loss {  // a page of a write, or of a word, which nobody will see again
  std::size_t event = 0;
  std::uint64_t at = 0;
  auto operator<=>(const Loss&) const = default;
};
// The medium is no more: its process died, or it was destroyed with something under way. The next
// medium on the log is another one.
struct DeathEvent {
  std::vector<Loss> lost;     // in order
  std::vector<Stretch> left;  // what is now in the pages that lost something
  bool loses(const Loss& page) const { return std::binary_search(lost.begin(), lost.end(), page); }
  friend bool operator==(const DeathEvent&, const DeathEvent&) = default;
};

using Event = std::variant<WriteEvent, WordEvent, WaitEvent, BarrierEvent, GrowthEvent, CutEvent,
                           MarkEvent, FailureEvent, DeathEvent>;

template <typename T>
bool is(const Event& event) {
  return std::holds_alternative<T>(event);
}

inline bool failed(const Event& event) {
  const auto* write = std::get_if<WriteEvent>(&event);
  const auto* word = std::get_if<WordEvent>(&event);
  return (write && write->failed) || (word && word->failed);
}

inline bool any_failure(const std::vector<Event>& events) {
  return std::any_of(events.begin(), events.end(), is<FailureEvent>);
}

// What a write or a word stores; null of all others.
inline const Stretch* stored(const Event& event) {
  if (const auto* write = std::get_if<WriteEvent>(&event)) return &write->stored;
  if (const auto* word = std::get_if<WordEvent>(&event)) return &word->stored;
  return nullptr;
}

struct Log {
  std::vector<Event> events;
  std::vector<std::byte> bytes;
  std::uint64_t second_bytes = 0;  // that the second medium takes; 0: there is none

  Part part_of(std::uint64_t at) const {
    if (second_bytes == 0) return Part::all;
    return at < second_bytes ? Part::second : Part::first;
  }
  std::span<const std::byte> content(const Stretch& stretch) const {
    return std::span(bytes).subspan(stretch.bytes_at, stretch.size_bytes);
  }
  // The event happens to the disk: as every process sees it, settled or not.
  void replay(const Event& event, Disk& disk) const {
    if (const auto* growth = std::get_if<GrowthEvent>(&event)) {
      disk.grow(growth->size_bytes);
      if (growth->room) disk.make_room(growth->size_bytes);
    }
    if (const auto* cut = std::get_if<CutEvent>(&event)) disk.cut(cut->size_bytes);
    if (const Stretch* stretch = stored(event)) disk.write(stretch->at, content(*stretch));
    if (const auto* death = std::get_if<DeathEvent>(&event)) {
      for (const Stretch& page : death->left) disk.write(page.at, content(page));
    }
  }
  void clear() {
    events.clear();
    bytes.clear();
  }
};

}  // namespace tensorshelf::crash
