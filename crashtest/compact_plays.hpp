// Plays about what compact() does in an open attempt, on a disk in memory. Each returns what went
// wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string what_is_carried_is_no_change();
std::string what_is_assigned_over_it_is_one();
std::string rot_is_left_where_it_is();
std::string lease_holds_what_was_moved_and_erased();
std::string lease_holds_the_places_of_its_version();
std::string removed_medium_is_not_named_again();
std::string no_root_reaches_beyond_the_end();

}  // namespace tensorshelf::crash
