// One version over the shelves of many ranks: who says what, and what follows from it. These are
// state machines without I/O, threads or clocks: whoever runs them moves the messages, and does
// what they say.
//
//     rank            Participant                                Coordinator
//     prepare()   ->  prepared()   -- yes ------------------->   receive(): all said yes
//                     receive()    <------------------ commit --
//     resolve()   <-  Todo::commit
//
// Two-phase commit with presumed abort (Gray 1978; Mohan, Lindsay and Obermarck 1986). The shelves
// are its log: a yes is sent when the part is prepared (Shelf::prepare), and what a restart decides
// follows from what the shelves hold (agree()). Nothing times out: a slow rank delays the decision,
// and a rank that cannot save says no, which decides at once.
//
// Messages may be lost, late, doubled and in any order. A rank that waits for a decision sends its
// vote again (again()); the coordinator answers each.
//
// Values, for one thread at a time; a copy goes on by itself.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorshelf {

// One try of a group to make a version. Within a generation (one start of the job) epochs are
// counted, and each counts once, also where it is aborted.
struct Epoch {
  std::uint64_t generation = 0;
  std::uint64_t number = 0;  // 0: none yet

  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

// The generation of a new start of a job: larger than `seen`, the largest that its shelves have
// seen. Its lower half is `random`, so that two starts differ even where the first left no trace.
// Errc::full where the upper half cannot count further.
std::uint64_t next_generation(std::uint64_t seen, std::uint32_t random);

struct GroupMessage {
  enum class Kind : std::uint8_t { yes = 1, no, commit, abort };

  Kind kind = Kind::no;
  Epoch epoch;
  std::uint32_t rank = 0;  // whose vote it is; of an abort, who said no
  std::string cause = {};  // of no and abort, for people; at most kMostCauseBytes are sent

  friend auto operator<=>(const GroupMessage&, const GroupMessage&) = default;
};
inline constexpr std::size_t kMostCauseBytes = 4096;

std::string encode(const GroupMessage& message);
// Errc::corrupt for bytes that encode() does not give.
GroupMessage decode_group_message(std::string_view bytes);

// XXH3-64 of bytes that ranks send to each other. `seed`: the checksum of what came before, or 0.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed);

// What a rank has to do with its part.
enum class Todo : std::uint8_t {
  nothing,
  commit,   // Shelf::resolve(Decision::commit)
  abandon,  // Shelf::resolve(Decision::abandon)
};

// One rank. An epoch begins with begin() and ends with a Todo, or with an abort where this rank
// said no; then the next may begin.
class Participant {
 public:
  // `last` is what the start agreed on: its generation, and the number that the next epoch follows.
  Participant(std::uint32_t rank, Epoch last) : rank_(rank), epoch_(last) {}

  // This rank saves: the epoch that it saves for. An assert where the one before has not ended.
  Epoch begin();
  // Its part is prepared, or will not be: the vote, to be sent. The part must be durable by then.
  GroupMessage prepared();
  GroupMessage refused(std::string_view cause);
  // What a decision makes this rank do. Todo::nothing where it is of another epoch or generation,
  // comes again, or comes before the vote.
  Todo receive(const GroupMessage& decision);
  // The vote, to be sent again, where no decision on it was heard.
  std::optional<GroupMessage> again() const;

  bool ended() const { return state_ == State::ended; }
  // The epoch that is under way, or ended last.
  const Epoch& epoch() const { return epoch_; }
  // Who said no, and why, where the epoch ended by an abort.
  const std::optional<GroupMessage>& aborted() const { return aborted_; }

  friend auto operator<=>(const Participant&, const Participant&) = default;

 private:
  enum class State : std::uint8_t { ended, saving, said_yes, said_no };
  void end(const GroupMessage& decision);

  std::uint32_t rank_;
  Epoch epoch_;
  State state_ = State::ended;
  std::string cause_;  // of a no
  std::optional<GroupMessage> aborted_;
};

// One for each group, beside the participant of one of its ranks. It takes votes on one epoch at a
// time: the next begins when that is decided.
class Coordinator {
 public:
  // Errc::bad_argument for 0 members.
  Coordinator(std::uint32_t members, Epoch last);

  // The decision, for all members: when the last yes has come, at the first no, and for a vote on
  // an epoch that was decided before. Else nothing, and for messages of other generations nothing.
  std::optional<GroupMessage> receive(const GroupMessage& vote);

  // Members that have not voted yet on the epoch under way.
  std::vector<std::uint32_t> awaited() const;
  const Epoch& decided() const { return decided_; }

  friend auto operator<=>(const Coordinator&, const Coordinator&) = default;

 private:
  GroupMessage decide(GroupMessage decision);
  GroupMessage decided_before(const GroupMessage& vote) const;

  std::vector<char> said_yes_;             // of the epoch under way
  Epoch decided_;                          // the last one
  std::optional<GroupMessage> committed_;  // the last decision of each kind
  std::optional<GroupMessage> aborted_;
};

// Several ranks below, one above: to the coordinator they are one member, and the messages it takes
// grow with the nodes, not the ranks. `below` counts from 0 within this relay.
class Relay {
 public:
  Relay(std::uint32_t members_below, std::uint32_t rank_above, Epoch last);

  struct Step {
    std::optional<GroupMessage> up;    // a vote, for the coordinator or the relay above
    std::optional<GroupMessage> down;  // a decision, for all below
  };
  Step receive_vote(const GroupMessage& vote);
  Step receive_decision(const GroupMessage& decision);
  std::optional<GroupMessage> again() const;

  // Who of those below has not voted yes on the epoch under way; nobody once that was sent up.
  std::vector<std::uint32_t> awaited() const;

  friend auto operator<=>(const Relay&, const Relay&) = default;

 private:
  std::uint32_t rank_;
  Epoch decided_;
  std::vector<char> said_yes_;
  std::optional<GroupMessage> vote_;  // that was sent up
  std::optional<GroupMessage> last_;  // decision
};

// ---- restart

// What one shelf of the job holds: a member's own, or a replica of it.
struct GroupPart {
  std::uint32_t rank = 0;         // whose part of the state it is
  std::uint32_t members = 0;      // of the group that made it
  std::vector<Epoch> committed;   // that can be read, the oldest first; none: an empty shelf
  std::optional<Epoch> prepared;  // and undecided
};

struct Agreement {
  Epoch epoch;              // number 0: nothing was ever committed
  std::vector<Todo> todos;  // of each part, in their order
  // Parts that do not hold it, to be healed from one that does.
  std::vector<std::size_t> behind;
};

// What all go on from, by what was found: the newest epoch of which every rank's part is held by
// some shelf, committed or prepared. Where a shelf committed it, or all hold it prepared, the
// others follow; anything else that is prepared is dropped. Where a start carries it out in part,
// and another begins anew, the result is the same.
// Errc::not_found where a rank's part is held by no shelf, Errc::stale where a newer epoch was
// committed, but not every part of it is here: both name the ranks. Errc::bad_argument where the
// parts are of groups of other sizes.
Agreement agree(std::span<const GroupPart> parts, std::uint32_t members);

}  // namespace tensorshelf
