// Short programs for the store, as text, and the table of those that are explored.
//
//   create NAME BYTES    a new tensor                assign NAME      all of it, a new stamp
//   part NAME AT BYTES   a range of it               thread NAME      assign in another thread
//   lend NAME            all of it, a new stamp, lent in whole pages, which change once awaited
//   same NAME            assign what it was when an attempt was frozen last, or prepared
//   compact              make the medium as short as what is in it: some commits of what is there,
//                        or, over what is not committed, a refusal that leaves slots elsewhere
//   reserve BYTES        make room ahead for tensors of so many bytes
//   erase NAME           remove it                   replace NAME BYTES   a new layout
//   rename NAME N        it is called rN from here on
//   resize NAME BYTES    what has room of it stays, what is new is zeros
//   move NAME M          on the medium of that number, 0 or 1
//   remove               the second medium, on which nothing lies
//   undo NAME AT BYTES   assign a range in two writes, and let it go; where that spoils the tensor,
//                        no commit may take it, and all of it is assigned
//   persist              commit with a step          quiet            commit, the step stays
//   async                persist_async, then wait    reopen           close and recover
//   many N BYTES         create and assign N tensors m0, m1, ...
//   named N LENGTH       create and assign N tensors of 8 bytes with names of so many bytes
//   all                  assign every tensor          refuse NAME BYTES   create, beyond the medium
//   lease NAME           pin its value, staged or not hold NAME        pin its committed value
//   drop                 let go of all that was pinned so
//   pin                  a reader beside holds the newest version, which it must go on to show
//   unpin                those readers end; so they do where an opening is refused for them
//
//   shelf KEEP IN_FLIGHT first of all: the shelf has 1 + KEEP + IN_FLIGHT slots, and not 2
//   format N             the shelf is of format N: 2, or the one of today
//   media 2              the shelf has a second medium, on which tensors lie by their names; those
//                        of more than a chunk in stripes over both
//   mirror               the shelf has a second medium, which mirrors the first
//   placed HOW           after it: tensors are made "whole" or "chunk", whatever the medium
//   launch               persist_async; the attempt is in flight, frozen, and goes on when told:
//   go STAGE             the oldest in flight, to 1 described, 2 prepared (durable, and no word),
//                        3 half (one word), 4 flipped (both words, and no barrier after them)
//   land                 the same to its end
//   discard              drop what is assigned since the last commit or launch
//   begin                a transaction            commit / forget   its ends
//   rollback N           to the version N before the newest
//   split KEEP IN_FLIGHT reopen with another split of the same slots
//
//   feed                 all tensors by a pipeline, every other one lazily, until it is durable
//   offer                the same, prepared, as prepare
//   fly                  the same in flight, as launch
//   tear                 the same, of which the last changes while it is copied: nothing is saved
//   fall                 the same, of which the last cannot be copied: nothing is saved
//
//   prepare              the first half of a commit   resolve / abandon   its decision
//
// Behind what is prepared, commits are refused, and assignments that need one of its slots; after a
// reopening all changes are, until it is decided.
//
// What needs a slot of an attempt in flight, or is beyond what may be in flight at once, waits:
// then the oldest lands first. So do all for a commit that is waited for, and for a reopening. An
// assignment that needs a pinned slot, of this process or a reader beside, is refused, and the
// program goes on without it.
// Operations are separated by ";". What was staged and not persisted is dropped by reopen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/tensor.hpp>

namespace tensorshelf::crash {

enum class Verb {
  create,
  assign,
  part,
  thread,
  undo,
  lend,
  same,
  erase,
  reserve,
  compact,
  replace,
  rename,
  resize,
  move,
  remove,
  persist,
  quiet,
  async,
  reopen,
  many,
  named,
  all,
  refuse,
  lease,
  hold,
  drop,
  pin,
  unpin,
  shelf,
  format,
  media,
  mirror,
  placed,
  launch,
  go,
  land,
  discard,
  begin,
  commit,
  forget,
  rollback,
  split,
  prepare,
  resolve,
  abandon,
  feed,
  offer,
  fly,
  tear,
  fall
};

std::string long_name(std::uint64_t number, std::uint64_t length);  // of a tensor made by `named`

struct Op {
  Verb verb = Verb::persist;
  std::string name = {};
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

// Of the shelf that a program begins with.
struct Shape {
  unsigned keep = 0;
  unsigned in_flight = 1;
  std::uint64_t format_version = 0;  // 0: that of today
  std::uint64_t media = 1;
  bool mirrored = false;                    // the second of them mirrors the first
  std::optional<Placement> placement = {};  // none: the medium's own
  bool stated = false;                      // by the program
};
Shape shape_of(const std::vector<Op>& ops);

struct Workload {
  std::string_view name;
  std::string program;
  unsigned weight = 1;  // of one recovery, about: fewer images where it is high
};

std::vector<Op> parse(std::string_view program);  // throws std::invalid_argument

const std::vector<Workload>& workloads();

// A program that no one thought of: some fifteen operations on up to four tensors.
std::string random_program(std::uint64_t seed);
// The same with attempts in flight, retained versions and all that goes with them.
std::string random_attempts(std::uint64_t seed);

}  // namespace tensorshelf::crash
