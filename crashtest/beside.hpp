// A reader beside a writer: the shelf is opened for reading and read, twice over, while the events
// of a recorded run go on to land between its reads. It takes no lock and is not waited for. It
// shows one version, whole, that was acknowledged when it began or came later; or says that the
// version was overwritten (Errc::stale); and never takes what happens for damage. It hears stale
// only where a root was flipped since it began, and looks no oftener than that explains: among the
// readers are some whose writer rests, and these must finish.
#pragma once

#include <cstddef>
#include <cstdint>

#include "disk.hpp"
#include "recording_medium.hpp"
#include "rng.hpp"
#include "runner.hpp"
#include "walk.hpp"

namespace tensorshelf::crash {

struct ReaderScene {
  Behaviour behaviour;
  std::size_t first_event;  // there is a shelf from here on
  std::uint64_t readers;    // how many are opened
};

// The disk is empty, and is put back. Throws std::runtime_error on a violation.
void explore_readers(Disk& disk, const Recording& recording, const ReaderScene& scene, Rng& rng,
                     Counts& counts);

}  // namespace tensorshelf::crash
