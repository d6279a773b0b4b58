// Readers beside a writer that is faster.
#pragma once

#include <cstdint>

#include "store/state/state.hpp"

namespace tensorshelf {

// Of a reader: Errc::stale where its writer has given the version up by now, and may have written
// over what it names. Does nothing in a writer, nor where the version is held and let be.
void throw_if_overtaken(const State& state, std::uint64_t version);
// The same, held or not.
void throw_if_given_up(const State& state, std::uint64_t version);

}  // namespace tensorshelf
