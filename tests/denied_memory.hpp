// Denies allocations: the test program that links this has an operator new which fails when told.
#pragma once

#include <cstdint>
#include <functional>

namespace tensorshelf::testing {

enum class Denial { once, from_then_on };

// Makes the call, and denies allocation number `nth` (from 0) in it, of whatever thread; perhaps
// all that follow too. What it throws for that is caught. False: it made fewer allocations.
bool denying(std::int64_t nth, Denial denial, const std::function<void()>& call);

}  // namespace tensorshelf::testing
