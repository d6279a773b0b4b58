// What who opens a shelf asks for: of OpenOptions what stays so while it is open.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include <tensorshelf/error.hpp>
#include <tensorshelf/options.hpp>

namespace tensorshelf {

struct Asked {
  // Errc::bad_argument for what is out of range.
  explicit Asked(const OpenOptions& options);

  Verify verify;
  unsigned threads;  // that copy one assignment at most
  bool keep_unchanged;
  bool heal;
  std::optional<Placement> placement;  // none: as the medium suggests
  PlaceTensor place;
  OnPin on_pin;
  std::chrono::duration<double> pin_timeout;
  std::function<void(const Error&)> on_unheard;
};

}  // namespace tensorshelf
