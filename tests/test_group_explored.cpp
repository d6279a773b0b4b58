// Every state that a job of two or three ranks can come to, whatever becomes of its messages and
// whoever dies: whether one epoch is committed in part, an acknowledged one is lost, or somebody
// waits for good.
//
// Also built with planted bugs of the protocol (TENSORSHELF_PLANTED_BUGS): each must be found.
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <set>
#include <string>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "group_world.hpp"

namespace tensorshelf::group_test {
namespace {

using Kind = GroupMessage::Kind;

// One epoch of two relays with two ranks each; the messages of each way are kept, as in World.
struct Relayed {
  std::vector<Participant> ranks = std::vector<Participant>(4, Participant(0, {}));
  std::vector<Relay> relays = {Relay(2, 0, {}), Relay(2, 1, {})};
  Coordinator coordinator{2, {}};
  std::array<std::set<GroupMessage>, 2> to_relay, from_relay, down;
  std::set<GroupMessage> decided;
  unsigned prepared = 0;
  unsigned committed = 0;
  unsigned aborted = 0;
  friend auto operator<=>(const Relayed&, const Relayed&) = default;

  std::string wrong() const {
    if (committed != 0 && prepared != 15) return "a commit, and a rank that has not prepared";
    return committed != 0 && aborted != 0 ? "a commit and an abort" : "";
  }
};

void note(std::set<GroupMessage>& sent, const std::optional<GroupMessage>& message) {
  if (message) sent.insert(*message);
}

template <typename Visit>
void each_next(const Relayed& world, Visit visit) {
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned node = i / 2;
    if (world.ranks[i].ended() && world.ranks[i].epoch().number == 0) {
      for (const bool yes : {true, false}) {
        Relayed next = world;
        next.ranks[i] = Participant(i % 2, {});
        next.ranks[i].begin();
        if (yes) next.prepared |= 1U << i;
        next.to_relay[node].insert(yes ? next.ranks[i].prepared() : next.ranks[i].refused("full"));
        visit(std::move(next));
      }
    }
    for (const GroupMessage& message : world.down[node]) {
      Relayed next = world;
      const Todo todo = next.ranks[i].receive(message);
      if (todo == Todo::commit) next.committed |= 1U << i;
      if (todo == Todo::abandon) next.aborted |= 1U << i;
      visit(std::move(next));
    }
  }
  for (unsigned node = 0; node < 2; ++node) {
    const auto step = [&](auto take) {
      Relayed next = world;
      const Relay::Step said = take(next.relays[node]);
      note(next.from_relay[node], said.up);
      note(next.down[node], said.down);
      visit(std::move(next));
    };
    for (const auto& vote : world.to_relay[node]) {
      step([&](Relay& relay) { return relay.receive_vote(vote); });
    }
    for (const auto& decision : world.decided) {
      step([&](Relay& relay) { return relay.receive_decision(decision); });
    }
    for (const auto& vote : world.from_relay[node]) {
      Relayed next = world;
      note(next.decided, next.coordinator.receive(vote));
      visit(std::move(next));
    }
  }
}

Explored explore_relayed() {
  std::set<Relayed> seen;
  std::deque<const Relayed*> next;
  const auto visit = [&](Relayed world) {
    const auto [at, fresh] = seen.insert(std::move(world));
    if (fresh) next.push_back(&*at);
  };
  visit({});
  std::string wrong;
  while (!next.empty() && wrong.empty()) {
    const Relayed& world = *next.front();
    next.pop_front();
    wrong = world.wrong();
    each_next(world, visit);
  }
  return {wrong, seen.size()};
}

// A shelf of rank 1 that was put back from an older copy.
std::string restart_with_older_part() {
  const Epoch one{1, 1};
  const Epoch two{1, 2};
  const std::vector<GroupPart> parts = {{0, 2, {one, two}, {}}, {1, 2, {one}, {}}};
  try {
    return agree(parts, 2).epoch == two ? "" : "it goes back";
  } catch (const Error& error) {
    return error.code() == Errc::stale ? "" : error.what();
  }
}

}  // namespace

#ifndef TENSORSHELF_PLANTED_BUGS

TEST_CASE("no fate of messages and ranks splits an epoch") {
  const Limits limits =
      GENERATE(Limits{.ranks = 2, .saves = 2, .refusals = 1, .deaths = 1, .restarts = 1},
               Limits{.ranks = 2, .saves = 1, .refusals = 2, .deaths = 1, .restarts = 2},
               Limits{.ranks = 2, .saves = 3, .refusals = 1, .deaths = 0, .restarts = 0},
               Limits{.ranks = 3, .saves = 1, .refusals = 1, .deaths = 1, .restarts = 1},
               Limits{.ranks = 3, .saves = 2, .refusals = 1, .deaths = 0, .restarts = 0});
  const Explored explored = explore(limits);
  CAPTURE(limits.ranks, limits.saves, limits.restarts, explored.worlds);
  CHECK(explored.wrong == "");
  CHECK(explored.worlds > 3'000);  // the search goes somewhere
}

TEST_CASE("nor does a way through relays") {
  const Explored explored = explore_relayed();
  CHECK(explored.wrong == "");
  CHECK(explored.worlds > 3'000);
  CHECK(restart_with_older_part() == "");
}

#else

std::string first_wrong() {
  for (const Limits& limits :
       {Limits{.ranks = 2, .saves = 2, .refusals = 1, .deaths = 0, .restarts = 1},
        Limits{.ranks = 3, .saves = 1, .refusals = 1, .deaths = 0, .restarts = 1}}) {
    if (const Explored explored = explore(limits); !explored.wrong.empty()) return explored.wrong;
  }
  const std::string relayed = explore_relayed().wrong;
  return relayed.empty() ? restart_with_older_part() : relayed;
}

TEST_CASE("each planted bug of the protocol is found") {
  const Bug bug = GENERATE(
      Bug::none, Bug::group_generation_ignored, Bug::group_epoch_ignored, Bug::group_vote_overtaken,
      Bug::group_old_vote_counted, Bug::group_decision_forgotten, Bug::group_no_overheard,
      Bug::group_majority_decides, Bug::group_votes_kept, Bug::group_relay_early,
      Bug::group_prepared_overlooked, Bug::group_missing_part_taken, Bug::group_older_taken,
      Bug::group_leftover_committed);
  planted_bug = bug;
  const std::string wrong = first_wrong();
  planted_bug = Bug::none;
  CAPTURE(static_cast<int>(bug), wrong);
  CHECK(wrong.empty() == (bug == Bug::none));
}

#endif

}  // namespace tensorshelf::group_test
