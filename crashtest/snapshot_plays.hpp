// Plays of a version that is copied out while its shelf goes on. Each returns what went wrong, or
// nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string version_stays_while_it_is_copied();
std::string commits_wait_for_what_is_copied();

}  // namespace tensorshelf::crash
