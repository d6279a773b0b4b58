// Plays about recovery where an attempt is prepared, on a disk behind a cache (cached_play.hpp).
// Each returns what went wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string prepared_survives_damage_before_and_after();
std::string prepared_survives_beside_an_older_root();
std::string mark_is_made_durable();
std::string mark_dies_with_its_version();

}  // namespace tensorshelf::crash
