// Versions below the floor that stay for a while: held by a call of this process
// (version_hold.hpp), or by readers elsewhere (media/pins.hpp). Whoever needs one of their slots
// waits, and so does a commit for which there would be more versions than the shelf has slots.
// Nothing of this is on the medium: so an opening that finds versions pinned which it does not know
// waits, too.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "format/layout.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

using GoneVersions = std::array<std::shared_ptr<Version>, format::kMaxSlots>;

// With structure held: moves those that nobody keeps any more from the retained ones to `gone`, and
// returns how many.
std::size_t take_unkept(State& state, GoneVersions& gone) noexcept;

// The same, and gives back what they own; whether there was any.
bool drop_unkept(State& state) noexcept;

// Until done(), with structure held. Readers tell nobody when they let go, so it looks now and
// then. Errc::pinned where nothing else is waited for, and neither they nor this process's own pins
// let go within OpenOptions::pin_timeout; what the patience throws.
void await_unpinned(State& state, std::unique_lock<FairMutex>& lock,
                    const std::function<bool()>& done);

}  // namespace tensorshelf
