// Plays on a medium in memory, for what neither crash nor damage shows. Each returns what went
// wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string pages_are_there_for_every_commit();
std::string lost_view_costs_no_other_chunk();
std::string rot_in_a_free_slot_is_not_built_on();
std::string assigning_the_same_bytes_heals();
std::string old_bytes_come_back_over_staged_ones();
std::string discarded_label_is_no_versions();
std::string rot_is_not_resized();

}  // namespace tensorshelf::crash
