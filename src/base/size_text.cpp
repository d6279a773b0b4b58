#include "base/size_text.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace tensorshelf {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  std::uint64_t unit_bytes = 1024;
  std::size_t unit = 0;
  while (bytes / unit_bytes >= 1024 && unit + 1 < kUnits.size()) {
    unit_bytes *= 1024;
    ++unit;
  }
  const double value = static_cast<double>(bytes) / static_cast<double>(unit_bytes);
  if (bytes % unit_bytes == 0) return fmt::format("{} {}", bytes / unit_bytes, kUnits[unit]);
  if (bytes % unit_bytes == unit_bytes / 2) return fmt::format("{:.1f} {}", value, kUnits[unit]);
  return fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

}  // namespace tensorshelf
