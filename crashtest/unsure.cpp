#include "unsure.hpp"

#include <algorithm>
#include <cstring>

#include "rng.hpp"
#include "window.hpp"

namespace tensorshelf::crash {

Unsure::Unsure(const Log& log, std::uint64_t capacity_bytes, What what, std::uint64_t seed)
    : seed_(seed) {
  static_assert(kBytes == kSectorBytes);
  Disk settled(capacity_bytes);
  Window window(settled, log, Personality::block, false);
  for (std::size_t event = 0; event < log.events.size(); ++event) window.take(event);
  std::uint64_t zero_from = capacity_bytes;  // as every process sees it
  for (const Unit& unit : window.units()) {
    if (unit.is_cut) {
      zero_from = std::min(zero_from, unit.at);
      sectors_.erase(sectors_.lower_bound(unit.at), sectors_.end());
    }
    if (unit.is_size || (what == What::no_barrier_will_cover && !unit.orphan)) continue;
    const std::uint64_t end = unit.at + unit.size_bytes;
    for (std::uint64_t at = unit.at / kBytes * kBytes; at < end; at += kBytes) {
      Sector& sector = sectors_[at];
      // New room, which was zero.
      if (at + kBytes > std::min(settled.size_bytes(), zero_from)) continue;
      const auto before = settled.bytes().subspan(at, kBytes);
      std::copy(before.begin(), before.end(), sector.before.begin());
    }
  }
}

bool Unsure::shows_older(std::uint64_t at, Sector& sector) const {
  const std::uint64_t chosen = mixed(seed_ ^ mixed(process_));
  switch (chosen % 4) {
    case 0:
      return true;
    case 1:
      return false;
    case 2:
      return mixed(chosen ^ at) % 2 == 0;
    default:
      return mixed(chosen ^ mixed(at ^ mixed(++sector.reads))) % 2 == 0;
  }
}

void Unsure::show(std::uint64_t at, std::span<std::byte> bytes) {
  const std::uint64_t end = at + bytes.size();
  auto next = sectors_.lower_bound(at / kBytes * kBytes);
  for (; next != sectors_.end() && next->first < end; ++next) {
    auto& [place, sector] = *next;
    if (!shows_older(place, sector)) continue;
    const std::uint64_t first = std::max(place, at);
    const std::uint64_t last = std::min(place + kBytes, end);
    std::memcpy(&bytes[first - at], &sector.before[first - place], last - first);
  }
}

void Unsure::settle(std::uint64_t at, std::uint64_t size_bytes) {
  sectors_.erase(sectors_.lower_bound(at / kBytes * kBytes), sectors_.lower_bound(at + size_bytes));
}

}  // namespace tensorshelf::crash
