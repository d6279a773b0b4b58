// Plays of how a shelf gets its name, each with every cut of power in it. Each returns what went
// wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string new_shelf_is_named_whole();
std::string replaced_shelf_is_the_old_or_the_new();
std::string shelf_in_an_empty_file_is_named_whole();
std::string snapshot_is_named_whole();
std::string shelf_of_several_media_is_named_whole();
std::string replaced_media_can_be_replaced_again();
std::string added_medium_is_named_whole();
std::string added_mirror_is_named_whole();
std::string found_name_is_made_durable();
std::string what_an_adding_left_takes_no_place();

}  // namespace tensorshelf::crash
