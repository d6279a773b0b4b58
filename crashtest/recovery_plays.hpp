// Plays about recovery, on a disk behind a cache (cached_play.hpp). Each returns what went wrong,
// or nothing.
#pragma once

#include <string>

namespace tensorshelf::crash {

std::string version_out_of_sight_is_kept();
std::string accepted_version_is_made_durable();
std::string incarnation_is_made_durable();
std::string formatting_is_made_durable();
std::string one_unreadable_copy_is_no_loss();
std::string older_writer_is_refused();
std::string older_writer_looks_again();
std::string lost_word_is_a_loss();
std::string bad_copy_of_a_shared_page_is_mended();
std::string overtaken_reader_is_stale();
std::string early_look_costs_no_version();
std::string moved_chunks_are_no_damage();
std::string older_root_stays_within_the_medium();
std::string given_up_version_stays_so();
std::string lost_version_stays_so();
std::string what_comes_after_a_lost_version_is_another();
std::string repair_gives_a_new_number();
std::string repair_is_made_durable();
std::string repair_of_the_first_version_is_made_durable();
std::string chunk_out_of_sight_costs_no_version();

}  // namespace tensorshelf::crash
