#include "bugs.hpp"

namespace tensorshelf::crash {

const std::vector<PlantedBug>& planted_bugs() {
  static const std::vector<PlantedBug> table = {
      {"flip_without_barrier", "I1", Bug::flip_without_barrier},
      {"word_with_body", "I1", Bug::word_with_body},
      {"wait_left_out", "I1", Bug::wait_left_out},
      {"growth_not_settled", "I1", Bug::none, {.growth_not_settled = true}},
      {"ack_without_barrier", "I2", Bug::ack_without_barrier},
      {"one_copy_flipped", "I2", Bug::one_copy_flipped},
      {"committed_slot_written", "I3", Bug::committed_slot_written},
      {"slots_reused_early", "I3", Bug::slots_reused_early},
      {"page_reused_early", "I3", Bug::page_reused_early},
      {"page_in_place", "I3", Bug::page_in_place},
      {"free_space_forgets_root", "I3", Bug::free_space_forgets_root},
      {"leased_slot_written", "I3", Bug::leased_slot_written, {}, "lease-write"},
      {"leased_slot_reused", "I3", Bug::leased_slot_reused, {}, "lease-erase"},
      {"word_not_covered", "I4", Bug::word_not_covered},
      {"torn_word", "I4", Bug::none, {.torn_word = true}},
      {"incarnation_not_bumped", "I5", Bug::incarnation_not_bumped},
      {"incarnation_not_durable", "I5", Bug::incarnation_not_durable},
      {"recovery_rewrites_root", "I6", Bug::recovery_rewrites_root},
      {"worker_without_drain", "I7", Bug::none, {.worker_without_drain = true}},
      {"failure_forgotten", "I8", Bug::failure_forgotten},
      {"barrier_error_swallowed", "I8", Bug::barrier_error_swallowed},
      {"barrier_repeated", "I8", Bug::barrier_repeated},
      {"gate_opened_early", "I9", Bug::gate_opened_early, {}, "late-writer"},
      {"lock_not_taken", "I10", Bug::lock_not_taken, {}, "second-writer"},
      {"child_unlocks", "I10", Bug::child_unlocks, {}, "forked-child"},
      {"root_checksum_ignored", "-", Bug::root_checksum_ignored},
      {"page_checksum_ignored", "-", Bug::page_checksum_ignored},
      {"chunk_checksum_ignored", "-", Bug::chunk_checksum_ignored},
      {"fallback_without_verify", "-", Bug::fallback_without_verify},
      {"capacity_not_recorded", "-", Bug::capacity_not_recorded},
      {"directory_not_linked", "-", Bug::directory_not_linked},
      {"copy_forward_left_out", "-", Bug::copy_forward_left_out},
      {"merge_left_out", "-", Bug::merge_left_out},
      {"merge_not_verified", "-", Bug::merge_not_verified, {}, "rot-merge"},
      {"names_held_by_reads", "-", Bug::names_held_by_reads, {}, "names-beside-read"},
      {"callback_while_locked", "-", Bug::callback_while_locked, {}, "callback"},
      {"inactive_slot_trusted", "-", Bug::inactive_slot_trusted},
      {"dirty_bit_lost", "-", Bug::dirty_bit_lost},
      {"stale_chunks_forgotten", "-", Bug::stale_chunks_forgotten},
      {"growth_beside_writers", "-", Bug::growth_beside_writers, {}, "growth"},
      {"overtaken_not_noticed", "-", Bug::overtaken_not_noticed},
      {"reader_trusts_slot", "-", Bug::reader_trusts_slot},
      {"reader_looks_once", "-", Bug::reader_looks_once},
      {"words_not_restored", "I12", Bug::words_not_restored, {}, "failed-flush"},
      {"incarnation_unrestored", "I12", Bug::incarnation_unrestored, {}, "failed-open"},
      {"superblock_unrestored", "I12", Bug::superblock_unrestored, {}, "failed-format"},
      {"unreadable_not_bad", "-", Bug::unreadable_not_bad, {}, "unreadable-page"},
      {"incarnation_not_reread", "I10", Bug::incarnation_not_reread, {}, "rival"},
  };
  return table;
}

}  // namespace tensorshelf::crash
