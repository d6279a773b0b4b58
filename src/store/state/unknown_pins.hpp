// Versions that readers elsewhere hold, and of which an opening knows nothing: waited for before
// anything is written. (Of those that it knows: pinned.hpp.)
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "store/threads/patience.hpp"

namespace tensorshelf {

class PinTable;

inline constexpr auto kBetweenLooks = std::chrono::milliseconds(1);

// How a writer treats what readers hold.
struct Manners {
  OnPin on_pin = OnPin::wait;
  std::chrono::duration<double> timeout{};
  const Patience& patience;
  const std::string& path;
};

// Before anything is written to slots of versions other than `first` to `last`, which the writer
// knows: until no reader holds one. One that outruns tells here that it does. Errc::pinned after
// the timeout.
void await_unknown_pins(Medium& medium, const Manners& manners, std::uint64_t first,
                        std::uint64_t last);

// Errc::pinned, naming a reader that holds the version.
[[noreturn]] void throw_pinned(const std::string& path, const PinTable& pins, std::uint64_t version,
                               const char* why);

}  // namespace tensorshelf
