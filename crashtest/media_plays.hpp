// Plays on shelves with two media, in memory or files. Each returns what went wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string older_copy_of_a_medium_is_refused();
std::string what_a_medium_grew_by_stays_taken();
std::string made_beside_a_removal_lies_elsewhere();
std::string mirror_of_another_attempt_is_filled(bool in_one_opening);

}  // namespace tensorshelf::crash
