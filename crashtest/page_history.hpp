// What pages held before they were last written: for writes that never landed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "recording_medium.hpp"

namespace tensorshelf::crash {

struct PageHistory {
  using Pages = std::map<std::uint64_t, std::vector<std::byte>>;  // by place
  Pages before_last;                                              // without the last write or word
  Pages without_body;              // without the last write, but with the words after it
  std::set<std::uint64_t> worded;  // pages that have words
};

// Of these pages, by the log to that event.
PageHistory page_history(const Log& log, std::size_t event,
                         const std::vector<std::uint64_t>& pages);

}  // namespace tensorshelf::crash
