#include "store/places/split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include <tensorshelf/error.hpp>

namespace tensorshelf {
namespace {

constexpr unsigned kMaxShared = format::kMaxSlots - 1;  // one slot holds the newest version

// What was asked for, in its own words.
std::string asked(const OpenOptions& options) {
  std::string keep = options.keep ? fmt::format("keep={}", *options.keep) : "";
  if (!options.in_flight) return keep;
  return fmt::format("{}{}in_flight={}", keep, options.keep ? " and " : "", *options.in_flight);
}

// What may be asked for in its place, where both are `sum` together, or may be.
std::string allowed(const OpenOptions& options, unsigned sum, bool exactly) {
  const char* relation = exactly ? "=" : "<=";
  if (options.keep && options.in_flight) {
    return fmt::format("use in_flight >= 1 and keep + in_flight {} {}", relation, sum);
  }
  if (options.keep)
    return fmt::format("use keep=0 to {}: one slot is for what is on its way", sum - 1);
  return fmt::format("use in_flight=1 to {}", sum);
}

}  // namespace

Split split_of(const OpenOptions& options) {
  const Split split{options.keep.value_or(0), options.in_flight.value_or(1)};
  const unsigned most = kMaxShared - std::min(split.keep, kMaxShared);
  if (split.in_flight >= 1 && split.in_flight <= most) return split;
  throw Error(Errc::bad_argument,
              fmt::format("{} is out of range: a tensor has {} slots at most", asked(options),
                          format::kMaxSlots),
              allowed(options, kMaxShared, false));
}

Split split_of(const format::Root& root, const OpenOptions& options) {
  const unsigned sum = root.keep + root.in_flight;
  Split split{root.keep, root.in_flight};
  if (options.keep) {
    split = {*options.keep, options.in_flight.value_or(sum - std::min(sum, *options.keep))};
  } else if (options.in_flight) {
    split = {sum - std::min(sum, *options.in_flight), *options.in_flight};
  }
  if (split.in_flight == 0 || split.keep > sum || split.keep + split.in_flight != sum) {
    throw Error(
        Errc::bad_argument,
        fmt::format("{} was asked for; the shelf was made for keep + in_flight = {}, and "
                    "has keep={} and in_flight={} now",
                    asked(options), sum, root.keep, root.in_flight),
        allowed(options, sum, true) +
            "; or go on from a copy: snapshot() makes one with the keep and in_flight of its "
            "options.");
  }
  return split;
}

}  // namespace tensorshelf
