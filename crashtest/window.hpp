// The window of unsettled writes: replays a log event by event on a disk that holds what is surely
// there, and keeps beside it, in issue order, the units that a power loss now may or may not leave.
//
// Any subset of the units, applied in issue order, is a legal image; no other is. (Where the medium
// was made shorter and that did not land, neither did what came later beyond; where a later growth
// landed, so did that.) Units stay open
// when they are orphaned (recording_medium.hpp), until what is written in their place is settled.
// A write of many
// units to a large extent is cut into at most kMaxUnitsPerWrite runs, so that the images stay
// legal but fewer (a run lands whole or not at all).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "log.hpp"
#include "personality.hpp"

namespace tensorshelf::crash {

inline constexpr std::uint64_t kMaxUnitsPerWrite = 512;  // a page of words

struct Unit {
  std::uint64_t at = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t bytes_at = 0;  // content, in Log::bytes
  std::uint32_t event = 0;
  bool is_size = false;  // the growth of the medium to `at` bytes
  bool is_cut = false;   // that is none: it is made shorter, by size_bytes, and ends at `at`
  bool orphan = false;   // no barrier covers it any more
};

enum class Landing : std::uint8_t { missing, landed, trashed };
using Image = std::vector<Landing>;  // one per unit of the window

class Window {
 public:
  // With `trash`, units that rewrite the settled bytes count too: they may end up as garbage.
  Window(Disk& settled, const Log& log, Personality personality, bool trash);

  void take(std::size_t event);  // the next event of the log
  std::span<const Unit> units() const { return units_; }
  std::size_t newest() const { return newest_; }  // index of the first unit of the last event
  bool trashable(const Unit& unit) const;

  // Writes the image over the settled bytes. The caller rolls the disk back.
  void land(const Image& image);

 private:
  void add(const Stretch& stored, std::uint32_t index);
  std::uint64_t visible_bytes() const;
  void add_growth(std::uint64_t size_bytes, std::uint32_t index);
  void add_cut(std::uint64_t size_bytes, std::uint32_t index);
  void settle(const BarrierEvent& barrier);
  void settle_size(const Unit& unit, std::vector<Unit>& open);
  bool covers(const BarrierEvent& barrier, const Unit& unit) const;
  void orphan_all(Part part = Part::all);
  bool is_of(const Unit& unit, Part part) const;
  void die(const DeathEvent& death);
  void crowd_anew();
  bool settled_has(const Unit& unit) const;
  void crowd(const Unit& unit);

  Disk& disk_;
  const Log& log_;
  Personality personality_;
  bool trash_;
  std::array<std::uint64_t, 3> waited_ = {};  // the highest ticket that was, by Part
  std::uint64_t issued_ = 0;                  // the highest of all
  std::vector<Unit> units_;
  std::size_t newest_ = 0;
  std::unordered_set<std::uint64_t> crowded_;  // sectors that units of the window touch
  std::vector<std::byte> garbage_;
};

}  // namespace tensorshelf::crash
