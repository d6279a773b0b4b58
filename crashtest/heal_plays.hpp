// Plays about damaged chunks that another slot still has (Shelf::heal(), OpenOptions::heal), on a
// disk in memory. Each returns what went wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string rot_is_healed_or_stays_rot();
std::string damaged_version_is_not_rolled_back_to();
std::string what_is_healed_is_durable();
std::string damaged_slot_is_not_written();
std::string rot_does_not_come_in_with_what_is_healed();
std::string refused_commit_leaves_it_healable();
std::string healing_commits_nobodys_assignment();
std::string crash_within_healing_costs_nothing();

}  // namespace tensorshelf::crash
