// What this program draws at random (entropy.cpp): the same each time, for one salt.
#pragma once

#include <cstdint>

namespace tensorshelf::crash {

// Plays of media of which each needs an id of its own change it in between.
extern thread_local std::uint64_t entropy_salt;

}  // namespace tensorshelf::crash
