#include "store/asked.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

#include "base/side_by_side.hpp"

namespace tensorshelf {

unsigned threads_of(const OpenOptions& options) {
  if (options.threads == 0) return default_threads();
  if (options.threads <= kMostThreads) return options.threads;
  throw Error(Errc::bad_argument,
              fmt::format("threads={} is out of range: {} at most copy one assignment",
                          options.threads, kMostThreads),
              fmt::format("use threads=1 to {}, or 0 for the default", kMostThreads));
}

void check_pin_timeout(std::chrono::duration<double> timeout) {
  if (timeout.count() >= 0) return;
  throw Error(Errc::bad_argument, fmt::format("a pin_timeout of {} seconds", timeout.count()),
              "Use 0 or more seconds.");
}

}  // namespace tensorshelf
