// Mistakes that the crash tests switch on, one at a time, to show that they would be noticed. They
// exist only where TENSORSHELF_PLANTED_BUGS is defined, in a second build of these sources; in the
// library, planted() is false at compile time and nothing of them runs.
#pragma once

namespace tensorshelf {

enum class Bug {
  none,

  // ---- commit: what a version is made of, and its word
  flip_without_barrier,   // I1: the word may land before what the root names
  word_with_body,         // I1: the root goes out with the new word in it
  wait_left_out,          // I1: the barrier does not cover the writes of the attempt
  found_length_taken,     // I1: as far as a file was found to reach there need be no room
  ack_without_barrier,    // I2: a commit is told before its word is durable
  one_copy_flipped,       // I2: a damaged page then costs an acknowledged version
  two_words_at_once,      // I2: the words of two versions lie between two barriers
  word_not_covered,       // I4: the root's checksum leaves out the word
  commits_overlap,        // I3: a commit does not wait for one that is under way
  gate_opened_early,      // I9: writers go on while the version is written
  copy_left_out,          // of the chunks that threads share, one is copied by none
  dirty_bit_lost,         // a tensor written a second time is left out of the commit
  directory_not_linked,   // a changed page is written, and nobody names it
  second_directory_lost,  // a change below the second directory is linked, and the page kept back
  leaves_flag_kept,       // a root says that it names leaves, and names directories
  capacity_not_recorded,  // growth is not part of the version
  split_not_stored,       // a split that was asked for is forgotten
  growth_beside_writers,  // the medium grows while others write to it
  waiter_not_woken,       // who waits for an attempt in flight waits on when it has failed
  names_held_by_reads,    // a read holds the lock under which names are looked up
  callback_while_locked,  // a callback runs while the shelf is locked

  // ---- slots and places, and what holds them
  committed_slot_written,   // I3: the newest version has its slots written over
  flight_slot_written,      // I3: an attempt in flight has its slots written over
  retained_slot_written,    // I3: only the newest version has its slots spared
  retained_places_free,     // I3: after an open, what the versions before the newest name is free
  revived_given_back,       // I3: what a rollback revives has its slots given back first
  slots_reused_early,       // I3: an erased tensor's slots are reused before the flip that drops it
  page_reused_early,        // I3: a manifest page that the committed root names is reused
  page_in_place,            // I3: a changed manifest page is written over the committed one
  free_space_forgets_root,  // I3: after an open, everything is free
  leased_slot_written,      // I3: a write goes into the slot that a lease shows
  leased_slot_reused,       // I3: the slots of an erased tensor are free while a lease shows one
  leased_stage_written,     // I3: a write goes on in the slot whose staged value a lease shows
  found_slot_misused,     // I3: a chunk goes to the slot that is free for the last one of its write
  read_holds_nothing,     // I3: what an erased tensor owned is given away while it is read
  floor_by_keep_asked,    // I3: what is free is judged by the keep that was asked for, not by the
                          // root's
  floor_not_raised,       // versions are retained for ever, and their slots run out
  discarded_labels_kept,  // I3: what a discarded attempt wrote passes for the next one's value
  unchanged_label_kept,   // I3: what a chunk had before it got its old bytes passes for the next
                          // one's
  held_version_dropped,   // I3: a version that is being copied out is given up by a commit
  held_version_not_counted,  // more versions are made than there are slots and pages for
  pages_for_own_cells,  // for a tensor whose cells lie behind others', pages are taken for its own
                        // cells alone
  chunk_set_edge,       // beyond 64 chunks, a set that is cleared keeps its last word

  // ---- assignments, and what they leave of a chunk
  undone_chunk_kept,       // I13: an assignment that is not done stays in the attempt
  spoiled_committed,       // I13: what an assignment that is not done overwrote is committed
  assignment_cut,          // I13: a commit comes between two writes of an assignment
  copy_forward_left_out,   // a partial update loses the chunks that it does not touch
  merge_left_out,          // a partial update loses the rest of its chunk
  merge_not_verified,      // a partial update gives what rotted in its chunk a checksum of its own
  patched_over_rot,        // a partial update does so in the slot that has the chunk's value
  inactive_slot_trusted,   // after an open, a partial update builds on bytes of unknown age
  stale_chunks_forgotten,  // a commit forgets in which chunks the slots differ now
  unchanged_unverified,    // a chunk that has rotted is kept, where the same bytes are assigned
  unchanged_stage_kept,  // I13: what the attempt had of a chunk stays, where it gets its old bytes
  zeros_taken_for_stored,  // a chunk of zeros is read from a slot that no one wrote
  reread_over_another,     // the bytes of a lost view are read over those of another chunk
  lent_given_back_early,   // what is lent may be changed while a drive takes it

  // ---- going back to older versions
  rollback_floor_old,  // I11: a rollback takes the floor back too
  rollback_id_old,     // a rollback gives out anew what ids its version had not seen

  // ---- a medium that fails
  failure_forgotten,        // I8: after a failure the shelf commits on
  barrier_error_swallowed,  // I8: a flush that failed passes for one that did not
  barrier_repeated,         // I8: a flush that failed is tried once more
  lost_stage_is_damage,     // I8: what a failed flush or write lost of an attempt is told as damage

  // ---- one writer at a time
  lock_not_taken,             // I10: two processes have a shelf open for writing
  child_unlocks,              // I10: a forked child drops its parent's lock
  incarnation_not_bumped,     // I5: two openings have one number
  incarnation_not_durable,    // I5: opened, and one crash may take both copies of the number
  incarnation_not_reread,     // I10: a writer flips without looking for a later one
  look_outlives_attempt,      // I10: what is begun anew is written without looking for a later one
  repair_reuses_incarnation,  // I10: a number that a lost copy held is given out again

  // ---- names of files
  name_unsynced,           // I2: what a new name leads to is told before the folder of it is synced
  replaced_name_unsynced,  // I2: so is what is told of a name that leads to another file now
  replaced_in_two_steps,   // I2: between them there is no file of the name
  found_name_unsynced,     // I12: who finds a name takes it for durable
  media_unsettled,         // I2: a shelf is named before its other media are durable
  media_named_first,       // I2: the other media of a shelf get their names before they are durable
  left_media_removed,      // I2: a failure behind the shelf's name takes its new media away
  any_left_taken,          // what an adding left takes the place of another shelf's medium
  snapshot_named_early,    // I2: a snapshot gets its name before its version is in it

  // ---- new shelves
  format_without_barrier,  // I15: the superblock of a new shelf may land before its root
  format_over_superblock,  // I15: an old superblock stands while its roots are overwritten
  blank_unsettled,         // I15: an old superblock may be there while its roots are overwritten
  superblock_unrestored,   // I12: formatting failed at its last flush, and nobody wrote again

  // ---- opening: what is believed
  root_checksum_ignored,    // opening believes a root as it reads it
  page_checksum_ignored,    // it believes a page of the manifest
  chunk_checksum_ignored,   // it believes a chunk
  fallback_without_verify,  // an older version is opened without a look at its chunks
  recovery_asks_cache,      // I12: what a cache shows stands for what the medium has
  read_trusted_twice,       // I12: what is made durable is what a second read shows
  unreadable_not_bad,       // one copy of a page that cannot be read is taken for the whole
  unread_given_up,          // I11: a version that cannot be read for a moment is written over
  unread_chunk_given_up,    // I11: a version whose chunk cannot be read for a moment is given up
  zero_word_taken_for_old,  // I11: a root without a word passes for an attempt over version 0
  own_word_taken_for_old,   // a version with a damaged number in its word passes for an attempt
  older_than_lost_kept,     // I11: what is older than a version that was given up is offered again
  older_root_too_long,      // an older version may span more than the medium has
  bad_copy_told_once,  // a damaged page is mended for a version that is given up, and not for the
                       // one that shares it

  // ---- opening: what is written anew
  recovery_rewrites_root,   // I6: good copies of the root are written anew, both at once
  page_not_repaired,        // a page with one bad copy stays so, until the other goes
  older_root_not_repaired,  // of a retained version the second copy of the root stays damaged
  words_not_restored,       // I12: recovery accepts a word that no device may have
  waiting_word_unrestored,  // I11: a version that no opening found may be found by a later one
  incarnation_unrestored,  // I12: the older copy of the number is written while the newer may be on
                           // no device
  home_not_wiped,          // I11: a version that was not accepted may come back when it heals
  wipe_unrestored,         // I12: a home that was wiped may be so in a cache alone
  young_wipe_unrestored,   // I12: a home wiped before any version may be so in a cache alone
  repair_keeps_home,       // a repaired shelf keeps the root of a version that was given up

  // ---- what is prepared
  mark_before_barrier,      // I1: the mark may land, and what it vouches for not
  mark_unsettled,           // I14: a mark is told of before its second copy is durable
  mark_in_one_copy,         // I14: a damaged page then loses a prepared attempt
  marks_at_once,            // I14: one crash may take both copies of the mark
  mark_unrestored,          // I12: recovery believes a mark that no device may have
  marks_settled_at_once,    // I12: both copies are written anew together
  stale_mark_kept,          // I14: a mark that means nothing is left where it names something
  waiting_attempt_kept,     // I14: a mark that no opening found may count for a later one
  waiting_home_not_mended,  // I14: of a home that comes next one copy stays damaged
  older_root_left,  // I14: of a home that comes next one copy keeps a root older than the last
  described_not_repaired,  // I14: of a prepared attempt the second copy of the root stays damaged
  tag_by_incarnation,      // I5: two attempts of one opening at one version have one word
  tag_of_old_word,         // I14: tags are short, and one is that of the word it lies under
  prepared_slot_free,      // I3: what a prepared attempt that was found names is free
  prepared_not_verified,   // a damaged attempt that was found is flipped
  abandoned_given_back,    // I3: an abandoned attempt's slots are free before its mark is void
  abandoned_built_on,      // what is behind an abandoned attempt is committed over it
  abandoned_kept_behind,   // what was assigned behind an abandoned attempt is committed
  abandoned_labels_kept,   // I3: what an abandoned attempt wrote passes for the next one's value

  // ---- readers beside a writer, and what they hold
  overtaken_not_noticed,   // a reader takes bytes of a later version for damage, or for its own
  reader_trusts_slot,      // a reader checks a chunk once, and returns what lies there later
  reader_looks_once,       // a reader takes pages that vanish under it for damage
  reader_always_stale,     // a reader beside a writer that rests hears that it was overtaken
  older_judged_by_newest,  // I11: a reader's older version counts as whole while its newest one is
  refresh_remembers_late,  // what was flipped while a reader looked again is never seen
  refresh_without_pages,   // a reader goes on to a root, and keeps the pages of the one before
  early_look_believed,     // a reader goes on without versions that are retained
  damage_looked_for_elsewhere,  // a follower takes sound chunks that were moved for damaged
  damage_doubted_at_its_begin,  // what a reader verified, went on to and lost passes for damage
  pins_not_seen,           // I3: a writer gives away the slots of a version that a reader holds
  pins_unheard,            // I3: a reader's first pin does not wait until its writer hears of it
  pin_not_looked_behind,   // I3: a reader holds what its writer has given up already
  pin_of_what_is_shown,    // a pin without a number holds the version that a reader shows, and not
                           // the newest
  joined_pin_looked_at,    // what is held by two is given up as soon as the writer goes on
  shown_beside_outrunner,  // I3: a reader shows bytes in place beside a writer that outruns it
  outruns_though_refused,  // I3: a writer that may not outrun takes the end of that hold for leave
  own_pin_without_end,     // a write waits without end for a pin of its own process
  copy_not_waited_for,  // a write that needs a slot which is being copied out fails by pin_timeout
  opened_over_pins,     // I3: an opening knows nothing of a version that a reader holds

  // ---- tensors that change their name or shape, and healing
  renamed_by_another,      // what came after a lost version passes for its tensors, renamed
  renamed_in_memory,       // a rename that no manifest has
  renamed_record_kept,     // a rename leaves the old record beside the new one
  renamed_name_kept,       // a rename that was dropped goes on for handles of the tensor
  renamed_leaf_kept,       // the record of what was renamed is looked for where it was
  resized_without_staged,  // a resize keeps what was committed alone
  resized_over_rot,        // a resize gives damaged bytes a checksum of their own
  healed_unchecked,  // what another slot has passes for a damaged chunk's bytes, whatever it is
  healed_unwritten,  // I1: a chunk is restored by naming a slot that has it, and may lose it
  healed_in_place,   // I3: a chunk is restored where it lies, which older versions name
  healed_over_rot,   // what the new slot of a healed tensor passes for having is not looked at
  rot_copied_over,   // a commit copies rot over the last sound copy of a chunk, and then sees it
  rolled_back_to_damage,  // a version that is damaged is made the newest, unread
  pieces_not_healed,      // what is copied out is not looked for on the mirror
  healed_along,           // what somebody assigns meanwhile is committed with what is restored

  // ---- places that change
  moved_retained_slot,        // I3: a slot that an older version names gets another place
  moved_staged_slot,          // I3: a slot that the open attempt has written gets another place
  left_place_given_back,      // I3: a place that was left is free while older versions have it
  oldest_places_held,         // I3: what holds a tensor that is gone holds where it once was
  removed_named_again,        // a medium that was removed is named again where it is cut
  made_on_removed,            // one whose value is being assigned holds up no removal of its medium
  cut_behind_earlier,         // I11: commits that were frozen before the cut count as behind it
  carried_undone,             // what was carried, and assigned in vain, counts as changed
  newest_places_held,         // I3: a lease of what was moved and erased holds what is gone
  moved_in_memory,            // what lies elsewhere is not in the record
  moved_label_kept,           // what was known of a slot is believed of another place
  rolled_back_to_old_places,  // I3: a rollback takes back where slots were
  carried_as_new,             // what was merely copied counts as changed
  carried_is_own,             // an assignment undone over what was carried spoils the tensor
  carried_for_good,           // what is assigned over what was carried is no change
  carried_on_over_rot,        // a tensor of which a chunk cannot be copied is gone on with
  carried_over_rot,           // what cannot be copied is left half-copied, for a commit to fail on
  compacted_along,            // what somebody has half assigned is committed by compact()
  cut_before_roots,           // I11: a medium is cut while a root reaches further

  // ---- several media under one commit
  first_medium_alone_settled,  // I1: a barrier settles the first medium alone
  first_medium_alone_awaited,  // I1: writes on the other media are not waited for
  settled_by_sequence,         // I1: a write that goes through a cache asks for no barrier
  medium_age_ignored,          // an older copy of a medium passes for it
  medium_not_stamped,          // a medium does not say which version wrote to it
  opening_not_stamped,       // an older copy of a mirror passes for it where a number came again in
                             // another opening
  number_again_not_stamped,  // so it does where a number came again within one
  medium_not_named,          // a version names slots on a medium of which it says nothing
  medium_capacity_forgotten,  // I3: what was taken last on a further medium is free once more
  stripes_in_one,             // all chunks of a striped tensor are looked for on one medium
  header_under_way,           // I6: the header of a medium is written while its twin is in doubt
  replacement_left_half_way,  // who replaces a shelf stops at what one that was killed had left

  // ---- mirrors: what is written to them
  mirror_not_written,        // I1: what is written on a medium is not written on its mirror
  mirror_word_left_out,      // I2: words are not stored on the mirror
  mirror_not_named,          // a mirror is not named by the version that is to have it
  mirror_not_filled,         // a mirror that lacks something passes for one
  mirror_filling_forgotten,  // I12: what a filling that failed wrote passes for durable
  filling_marked_late,       // I12: the stamp of a filling may land behind what is copied
  mirror_head_first,         // I1: a mirror has roots before it has what they name
  prepared_not_filled_in,    // a mirror that is filled does not get what is prepared
  damage_mirrored,  // I6: a mirror is filled with what is damaged, of which it has the sound copy
  refused_behind_filling,  // I6: what is damaged is copied to the mirror before it is refused
  mirror_written_over,     // a mirror with a newer version than the first medium is written over
  mirror_a_version_ahead,  // a mirror that is a version ahead is filled, whatever the first medium
                           // shows
  cut_mirror_left_so,  // a shortened mirror that alone has a root gets no room for what is written
                       // next

  // ---- mirrors: what is read of them
  mirror_believed,  // a mirror is believed by its head, though it lacked a commit, or was cut short
  short_mirror_asked,      // a mirror is read behind its end where it was cut short
  mirror_not_verified,     // what rots on a mirror is not looked for
  mirror_error_is_damage,  // a mirror that could not be read for a moment counts as damaged
  mirror_has_no_pages,  // a page of which both copies are damaged is not looked for on the mirror
  damaged_though_mirrored,   // a prepared version is refused for damage of which its mirror has the
                             // sound copy
  forward_not_healed,        // a commit fails over rot of which the mirror has the sound copy
  one_mirrored_root,         // of several damaged roots, the newest alone is taken from the mirror
  older_mirrored_root_left,  // the damaged root of an older version is not looked for on the mirror
  mirrored_root_of_another,  // a root on a mirror is taken, whoever wrote it
  other_history_taken,  // a root passes for ours whose writer went on from the same version, and
                        // counted alike
  other_history_shown,  // a mirror of another history is read in the shelf's place
  lost_incarnation_passed,  // a mirror that was given up passes for one that was not
  openings_not_counted,     // a first medium from before a commit takes that commit back from the
                            // mirror
  older_first_shown,       // a reader is shown an older first medium, though others tell of a newer
                           // version
  given_up_mirror_needed,  // a mirror that was given up is asked for while a version before that is
                           // retained
  lone_mirror_held,  // I3: a mirror that is opened by itself takes a pin, which its writer does not
                     // see
  lost_attempt_forgotten,  // I14: nobody hears that what was prepared is damaged
  repair_looks_less,       // who repairs finds no need, where who opens is refused

  // ---- mirrors: what they alone have, made durable on both
  mirrored_root_unsettled,  // I6: a root that the mirror alone had is used before the first medium
                            // has it
  mirrored_home_unsettled,  // I6: both copies of a home that the mirror alone shows are wiped at
                            // once
  mirrored_home_kept,       // a copy of a home that the mirror alone shows is left as it is
  mirrored_copy_written,    // I6: the copy of a root that the mirror alone has is written together
                            // with the other
  lone_root_unsettled,      // I6: the copy of a root that was read on the mirror may lie in a cache
                            // alone
  lone_root_settled_anywhere,  // I1: such a root is made durable also on a mirror that lacks what
                               // it names
  older_lone_left,       // I6: what a mirror's copy of another home alone has may lie in a cache
  torn_mirror_unmarked,  // I6: when the first medium is wiped, nothing on a mirror with a torn flip
                         // says that it may be filled
  unseen_flip_unmarked,  // I6: nothing marks a torn flip that could not be read, and later can

  // ---- the pipeline
  feed_source_left_out,       // the last of the lazy sources is not copied
  feed_eager_lazily,          // I9: eager sources are copied when the trainer goes on already
  feed_staged_early,          // I9: the trainer goes on before all is copied
  feed_torn_committed,        // I9: a source that changed while it was copied is committed
  feed_probe_left_out,        // I9: what changed before anything was copied is not noticed
  feed_chunks_not_compared,   // I9: what changed in part is not noticed
  feed_part_kept,             // I13: what a save that failed had copied is in the next version
  feed_part_committed,        // I13: what was copied before a failure is committed
  feed_turn_given_up,         // I13: a commit of somebody else's takes half of a save
  feed_failure_forgotten,     // a save that failed is told nobody
  feed_drained_early,         // I9: drained, and what is assigned next is in a save's version
  closed_over_save,           // close() says nothing of the save that it was called under
  second_failure_dropped,     // of two failures that nobody was told, close() tells the first
  feed_failure_let_go,        // a failure that a pipeline is destroyed with is told nobody
  let_go_in_silence,          // a failure that a shelf is destroyed with is told nobody
  feed_step_left_out,         // the version has the step of the one before
  compared_outside_gate,      // who abandons takes away what a save is being compared with
  feed_closed_late,           // a save is handed to a thread that has ended, and keeps the turn
  feed_not_drained,           // closing drops what was begun
  feed_durable_early,         // I2: a save is durable when it is launched
  feed_prepared_committed,    // I14: a save that should wait for a decision waits for none
  feed_decision_not_awaited,  // a save behind one that is undecided is refused
  feed_prepared_as_staging,   // a prepared save counts as one that is being staged

  // ---- the mapped medium, below the explorer: tests/test_pmem_persist.cpp runs these
  write_hashed_first,   // I9: by way of the file, of bytes that the caller may change yet
  write_not_drained,    // I7: streaming stores are on their way when write() returns
  write_kept_in_cache,  // I1: small writes are not flushed where they must be
  barrier_not_drained,  // I1: streaming stores are on their way when a barrier returns
  word_not_flushed,     // I2: a word is not flushed
  word_flushed_beside,  // I2: the flush of a word is one line off
  word_in_halves,       // I4: a word is stored in two halves

  // ---- the block medium, below the explorer: tests/test_block_drive.cpp runs these
  flush_left_out,          // I2: a barrier waits for its words, and flushes nothing
  words_not_drained,       // I2: a barrier flushes while a word is on its way to the device
  word_page_not_followed,  // a word brings back what its page held before a later write
  flush_repeated,          // I8: one that failed is tried again, and then succeeds
  held_page_overtaken,     // what goes by the cache lands before an older write of the same place
  cut_write_left,          // the rest of a write that was cut short is never written
  lent_not_awaited,        // bytes pass for given back while their write is on its way
  child_unmaps,            // a forked child gives back memory that it never had: somebody else's

  // ---- the pool medium: tests/test_pool_replicas.cpp runs these
  replica_not_written,     // I2: what is stored reaches the first replica alone
  replica_word_left,       // I2: a word reaches the first replica alone
  replicas_left_apart,     // I12: what a crash left in the first alone is not in the others
  replicas_apart_unnoted,  // I12: nobody notes that a writer has the pool open

  // ---- the group's protocol: tests/test_group_explored.cpp runs these
  group_generation_ignored,   // a decision of an older start of the job counts
  group_epoch_ignored,        // a decision of another epoch counts
  group_vote_overtaken,       // who has not voted takes a decision
  group_old_vote_counted,     // a vote of an older start counts
  group_decision_forgotten,   // who asks for the last commit again hears of an abort
  group_no_overheard,         // a no counts as a yes
  group_majority_decides,     // a commit before the last yes
  group_votes_kept,           // the votes of one epoch count for the next
  group_relay_early,          // a relay says yes at the first of those below it
  group_prepared_overlooked,  // a restart sees what was committed alone
  group_missing_part_taken,   // a restart goes on without one rank's part
  group_older_taken,          // a restart goes back behind what was committed
  group_leftover_committed,   // a restart commits what it should abandon
};

#ifdef TENSORSHELF_PLANTED_BUGS
inline Bug planted_bug = Bug::none;
inline bool planted(Bug bug) { return planted_bug == bug; }
#else
constexpr bool planted(Bug) { return false; }
#endif

}  // namespace tensorshelf
