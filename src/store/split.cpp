#include "store/split.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

namespace tensorshelf {
namespace {

constexpr unsigned kMaxShared = format::kMaxSlots - 1;  // one slot holds the newest version

void check(unsigned keep, unsigned in_flight) {
  if (in_flight >= 1 && in_flight <= kMaxShared && keep <= kMaxShared - in_flight) return;
  throw Error(Errc::bad_argument,
              fmt::format("keep={} and in_flight={} make no shelf", keep, in_flight),
              fmt::format("in_flight is 1 at least, and keep + in_flight {} at most.", kMaxShared));
}

}  // namespace

Split split_of(const OpenOptions& options) {
  const Split split{options.keep.value_or(0), options.in_flight.value_or(1)};
  check(split.keep, split.in_flight);
  return split;
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
    throw Error(Errc::bad_argument,
                fmt::format("keep={} and in_flight={} were asked for; the shelf was made with "
                            "keep={} and in_flight={}",
                            split.keep, split.in_flight, root.keep, root.in_flight),
                fmt::format("Choose in_flight from 1 on and a sum of {}, or copy the tensors into "
                            "a new shelf.",
                            sum));
  }
  return split;
}

}  // namespace tensorshelf
