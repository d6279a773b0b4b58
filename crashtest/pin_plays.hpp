// Plays of readers that hold versions. Each returns what went wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string what_is_given_up_is_not_held();
std::string what_is_held_beside_a_restless_writer_stays();
std::string what_is_held_can_be_held_twice();
std::string own_pins_are_waited_for_so_long();
std::string what_copies_is_waited_for();
std::string newest_is_held_where_none_is_said();
std::string nothing_is_shown_in_place_to_who_is_outrun();
std::string who_was_refused_once_outruns_at_last();
std::string what_is_overtaken_in_verify_is_no_damage();

}  // namespace tensorshelf::crash
