// Plays about what a failed flush lost: one opener does not read it, and another does. Each returns
// what went wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string unread_version_stays_away();
std::string unread_mark_stays_away();

}  // namespace tensorshelf::crash
