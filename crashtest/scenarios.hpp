// What no image of a crash can show: leases, locks and threads that must wait, as short plays on
// the public face, each of which ends in the fact that an invariant promises.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tensorshelf::crash {

struct Scenario {
  std::string_view name;
  std::string_view invariant;         // by number in docs/design.md; "-": none has one
  std::function<std::string()> play;  // empty, or what the store did that it must never do
};

const std::vector<Scenario>& scenarios();

// Plays it; an exception is a violation too.
std::string violation_of(const Scenario& scenario);

}  // namespace tensorshelf::crash
