// Whether the shelf's own medium is an older copy than others that belong to it tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "format/format.hpp"
#include "store/media_set/further_media.hpp"

namespace tensorshelf {

enum class Ahead { no, torn, newer };  // of what was opened: a flip that may go, or what may not

// How far a mirror of the first is. Errc::medium_missing where the first is an older copy, or lost
// what the mirror has, and was not opened `degraded`.
Ahead how_far(const MirrorOfFirst& mirror, Medium& first, const format::Seeds& seeds,
              const Chosen& chosen);

// Whether a mirror that is to be read in the first's place shows an older version than that does,
// or another of the same number, or is another shelf's. False where the first tells nothing.
bool is_older(Medium& mirror, Medium& first);

// The attempt at the next version, as the first has it described, in either copy.
bool is_described(const Chosen& chosen);

// Which version wrote to a medium last, and where that is.
struct Stamped {
  std::optional<std::uint64_t> last;
  std::string path;
};

// Errc::medium_missing where it tells of a newer state of the shelf than what is there.
void refuse_older_first(const Stamped& stamped, std::uint64_t newest, unsigned slot_count);

// The same by all that belongs to the shelf, for who writes nothing, where the newest version was
// opened. A writer may go on meanwhile.
void refuse_older_first(const ShelfMedia& media, const format::Seeds& seeds, const Chosen& chosen);

}  // namespace tensorshelf
