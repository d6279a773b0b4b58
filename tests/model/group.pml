/* A group's commit, for Spin: one version over the shelves of some ranks, whatever becomes of their
   messages, and whoever dies. Written from what the protocol promises, not from its sources:
   src/group, which tests/test_group_explored.cpp runs itself.

   Two-phase commit with presumed abort, whose log are the shelves. A rank begins an epoch, prepares
   its part, says yes, and takes the decision; or it refuses and says no. The coordinator, in the
   process of rank 0, decides a commit when all said yes, and an abort at the first no. Whoever
   starts the job again goes on from the newest epoch that every rank holds.

   A message stays in `sent` when it was taken: so it may come late, twice, in any order, or never.
   With LOSS it may also vanish, and who waits sends its vote again.

   A step is what a crash leaves done or undone: a rank that has taken a decision and not done it
   yet is one that has not taken it. Ranks that start again one after the other are not told apart
   from ranks that do so at once: a shelf has one process, so it stands still from the death of its
   rank until the last rank has come.

   tests/test_group_model.py runs this, also with a mistake planted (-DBUG_group_...). `spin -T -k`
   prints the steps of a trail. */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef STARTS
#define STARTS 2    /* of the job */
#endif
#ifndef SAVES
#define SAVES 1     /* of each rank, after each start */
#endif
#ifndef REFUSALS
#define REFUSALS 1  /* in all */
#endif

/* An epoch is a number within a generation, which is one start of the job; 0 is none. As bytes they
   are ordered as the protocol orders them: by generation, then by number. */
#define NUMBERS (STARTS * SAVES + 1)
#define EPOCH(generation, number) ((generation) * NUMBERS + (number))
#define EPOCHS EPOCH(STARTS + 1, 0)
#define NUMBER(epoch) ((epoch) % NUMBERS)

/* What was sent about an epoch, one bit each. */
#define YES(r) (1 << (r))
#define NO(r) (8 << (r))
#define COMMIT 64
#define ABORT 128
byte sent[EPOCHS];

/* The shelves. */
byte committed[RANKS];  /* the newest epoch that was */
byte prepared[RANKS];   /* and undecided */

/* The processes of the ranks; `commits` and `drops` have yet to do what the start agreed on. */
mtype = { down, commits, drops, ended, saving, saved, said_yes, said_no };
mtype state[RANKS] = down;
byte number[RANKS];  /* of the epoch that is under way, or ended last */

/* The coordinator. */
byte said;         /* yes, of the epoch that follows the last decided one: a bit for each rank */
byte decided;      /* the number of the last decided one */
byte last_commit;  /* of the last that was committed since the start; 0: none */

/* The job. */
byte generation;    /* of the processes that live */
byte base;          /* the number that the start went on from */
byte generations;   /* that were used: a bit for each */
byte refusals;
byte acknowledged;  /* the newest epoch that anybody was told of, or a start went on from */

/* What is to hold. A failed one is named by Spin. With HARM_ALONE the messages may say what they
   should not: it counts what the shelves come to. */
bool every_rank_holds_it = true;            /* 1: where one commits, no other is without it */
bool nobody_committed_it = true;            /* 1: what one drops, no other has committed */
bool aborted_is_not_committed = true;       /* 1: also not by a start */
bool acknowledged_is_kept = true;           /* 2 */
bool start_goes_on = true;                  /* 2: none finds less than what was committed */
bool older_start_changes_nothing = true;    /* 3 */
bool all_end_alike = true;                  /* 4: when nobody dies any more, and all has arrived */
bool resolves_what_it_prepared = true;      /* what a shelf asks of who uses it, */
bool one_is_prepared_at_a_time = true;      /* likewise */
bool commits_nothing_older = true;          /* likewise */

byte e;       /* within a step; else 0 */
byte newest;  /* likewise */

/* ---- for all ranks, all messages */

#if RANKS == 2
#define ALL(P, x) (P(0, x) && P(1, x))
#define EACH_RANK(M) M(0) M(1)
#define EACH_RANK_OF(M, g, n) M(0, g, n) M(1, g, n)
#else
#define ALL(P, x) (P(0, x) && P(1, x) && P(2, x))
#define EACH_RANK(M) M(0) M(1) M(2)
#define EACH_RANK_OF(M, g, n) M(0, g, n) M(1, g, n) M(2, g, n)
#endif
#define EVERYONE ((1 << RANKS) - 1)

#define NUMBERS_1(M, g) EACH_RANK_OF(M, g, 1)
#if NUMBERS > 2
#define NUMBERS_2(M, g) NUMBERS_1(M, g) EACH_RANK_OF(M, g, 2)
#else
#define NUMBERS_2 NUMBERS_1
#endif
#if NUMBERS > 3
#define NUMBERS_3(M, g) NUMBERS_2(M, g) EACH_RANK_OF(M, g, 3)
#else
#define NUMBERS_3 NUMBERS_2
#endif
#if NUMBERS > 4
#define NUMBERS_4(M, g) NUMBERS_3(M, g) EACH_RANK_OF(M, g, 4)
#else
#define NUMBERS_4 NUMBERS_3
#endif
#if NUMBERS > 5
#define NUMBERS_5(M, g) NUMBERS_4(M, g) EACH_RANK_OF(M, g, 5)
#else
#define NUMBERS_5 NUMBERS_4
#endif
#if NUMBERS > 6
#define NUMBERS_6(M, g) NUMBERS_5(M, g) EACH_RANK_OF(M, g, 6)
#else
#define NUMBERS_6 NUMBERS_5
#endif
#if NUMBERS > 7
#error "name the messages of more epochs here"
#endif

#define EACH_MESSAGE_1(M) NUMBERS_6(M, 1)
#define EACH_START_1(M) M(1)
#if STARTS >= 2
#define EACH_MESSAGE_2(M) EACH_MESSAGE_1(M) NUMBERS_6(M, 2)
#define EACH_START_2(M) EACH_START_1(M) M(2)
#else
#define EACH_MESSAGE_2 EACH_MESSAGE_1
#define EACH_START_2 EACH_START_1
#endif
#if STARTS >= 3
#define EACH_MESSAGE_3(M) EACH_MESSAGE_2(M) NUMBERS_6(M, 3)
#define EACH_START_3(M) EACH_START_2(M) M(3)
#else
#define EACH_MESSAGE_3 EACH_MESSAGE_2
#define EACH_START_3 EACH_START_2
#endif
#if STARTS >= 4
#define EACH_MESSAGE_4(M) EACH_MESSAGE_3(M) NUMBERS_6(M, 4)
#define EACH_START_4(M) EACH_START_3(M) M(4)
#else
#define EACH_MESSAGE_4 EACH_MESSAGE_3
#define EACH_START_4 EACH_START_3
#endif
#if STARTS > 4
#error "name the messages of more starts here"
#endif
#define EACH_MESSAGE EACH_MESSAGE_4
#define EACH_START EACH_START_4

#define HAS(r, x) (committed[r] >= (x) || prepared[r] == (x))
#define NOT_COMMITTED(r, x) (committed[r] != (x))
#define BEFORE_GENERATION(r, g) (committed[r] < EPOCH(g, 0) && prepared[r] < EPOCH(g, 0))
#define ALIKE(r, x)                                                               \
  (state[r] == ended && number[r] == number[0] && committed[r] == committed[0] && \
   prepared[r] == 0)
#define LIVES(r, x) (state[r] != down)
#define COORDINATOR_LIVES (state[0] != down)

/* ---- what a rank does to its shelf */

inline prepare_part(r) {
  printf("rank %d prepares %d.%d\n", r, generation, number[r]);
  one_is_prepared_at_a_time = (prepared[r] == 0);
  assert(one_is_prepared_at_a_time);
  prepared[r] = EPOCH(generation, number[r]);
}

inline commit_part(r, epoch) {
  e = epoch;
  printf("rank %d commits %d.%d\n", r, e / NUMBERS, NUMBER(e));
  resolves_what_it_prepared = (e != 0 && prepared[r] == e);
  assert(resolves_what_it_prepared);
  commits_nothing_older = (committed[r] < e);
  assert(commits_nothing_older);
  every_rank_holds_it = ALL(HAS, e);
  assert(every_rank_holds_it);
#ifndef HARM_ALONE
  aborted_is_not_committed = !(sent[e] & ABORT);
  assert(aborted_is_not_committed);
#endif
  committed[r] = e;
  prepared[r] = 0;
  e = 0;
}

inline drop_part(r, epoch) {
  e = epoch;
  printf("rank %d drops %d.%d\n", r, e / NUMBERS, NUMBER(e));
  resolves_what_it_prepared = (e != 0 && prepared[r] == e);
  assert(resolves_what_it_prepared);
  nobody_committed_it = ALL(NOT_COMMITTED, e);
  assert(nobody_committed_it);
  acknowledged_is_kept = (acknowledged != e);
  assert(acknowledged_is_kept);
  prepared[r] = 0;
  e = 0;
}

inline message_counts(g) {
#ifdef HARM_ALONE
  skip
#else
  older_start_changes_nothing = (g == generation);
  assert(older_start_changes_nothing)
#endif
}

/* ---- a rank */

#ifdef BUG_group_yes_before_prepared
#define MAY_VOTE(r) (state[r] == saving)
#define PREPARES(r) :: d_step { state[r] == said_yes && prepared[r] == 0 -> prepare_part(r) }
#else
#define MAY_VOTE(r) (state[r] == saved)
#define PREPARES(r) :: d_step { state[r] == saving -> prepare_part(r); state[r] = saved }
#endif
#ifdef BUG_group_refused_when_prepared
#define MAY_REFUSE(r) (state[r] == saving || state[r] == saved)
#else
#define MAY_REFUSE(r) (state[r] == saving)
#endif
#ifdef BUG_group_resolved_late
#define MAY_BEGIN(r) (state[r] == ended || state[r] == commits || state[r] == drops)
#else
#define MAY_BEGIN(r) (state[r] == ended)
#endif

#define WORKS(r)                                                                          \
  :: d_step { MAY_BEGIN(r) && number[r] < base + SAVES ->                                 \
       number[r]++; state[r] = saving }                                                   \
  PREPARES(r)                                                                             \
  :: d_step { MAY_REFUSE(r) && refusals < REFUSALS ->                                     \
       printf("rank %d refuses %d.%d\n", r, generation, number[r]);                       \
       refusals++; state[r] = said_no;                                                    \
       sent[EPOCH(generation, number[r])] = sent[EPOCH(generation, number[r])] | NO(r) }  \
  :: d_step { MAY_VOTE(r) ->                                                              \
       printf("rank %d says yes to %d.%d\n", r, generation, number[r]);                   \
       state[r] = said_yes;                                                               \
       sent[EPOCH(generation, number[r])] = sent[EPOCH(generation, number[r])] | YES(r) } \
  :: d_step { state[r] == commits -> commit_part(r, prepared[r]); state[r] = ended }      \
  :: d_step { state[r] == drops -> drop_part(r, prepared[r]); state[r] = ended }

#ifdef LOSS
#ifndef BUG_group_asked_once
#define ASKS_AGAIN(r)                                                                     \
  :: d_step { state[r] == said_yes && !(sent[EPOCH(generation, number[r])] & YES(r)) ->   \
       sent[EPOCH(generation, number[r])] = sent[EPOCH(generation, number[r])] | YES(r) } \
  :: d_step { state[r] == said_no && !(sent[EPOCH(generation, number[r])] & NO(r)) ->     \
       sent[EPOCH(generation, number[r])] = sent[EPOCH(generation, number[r])] | NO(r) }
#else
#define ASKS_AGAIN(r)
#endif
#endif

#ifdef BUG_group_vote_overtaken
#define WAITS(r) (state[r] == said_yes || state[r] == saving || state[r] == saved)
#else
#define WAITS(r) (state[r] == said_yes)
#endif
#if defined(BUG_group_epoch_ignored)
#define TAKES(r, g, n) true
#elif defined(BUG_group_generation_ignored)
#define TAKES(r, g, n) (number[r] == n)
#else
#define TAKES(r, g, n) (generation == g && number[r] == n)
#endif

#define HEARS(r, g, n)                                                                \
  :: d_step { WAITS(r) && TAKES(r, g, n) && (sent[EPOCH(g, n)] & COMMIT) ->           \
       message_counts(g); commit_part(r, EPOCH(generation, number[r]));               \
       state[r] = ended }                                                             \
  :: d_step { WAITS(r) && TAKES(r, g, n) && (sent[EPOCH(g, n)] & ABORT) ->            \
       message_counts(g); drop_part(r, EPOCH(generation, number[r]));                 \
       state[r] = ended }                                                             \
  :: d_step { state[r] == said_no && TAKES(r, g, n) && (sent[EPOCH(g, n)] & ABORT) -> \
       message_counts(g); state[r] = ended }

/* ---- the coordinator */

#ifdef BUG_group_majority_decides
#define ENOUGH (said == 3 || said > 4)
#else
#define ENOUGH (said == EVERYONE)
#endif
#ifdef BUG_group_old_vote_counted
#define OURS(g) true
#else
#define OURS(g) (generation == g)
#endif
#ifdef BUG_group_no_overheard
#define SAYS_YES(r) (YES(r) | NO(r))
#define SAYS_NO(r) 0
#else
#define SAYS_YES(r) YES(r)
#define SAYS_NO(r) NO(r)
#endif
#if defined(BUG_group_decision_forgotten)
#define ANSWER(n) ABORT
#else
#define ANSWER(n) (last_commit == n -> COMMIT : ABORT)
#endif

inline decide(n, decision) {
  printf("the coordinator decides on %d.%d: %d\n", generation, n, decision);
  sent[EPOCH(generation, n)] = sent[EPOCH(generation, n)] | decision;
  decided = n;
#ifndef BUG_group_votes_kept
  said = 0;
#endif
#ifdef BUG_group_commit_not_kept
  last_commit = 0;
#endif
  if
  :: decision == COMMIT ->
    last_commit = n;
    e = EPOCH(generation, n);
    every_rank_holds_it = ALL(HAS, e);
    assert(every_rank_holds_it);
    acknowledged = (e > acknowledged -> e : acknowledged);
    e = 0
  :: else
  fi
}

inline count_yes(r, n) {
  said = said | (1 << r);
  if
  :: ENOUGH -> decide(n, COMMIT)
  :: else
  fi
}

#define VOTES(r, g, n)                                                                  \
  :: d_step { COORDINATOR_LIVES && OURS(g) && decided + 1 == n && !(said & (1 << r)) && \
              (sent[EPOCH(g, n)] & SAYS_YES(r)) ->                                      \
       message_counts(g); count_yes(r, n) }                                             \
  :: d_step { COORDINATOR_LIVES && OURS(g) && decided + 1 == n &&                       \
              (sent[EPOCH(g, n)] & SAYS_NO(r)) ->                                       \
       message_counts(g); decide(n, ABORT) }
#ifdef BUG_group_late_vote_unanswered
#define LATE_VOTES(r, g, n)
#else
#define LATE_VOTES(r, g, n)                                               \
  :: d_step { COORDINATOR_LIVES && OURS(g) && n <= decided &&             \
              (sent[EPOCH(g, n)] & (YES(r) | NO(r))) &&                   \
              !(sent[EPOCH(g, n)] & ANSWER(n)) ->                         \
       message_counts(g);                                                 \
       printf("the coordinator answers on %d.%d: %d\n", g, n, ANSWER(n)); \
       sent[EPOCH(g, n)] = sent[EPOCH(g, n)] | ANSWER(n) }
#endif

/* ---- a start of the job */

#ifdef BUG_group_prepared_overlooked
#define FOUND(r, x) (committed[r] == (x))
#else
#define FOUND(r, x) (committed[r] == (x) || prepared[r] == (x))
#endif
#ifdef BUG_group_missing_part_taken
#if RANKS == 2
#define FOUND_OF_ALL(x) (FOUND(0, x) || FOUND(1, x))
#else
#define FOUND_OF_ALL(x) (FOUND(0, x) + FOUND(1, x) + FOUND(2, x) >= 2)
#endif
#else
#define FOUND_OF_ALL(x) ALL(FOUND, x)
#endif
#ifdef BUG_group_leftover_committed
#define LEFTOVER commits
#else
#define LEFTOVER drops
#endif

#define TAKE_NEWEST(r) newest = (committed[r] > newest -> committed[r] : newest);
#define START_RANK(r)                                           \
  number[r] = base;                                             \
  if                                                            \
  :: prepared[r] == 0 -> state[r] = ended                       \
  :: prepared[r] != 0 && prepared[r] == e -> state[r] = commits \
  :: else -> state[r] = LEFTOVER                                \
  fi;

inline start(g) {
  EACH_RANK(TAKE_NEWEST)
  e = EPOCHS - 1;
  do
  :: e > newest && !FOUND_OF_ALL(e) -> e--
  :: else -> break
  od;
  printf("start %d goes on from %d.%d\n", g, e / NUMBERS, NUMBER(e));
  start_goes_on = FOUND_OF_ALL(e);
  assert(start_goes_on);
  acknowledged_is_kept = (e >= acknowledged);
  assert(acknowledged_is_kept);
  acknowledged = e;
  generation = g;
  generations = generations | (1 << g);
  base = NUMBER(e);
  EACH_RANK(START_RANK)
  said = 0;
  decided = base;
  last_commit = 0;
  e = 0;
  newest = 0
}

/* A generation is new, and larger than what the shelves have of them; but not than that of a start
   that left nothing there. */
#if defined(BUG_group_generation_reused)
#define IS_NEW(g) ALL(BEFORE_GENERATION, g)
#elif defined(BUG_group_generation_not_above)
#define IS_NEW(g) !(generations & (1 << g))
#else
#define IS_NEW(g) (!(generations & (1 << g)) && ALL(BEFORE_GENERATION, g))
#endif
#define MAY_START(g) :: d_step { IS_NEW(g) -> start(g) }

/* ---- what befalls the ranks */

#define DIES(r)                                            \
  :: d_step { state[r] != down ->                          \
       printf("rank %d dies\n", r);                        \
       state[r] = down; number[r] = 0;                     \
       if                                                  \
       :: r == 0 -> said = 0; decided = 0; last_commit = 0 \
       :: else                                             \
       fi }
#define VANISHES(r, g, n)                                                  \
  :: d_step { generation == g && (sent[EPOCH(g, n)] & (YES(r) | NO(r))) -> \
       printf("the vote of rank %d on %d.%d is lost\n", r, g, n);          \
       sent[EPOCH(g, n)] = sent[EPOCH(g, n)] & (255 - YES(r) - NO(r)) }    \
  :: d_step { r == 0 && generation == g && (sent[EPOCH(g, n)] & COMMIT) -> \
       printf("the commit of %d.%d is lost\n", g, n);                      \
       sent[EPOCH(g, n)] = sent[EPOCH(g, n)] & (255 - COMMIT) }            \
  :: d_step { r == 0 && generation == g && (sent[EPOCH(g, n)] & ABORT) ->  \
       printf("the abort of %d.%d is lost\n", g, n);                       \
       sent[EPOCH(g, n)] = sent[EPOCH(g, n)] & (255 - ABORT) }

active proctype fate() {
  do
  EACH_START(MAY_START)  /* who lived died at once */
  EACH_RANK(DIES)
#ifdef LOSS
  EACH_MESSAGE(VANISHES)
#endif
  od
}

/* What goes on where nobody dies. Where none of it can, all has ended; and it comes to that in
   whatever order, for no step is undone by another: `pan -l` looks for a way that never ends. */
active proctype job() {
  do
  EACH_RANK(WORKS)
  EACH_MESSAGE(HEARS)
  EACH_MESSAGE(VOTES)
  EACH_MESSAGE(LATE_VOTES)
#ifdef LOSS
  EACH_RANK(ASKS_AGAIN)
#endif
  :: atomic { else ->
       all_end_alike = (!ALL(LIVES, 0) || ALL(ALIKE, 0));
       assert(all_end_alike) }
#ifdef PROGRESS
progress: skip
#endif
  od
}
