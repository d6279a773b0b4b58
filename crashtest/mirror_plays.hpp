// Plays on a shelf and its mirror in memory. Each returns what went wrong, or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string what_a_failed_filling_wrote_is_written_again();
std::string part_of_a_filling_shows_what_was_there_before();
std::string mirror_that_was_added_is_needed();
std::string mirror_that_was_given_up_is_not_needed();
std::string mirror_by_itself_is_not_held();
std::string mirror_that_was_cut_short_is_filled();
std::string what_is_prepared_is_filled_in();
std::string short_mirror_keeps_nobody_out();
std::string newer_mirror_is_not_written_over();
std::string torn_flip_of_a_new_mirror_goes();
std::string damaged_metadata_is_read_from_the_mirror();
std::string rot_of_a_mirror_is_mended();
std::string filling_is_marked_before_anything_is_copied();
std::string damaged_roots_are_read_from_the_mirror();
std::string interrupted_openings_keep_what_the_mirror_has();
std::string mirror_that_was_given_up_shows_nothing();
std::string mirror_of_another_history_shows_nothing();
std::string rot_is_copied_from_the_mirror();
std::string passing_error_of_a_mirror_is_no_damage();
std::string rot_of_what_is_accepted_is_read_from_the_mirror();
std::string lost_root_of_what_is_prepared_is_told();
std::string lost_root_of_what_is_prepared_is_given_up();
std::string copy_from_before_a_commit_is_refused();
std::string short_mirror_with_the_only_root_is_filled();
std::string commit_copies_forward_from_the_mirror();
std::string mirror_of_another_history_is_not_shown();

}  // namespace tensorshelf::crash
