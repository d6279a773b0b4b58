// Every state that a job of two or three ranks can come to, whatever becomes of its messages,
// whoever dies, and whatever the crash leaves of the shelves: whether one epoch is committed in
// part, an acknowledged one is lost, a shelf shows other bytes than it says, or somebody waits for
// good.
//
// Also built with planted bugs of the protocol and of the store (TENSORSHELF_PLANTED_BUGS): each
// must be found.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "catch.hpp"
#include "crashtest/child.hpp"
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

constexpr MediumKind kDrive{crash::Personality::block};
constexpr MediumKind kMemory{crash::Personality::pmem, 64};

// The shelves of a job on one medium: what was found out about them serves all limits.
class Job {
 public:
  explicit Job(const MediumKind& medium, bool ahead = false) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) images_.emplace_back(rank, medium, ahead);
  }

  std::vector<ShelfGraph> shelves(const Limits& limits) {
    std::vector<ShelfGraph> graphs;
    for (std::uint32_t i = 0; i < limits.ranks; ++i) {
      graphs.emplace_back(images_[i], limits.of_shelves());
    }
    return graphs;
  }

 private:
  std::deque<ShelfImages> images_;  // by rank
};

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

// Whether a crash within each deed leaves what one before it may leave, or one behind it.
bool deeds_are_whole(const ShelfGraph& shelves) {
  for (ShelfId id = 0; id < shelves.size().left; ++id) {
    const std::vector<ShelfId>& before = shelves[id].images;
    for (const auto& [deed, step] : shelves[id].deeds) {
      const std::vector<ShelfId>& behind = shelves[step.done].images;
      for (const ShelfId image : step.within) {
        if (std::ranges::find(before, image) != before.end()) continue;
        if (std::ranges::find(behind, image) == behind.end()) return false;
      }
    }
  }
  return true;
}

// Prints how far it went.
void check_all(Job& job, const std::vector<Limits>& all, bool every_subset) {
  for (const Limits& limits : testing::kSanitized ? std::vector(all.end() - 1, all.end()) : all) {
    const std::vector<ShelfGraph> shelves = job.shelves(limits);
    const Explored explored = explore(limits, shelves);
    const ShelfGraph::Size& size = shelves[0].size();
    fmt::print(
        "{} ranks, {} saves, {} restarts, {} of them cut short: {} worlds; rank 0's shelf is one "
        "of "
        "{} kinds, of {} states found, by {} recoveries at {} crash points so far\n",
        limits.ranks, limits.saves, limits.restarts, limits.cuts, explored.worlds, size.left,
        size.found, size.counts.recoveries, size.counts.crash_points);
    CHECK(explored.wrong == "");
    CHECK(explored.worlds > 3'000);  // the search goes somewhere
    CHECK(size.counts.recoveries > 300);
    CHECK(deeds_are_whole(shelves[0]));
    if (every_subset) CHECK(size.counts.exhaustive_points == size.counts.crash_points);
  }
}

TEST_CASE("no fate of messages, ranks and shelves splits an epoch") {
  Job job(kDrive);
  check_all(job,
            {{.ranks = 2, .saves = 2, .refusals = 1, .deaths = 1, .restarts = 1},
             {.ranks = 2, .saves = 1, .refusals = 2, .deaths = 1, .restarts = 2},
             {.ranks = 2, .saves = 3, .refusals = 1, .deaths = 0, .restarts = 0},
             {.ranks = 3, .saves = 1, .refusals = 1, .deaths = 1, .restarts = 1},
             {.ranks = 3, .saves = 2, .refusals = 1, .deaths = 0, .restarts = 0},
             {.ranks = 2, .saves = 1, .refusals = 1, .deaths = 1, .restarts = 1, .cuts = 1}},
            true);
}

TEST_CASE("nor where the next save is staged meanwhile, or shelves lie in memory") {
  const Limits limits{.ranks = 2, .saves = 1, .refusals = 1, .deaths = 1, .restarts = 1};
  Job ahead(kDrive, true);
  check_all(ahead, {limits}, true);
  Job memory(kMemory);  // a sample: words are many
  check_all(memory, {limits}, false);
}

// Minutes: ./run test --full.
TEST_CASE("nor any that takes longer to come to", "[.deep]") {
  const Limits cut{.ranks = 2, .saves = 1, .refusals = 1, .deaths = 1, .restarts = 2, .cuts = 2};
  const Limits more{.ranks = 2, .saves = 2, .refusals = 1, .deaths = 1, .restarts = 1, .cuts = 1};
  const Limits three{.ranks = 3, .saves = 1, .refusals = 1, .deaths = 1, .restarts = 1, .cuts = 1};
  Job drive(kDrive);
  check_all(drive, {cut, more, three}, true);
  Job ahead(kDrive, true);
  check_all(ahead, {more, three}, true);
  Job memory(kMemory);
  check_all(memory, {more, three}, false);
}

TEST_CASE("nor does a way through relays") {
  const Explored explored = explore_relayed();
  CHECK(explored.wrong == "");
  CHECK(explored.worlds > 3'000);
  CHECK(restart_with_older_part() == "");
}

#else

std::string first_wrong(Job& job, const std::vector<Limits>& all) {
  for (const Limits& limits : all) {
    const std::string wrong = explore(limits, job.shelves(limits)).wrong;
    if (!wrong.empty()) return wrong;
  }
  return {};
}

TEST_CASE("each planted bug of the protocol is found") {
  Job job(kDrive);
  const std::vector<Limits> limits = {
      {.ranks = 2, .saves = 2, .refusals = 1, .deaths = 0, .restarts = 1},
      {.ranks = 3, .saves = 1, .refusals = 1, .deaths = 0, .restarts = 1}};
  for (const Bug bug :
       {Bug::none, Bug::group_generation_ignored, Bug::group_epoch_ignored,
        Bug::group_vote_overtaken, Bug::group_old_vote_counted, Bug::group_decision_forgotten,
        Bug::group_no_overheard, Bug::group_majority_decides, Bug::group_votes_kept,
        Bug::group_relay_early, Bug::group_prepared_overlooked, Bug::group_missing_part_taken,
        Bug::group_older_taken, Bug::group_leftover_committed}) {
    planted_bug = bug;
    std::string wrong = first_wrong(job, limits);
    if (wrong.empty()) wrong = explore_relayed().wrong;
    if (wrong.empty()) wrong = restart_with_older_part();
    planted_bug = Bug::none;
    CAPTURE(static_cast<int>(bug), wrong);
    CHECK(wrong.empty() == (bug == Bug::none));
  }
}

// Those of preparing, deciding and recovering that a crash or the next save shows, without damage
// to what was settled: the explorer has the others.
TEST_CASE("each planted bug of the store that a group meets is found") {
  const Limits again{.ranks = 2, .saves = 1, .refusals = 1, .deaths = 0, .restarts = 1};
  const Limits twice{.ranks = 2, .saves = 2, .refusals = 1, .deaths = 0, .restarts = 0};
  struct Planted {
    Bug bug;
    MediumKind medium;
    Limits limits;
  };
  const std::vector<Planted> all = {
      {Bug::none, kMemory, again},
      {Bug::none, kDrive, twice},
      {Bug::mark_before_barrier, kDrive, again},
      {Bug::mark_unsettled, kMemory, again},
      {Bug::marks_at_once, kMemory, again},
      {Bug::mark_unrestored, kMemory, again},
      {Bug::abandoned_given_back, kDrive, again},
      {Bug::abandoned_built_on, kDrive, twice},
      {Bug::prepared_slot_free, kDrive, again},
      {Bug::ack_without_barrier, kDrive, again},
      {Bug::flip_without_barrier, kDrive, again},
  };
  std::vector<crash::Task> tasks;  // each in a child: an assert in the store finds a bug as well
  for (const Planted& planted : all) {
    tasks.push_back([&planted] {
      planted_bug = planted.bug;
      Job job(planted.medium);
      crash::Result result;
      result.violation = first_wrong(job, {planted.limits});
      return result;
    });
  }
  crash::run_in_children(tasks, 1, [&](std::size_t index, const crash::Result& result) {
    CAPTURE(index, result.violation);
    CHECK(result.violation.empty() == (all[index].bug == Bug::none));
  });
}
#endif

}  // namespace tensorshelf::group_test
