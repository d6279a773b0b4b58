// What a shelf is opened for, which decides what an opening takes for good, and what it writes.
#pragma once

namespace tensorshelf {

enum class Purpose {
  read,    // beside a writer, perhaps
  follow,  // the same once more: what is shown already goes on
  write,
  check,    // as for writing, and nothing is written
  salvage,  // reading what there is (OpenOptions::salvage)
  repair,   // writing, from what there is
};

constexpr bool reads(Purpose purpose) {
  return purpose == Purpose::read || purpose == Purpose::follow || purpose == Purpose::salvage;
}
constexpr bool writes(Purpose purpose) {
  return purpose == Purpose::write || purpose == Purpose::repair;
}
constexpr bool takes_what_there_is(Purpose purpose) {
  return purpose == Purpose::salvage || purpose == Purpose::repair;
}

}  // namespace tensorshelf
