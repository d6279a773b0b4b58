#include "store/state/asked.hpp"

#include <fmt/format.h>

#include "base/side_by_side.hpp"

namespace tensorshelf {
namespace {

unsigned threads_of(const OpenOptions& options) {
  if (options.threads == 0) return default_threads();
  if (options.threads <= kMostThreads) return options.threads;
  throw Error(Errc::bad_argument,
              fmt::format("threads={} is out of range: {} at most copy one assignment",
                          options.threads, kMostThreads),
              fmt::format("use threads=1 to {}, or 0 for the default", kMostThreads));
}

std::chrono::duration<double> pin_timeout_of(const OpenOptions& options) {
  if (options.pin_timeout.count() >= 0) return options.pin_timeout;
  throw Error(Errc::bad_argument,
              fmt::format("a pin_timeout of {} seconds", options.pin_timeout.count()),
              "Use 0 or more seconds.");
}

}  // namespace

Asked::Asked(const OpenOptions& options)
    : verify(options.verify),
      threads(threads_of(options)),
      keep_unchanged(options.keep_unchanged),
      heal(options.heal),
      placement(options.placement),
      place(options.place),
      on_pin(options.on_pin),
      pin_timeout(pin_timeout_of(options)),
      on_unheard(options.on_unheard) {}

}  // namespace tensorshelf
