#include "store/state/unknown_pins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "format/layout.hpp"
#include "media/pins.hpp"

namespace tensorshelf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPinRemedy =
    "Let that reader end its pin, or end the reader. in_flight= of one more for each reader that "
    "holds a version lets a new shelf go on beside it; on_pin=\"outrun\" goes on without it.";

std::string holder_text(const PinTable& pins, std::uint64_t version) {
  const PinHolder holder = pins.holder(version);
  if (holder.pid == 0) return "a reader";
  const auto now = static_cast<std::uint64_t>(::time(nullptr));
  return fmt::format("a reader, pid {}, for {} s", holder.pid,
                     now - std::min(now, holder.since_seconds));
}

}  // namespace

void throw_pinned(const std::string& path, const PinTable& pins, std::uint64_t version,
                  const char* why) {
  throw Error(Errc::pinned,
              fmt::format("version {} of {} is held by {}, and {}", version, path,
                          holder_text(pins, version), why),
              kPinRemedy);
}

void await_unknown_pins(Medium& medium, const Manners& manners, std::uint64_t first,
                        std::uint64_t last) {
  PinTable* const pins = medium.pins();
  if (pins == nullptr || planted(Bug::pins_not_seen)) return;
  const auto in_the_way = [&]() -> std::optional<std::uint64_t> {
    if (manners.on_pin == OnPin::outrun) {
      if (pins->outrun()) return std::nullopt;
      const auto held = pins->find(0, format::kMaxVersion);
      if (held || planted(Bug::outruns_though_refused)) return held;
      return 0;  // who was in the way is gone, and it is to be asked once more
    }
    if (planted(Bug::opened_over_pins)) return std::nullopt;
    if (first > 0) {
      if (const auto older = pins->find(0, first - 1)) return older;
    }
    return pins->find(last + 1, format::kMaxVersion);
  };
  const auto begin = Clock::now();
  while (const auto version = in_the_way()) {
    if (Clock::now() - begin >= manners.timeout) {
      throw_pinned(manners.path, *pins, *version,
                   manners.on_pin == OnPin::outrun ? "shown in place there"
                                                   : "this opening knows nothing of it");
    }
    manners.patience.pause(kBetweenLooks);
  }
}

}  // namespace tensorshelf
