// The group's machines one by one: messages, what a restart goes on from, relays. All their states
// together: test_group_explored.cpp.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/group.hpp>

#include "thrown.hpp"

namespace tensorshelf {
namespace {

using testing::code_of;
using testing::contains;
using testing::error_of;

using Kind = GroupMessage::Kind;

constexpr std::uint64_t kGeneration = std::uint64_t{3} << 32 | 77;

Epoch epoch(std::uint64_t number) { return {kGeneration, number}; }

GroupPart part(std::uint32_t rank, std::vector<std::uint64_t> committed,
               std::optional<std::uint64_t> prepared = {}, std::uint32_t members = 2) {
  GroupPart made{rank, members, {}, {}};
  for (const std::uint64_t number : committed) made.committed.push_back(epoch(number));
  if (prepared) made.prepared = epoch(*prepared);
  return made;
}

TEST_CASE("a message comes back as it was") {
  const Kind kind = GENERATE(Kind::yes, Kind::no, Kind::commit, Kind::abort);
  const GroupMessage message{kind, {kGeneration, ~std::uint64_t{0} - 1}, 0xFFFFFFF0, "no room \n"};
  CHECK(decode_group_message(encode(message)) == message);
}

TEST_CASE("a long cause is cut, and no message refused for it") {
  const GroupMessage message{Kind::no, epoch(1), 0, std::string(100'000, 'x')};
  CHECK(decode_group_message(encode(message)).cause == std::string(kMostCauseBytes, 'x'));
  Participant rank(0, epoch(0));
  rank.begin();
  CHECK(rank.refused(message.cause).cause.size() == kMostCauseBytes);
}

TEST_CASE("bytes that are no message are refused") {
  const std::string good = encode({Kind::no, epoch(1), 1, "cause"});
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(code_of([&] { decode_group_message(std::string_view(good).substr(0, size)); }) ==
          Errc::corrupt);
  }
  CHECK(code_of([&] { decode_group_message(good + "x"); }) == Errc::corrupt);
  for (const std::size_t at : {0, 3, 4, 5, 6, 7}) {
    std::string bad = good;
    bad[at] = '\x60';
    CAPTURE(at);
    CHECK(code_of([&] { decode_group_message(bad); }) == Errc::corrupt);
  }
}

TEST_CASE("a message that says to have a longer cause than any is refused, though it has it") {
  std::string longer = encode({Kind::no, epoch(1), 1, std::string(kMostCauseBytes, 'x')}) + "x";
  const auto cause_bytes = static_cast<std::uint16_t>(kMostCauseBytes + 1);
  std::memcpy(longer.data() + 6, &cause_bytes, sizeof cause_bytes);
  CHECK(code_of([&] { decode_group_message(longer); }) == Errc::corrupt);
}

TEST_CASE("no two starts have one generation") {
  CHECK(next_generation(kGeneration, 5) == (std::uint64_t{4} << 32 | 5));
  CHECK(next_generation(0, 5) != next_generation(0, 6));
  CHECK(next_generation(~std::uint32_t{0}, 0) > ~std::uint32_t{0});
  CHECK(code_of([] { next_generation(~std::uint64_t{0}, 0); }) == Errc::full);
}

// ---- participant and coordinator ----------------------------------------------------------------

TEST_CASE("an epoch is committed when the last has said yes") {
  Coordinator coordinator(2, epoch(4));
  Participant a(0, epoch(4));
  Participant b(1, epoch(4));
  CHECK(a.ended());
  CHECK(a.begin() == epoch(5));
  CHECK_FALSE(a.ended());
  b.begin();
  CHECK_FALSE(a.again());
  const GroupMessage yes = a.prepared();
  CHECK(yes == GroupMessage{Kind::yes, epoch(5), 0, ""});
  CHECK(a.again() == yes);
  CHECK_FALSE(coordinator.receive(yes));
  CHECK(coordinator.awaited() == std::vector<std::uint32_t>{1});
  const auto decision = coordinator.receive(b.prepared());
  REQUIRE(decision);
  CHECK(decision->kind == Kind::commit);
  CHECK(coordinator.decided() == epoch(5));
  CHECK(coordinator.awaited() == std::vector<std::uint32_t>{0, 1});
  CHECK(a.receive(*decision) == Todo::commit);
  CHECK(a.receive(*decision) == Todo::nothing);
  CHECK(a.ended());
  CHECK_FALSE(a.again());
  CHECK_FALSE(a.aborted());
}

TEST_CASE("the first no decides, with its rank and cause") {
  Coordinator coordinator(3, epoch(0));
  Participant full(1, epoch(0));
  Participant other(2, epoch(0));
  full.begin();
  other.begin();
  const GroupMessage yes = other.prepared();
  coordinator.receive(yes);
  const auto decision = coordinator.receive(full.refused("no room"));
  REQUIRE(decision);
  CHECK(*decision == GroupMessage{Kind::abort, epoch(1), 1, "no room"});
  CHECK(full.receive(*decision) == Todo::nothing);
  CHECK(full.ended());
  CHECK(other.receive(*decision) == Todo::abandon);
  CHECK(other.aborted() == decision);
  CHECK(coordinator.receive(yes) == decision);  // who asks again hears the same
  other.begin();
  CHECK_FALSE(other.aborted());
}

TEST_CASE("a yes says nothing of the no before it") {
  Participant rank(1, epoch(0));
  rank.begin();
  rank.receive({Kind::abort, epoch(1), 1, rank.refused("no room").cause});
  rank.begin();
  CHECK(rank.prepared() == GroupMessage{Kind::yes, epoch(2), 1, ""});
}

TEST_CASE("what was decided before is told again") {
  Coordinator coordinator(1, epoch(0));
  const GroupMessage first{Kind::yes, epoch(1), 0, ""};
  const auto decision = coordinator.receive(first);
  REQUIRE(decision);
  coordinator.receive({Kind::no, epoch(2), 0, "torn"});
  CHECK(coordinator.receive(first) == decision);
  CHECK(coordinator.receive({Kind::yes, epoch(2), 0, ""})->cause == "torn");
  coordinator.receive({Kind::no, epoch(3), 0, ""});
  CHECK(coordinator.receive({Kind::yes, epoch(2), 0, ""})->kind == Kind::abort);
}

TEST_CASE("messages that are none of a vote, a member's or this generation's change nothing") {
  Coordinator coordinator(2, epoch(0));
  const Coordinator before = coordinator;
  CHECK_FALSE(coordinator.receive({Kind::commit, epoch(1), 0, ""}));
  CHECK_FALSE(coordinator.receive({Kind::yes, epoch(1), 2, ""}));
  CHECK_FALSE(coordinator.receive({Kind::no, {kGeneration + 1, 1}, 0, ""}));
  CHECK_FALSE(coordinator.receive({Kind::no, epoch(2), 0, ""}));
  CHECK(coordinator == before);
  Participant rank(0, epoch(0));
  rank.begin();
  rank.prepared();
  CHECK(rank.receive({Kind::yes, epoch(1), 1, ""}) == Todo::nothing);
  CHECK(rank.receive({Kind::abort, epoch(2), 1, ""}) == Todo::nothing);
  CHECK(rank.receive({Kind::commit, {kGeneration + 1, 1}, 1, ""}) == Todo::nothing);
  CHECK(rank.again());
  CHECK(code_of([] { Coordinator(0, {}); }) == Errc::bad_argument);
}

// ---- relays -------------------------------------------------------------------------------------

TEST_CASE("a relay is one member for those below it") {
  Relay relay(2, 7, epoch(0));
  CHECK(relay.awaited() == std::vector<std::uint32_t>{0, 1});
  CHECK_FALSE(relay.receive_vote({Kind::yes, epoch(1), 0, ""}).up);
  CHECK_FALSE(relay.receive_vote({Kind::yes, epoch(1), 0, ""}).up);  // the same once more
  CHECK(relay.awaited() == std::vector<std::uint32_t>{1});
  const auto step = relay.receive_vote({Kind::yes, epoch(1), 1, ""});
  CHECK(relay.awaited().empty());
  CHECK(step.up == GroupMessage{Kind::yes, epoch(1), 7, ""});
  CHECK(relay.again() == step.up);
  const GroupMessage commit{Kind::commit, epoch(1), 3, ""};
  CHECK(relay.receive_decision(commit).down == commit);
  CHECK_FALSE(relay.again());
  CHECK(relay.awaited() == std::vector<std::uint32_t>{0, 1});
  CHECK(relay.receive_vote({Kind::yes, epoch(1), 0, ""}).down == commit);  // who did not hear
  const auto no = relay.receive_vote({Kind::no, epoch(2), 1, "torn"});
  CHECK(relay.awaited().empty());  // whatever the other says
  CHECK(no.up == GroupMessage{Kind::no, epoch(2), 7, "torn"});
  CHECK_FALSE(relay.receive_vote({Kind::no, {kGeneration + 1, 2}, 1, ""}).up);
  CHECK_FALSE(relay.receive_vote({Kind::yes, epoch(2), 2, ""}).up);
}

TEST_CASE("a relay asks above for what it has forgotten") {
  Relay relay(2, 1, epoch(0));
  relay.receive_decision({Kind::commit, epoch(1), 0, ""});
  relay.receive_decision({Kind::abort, epoch(2), 0, ""});
  const auto step = relay.receive_vote({Kind::yes, epoch(1), 0, ""});
  CHECK_FALSE(step.down);
  CHECK(step.up == GroupMessage{Kind::yes, epoch(1), 1, ""});
  const GroupMessage commit{Kind::commit, epoch(1), 0, ""};
  CHECK(relay.receive_decision(commit).down == commit);
  CHECK(relay.receive_vote({Kind::yes, epoch(2), 0, ""}).down->kind == Kind::abort);
}

// ---- restart ------------------------------------------------------------------------------------

TEST_CASE("a restart goes on from the newest epoch that all hold") {
  struct Row {
    std::vector<GroupPart> parts;
    std::uint64_t epoch;
    std::vector<Todo> todos;
  };
  using enum Todo;
  const std::vector<Row> rows = {
      {{part(0, {}), part(1, {})}, 0, {nothing, nothing}},
      {{part(0, {}, 1), part(1, {})}, 0, {abandon, nothing}},
      {{part(0, {}, 1), part(1, {}, 1)}, 1, {commit, commit}},
      {{part(0, {1}), part(1, {}, 1)}, 1, {nothing, commit}},
      {{part(0, {4}, 5), part(1, {4})}, 4, {abandon, nothing}},
      {{part(0, {4}, 5), part(1, {4}, 5)}, 5, {commit, commit}},
      {{part(0, {5}, 6), part(1, {4}, 5)}, 5, {abandon, commit}},
      {{part(0, {4, 5}), part(1, {3, 4}, 5)}, 5, {nothing, commit}},
      {{part(0, {4}, 6), part(1, {4}, 5)}, 4, {abandon, abandon}},
  };
  for (const Row& row : rows) {
    const Agreement agreed = agree(row.parts, 2);
    CAPTURE(&row - rows.data());
    CHECK(agreed.epoch.number == row.epoch);
    CHECK(agreed.todos == row.todos);
    CHECK(agreed.behind.empty());
  }
}

TEST_CASE("an epoch is the same only within its generation") {
  GroupPart older = part(1, {4});
  older.prepared = Epoch{kGeneration - 1, 5};
  const std::vector parts = {part(0, {4}, 5), older};
  CHECK(agree(parts, 2).epoch == epoch(4));
  CHECK(agree(parts, 2).todos == std::vector{Todo::abandon, Todo::abandon});
}

TEST_CASE("a replica stands in for a rank, and is told what it lacks") {
  const std::vector parts = {part(0, {5}), part(1, {4}), part(1, {}, 5), part(1, {})};
  const Agreement agreed = agree(parts, 2);
  CHECK(agreed.epoch == epoch(5));
  CHECK(agreed.todos == std::vector{Todo::nothing, Todo::nothing, Todo::commit, Todo::nothing});
  CHECK(agreed.behind == std::vector<std::size_t>{1, 3});
}

TEST_CASE("a restart refuses to lose what was committed") {
  const std::vector lost = {part(0, {5}), part(1, {})};
  CHECK(code_of([&] { agree(lost, 2); }) == Errc::not_found);
  CHECK(contains(error_of([&] { agree(lost, 2); })->what(),
                 "epoch 5 was committed, and no shelf that is here has the part of rank 1"));
  const std::vector older = {part(0, {4, 5}), part(1, {4})};
  CHECK(code_of([&] { agree(older, 2); }) == Errc::stale);
  CHECK(contains(error_of([&] { agree(older, 2); })->what(), "of rank 1 there are older parts"));
  const std::vector most = {part(0, {5}, {}, 9)};
  CHECK(contains(error_of([&] { agree(most, 9); })->what(), "ranks 1, 2, 3, 4, 5 and 3 more"));
}

TEST_CASE("of several ranks that lack the newest one that is lost is told before older ones") {
  const std::vector parts = {part(0, {4, 5}, {}, 3), part(1, {4}, {}, 3), part(2, {}, {}, 3)};
  CHECK(code_of([&] { agree(parts, 3); }) == Errc::not_found);
}

TEST_CASE("a fresh shelf is of a group of any size") {
  const std::vector parts = {part(0, {5}), part(1, {5}), part(1, {}, {}, 0)};
  const Agreement agreed = agree(parts, 2);
  CHECK(agreed.epoch == epoch(5));
  CHECK(agreed.behind == std::vector<std::size_t>{2});
}

TEST_CASE("a part of a group of another size is refused by name") {
  const std::vector four = {part(0, {5}, {}, 4), part(1, {})};
  CHECK(code_of([&] { agree(four, 2); }) == Errc::bad_argument);
  CHECK(contains(error_of([&] { agree(four, 2); })->what(), "rank 0 of 4, and the group has 2"));
  CHECK(code_of([] { agree(std::vector{part(2, {})}, 2); }) == Errc::bad_argument);
}

}  // namespace
}  // namespace tensorshelf
