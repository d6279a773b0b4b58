// Plays of a pipeline beside its trainer: who is where when the other goes on is arranged by doors
// in the medium. Each returns what is wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string eager_sources_are_copied_first();
std::string sources_stay_until_staged();
std::string late_change_is_noticed();
std::string nobody_commits_half_a_save();
std::string failed_save_is_told();
std::string failed_save_is_told_by_the_shelf();
std::string failure_is_heard_of_a_shelf_let_go();
std::string drained_is_apart();
std::string closing_tells_of_the_save_it_ends();
std::string both_failures_are_told();
std::string closing_drains();
std::string save_beside_closing_is_refused();
std::string durable_is_behind_the_barrier();
std::string prepared_save_is_left_for_its_decision();
std::string save_behind_a_prepared_one_waits();
std::string abandoning_tears_no_save();

}  // namespace tensorshelf::crash
