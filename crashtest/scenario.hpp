// A play (scenarios.hpp), by its name: what the files that have some give, and the explorer plays.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tensorshelf::crash {

struct Scenario {
  std::string_view name;
  std::string_view invariant;         // by number in docs/design.md; "-": none has one
  std::function<std::string()> play;  // empty, or what the store did that it must never do
};

}  // namespace tensorshelf::crash
