// The facts of the fault model (recording_medium.hpp), one by one: what a power loss, a failed call
// and a process that died may leave.
#include <array>
#include <set>
#include <string>
#include <vector>

#include <tensorshelf/error.hpp>

#include "crashtest/recording_medium.hpp"
#include "crashtest/toy_contents.hpp"
#include "tests/bytes.hpp"
#include "tests/catch.hpp"

namespace tensorshelf::crash {
using testing::pattern;

namespace {

std::vector<std::byte> three_words() { return pattern(24, 1); }

// A medium that has its room, durably.
struct Toy {
  Disk disk{kToyBytes};
  Log log;
  RecordingMedium medium;

  explicit Toy(Personality personality, const MediumBugs& bugs = {})
      : medium(disk, log, {personality, kToyBytes, bugs}) {
    medium.reserve(kToyBytes);
    medium.barrier();
  }
};

}  // namespace

TEST_CASE("pmem: any subset of a write's words may land, covered only when waited for") {
  Toy toy(Personality::pmem);
  const auto bytes = three_words();
  auto& [disk, log, medium] = toy;
  const Ticket ticket = medium.write(0, bytes, 0);
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 8);
  log.events.push_back(BarrierEvent{});
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 8);
  log.events.push_back(WaitEvent{ticket.sequence});
  log.events.push_back(BarrierEvent{});
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 1);
}

TEST_CASE("behind the end of a write its page holds anything") {
  const auto bytes = three_words();
  for (const Personality personality : {Personality::pmem, Personality::block}) {
    Disk fresh(kToyBytes);
    Log events;
    RecordingMedium medium(fresh, events, {personality, kToyBytes, {}});
    medium.reserve(kToyBytes);
    medium.wait(medium.write(0, bytes, 0));
    CAPTURE(personality_name(personality));
    REQUIRE(fresh.bytes()[23] == bytes[23]);
    REQUIRE(fresh.bytes()[24] != std::byte{0});
    REQUIRE(fresh.bytes()[kPageBytes - 1] != std::byte{0});
    REQUIRE(fresh.bytes()[kPageBytes] == std::byte{0});
  }
}

TEST_CASE("pmem: a word is whole") {
  Toy toy(Personality::pmem);
  auto& [disk, log, medium] = toy;
  medium.store_word(8, ~0ull);
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 2);
}

TEST_CASE("pmem: a torn word, when that bug is planted, is not whole") {
  Toy toy(Personality::pmem, {.torn_word = true});
  auto& [disk, log, medium] = toy;
  medium.store_word(8, ~0ull);
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 4);
}

TEST_CASE("block: any sector of a write may land, covered only when waited for") {
  Toy toy(Personality::block);
  const auto bytes = three_words();
  auto& [disk, log, medium] = toy;
  const Ticket ticket = medium.write(0, bytes, 0);
  REQUIRE(contents(log, Personality::block, false, 24).size() == 2);
  REQUIRE(contents(log, Personality::block, true, 24).size() == 3);
  log.events.push_back(BarrierEvent{});
  REQUIRE(contents(log, Personality::block, false, 24).size() == 2);
  log.events.push_back(WaitEvent{ticket.sequence});
  log.events.push_back(BarrierEvent{});
  REQUIRE(contents(log, Personality::block, false, 24).size() == 1);
}

TEST_CASE("block: a word's page never lands as garbage") {
  Toy toy(Personality::block);
  auto& [disk, log, medium] = toy;
  medium.store_word(8, ~0ull);
  REQUIRE(contents(log, Personality::block, true, kPageBytes).size() == 2);
}

TEST_CASE("what a failed barrier lost does not come back with a later one") {
  Disk disk(kToyBytes);
  Log log;
  const auto bytes = three_words();
  Behaviour failing{Personality::pmem, kToyBytes, {}};
  failing.fails_at = 3;
  RecordingMedium medium(disk, log, failing);
  medium.reserve(kToyBytes);
  medium.barrier();
  medium.write(0, bytes, 0);
  REQUIRE_THROWS_AS(medium.barrier(), Error);
  REQUIRE(is<FailureEvent>(log.events.back()));
  medium.barrier();                                                  // only one fails
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 8);  // orphans
  medium.wait(medium.write(0, bytes, 0));  // only writing it anew makes it settle
  medium.barrier();
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 1);
}

TEST_CASE("block: a write may fail, and the next call that waits, writes, stores or grows tells") {
  const auto bytes = three_words();
  using Call = void (*)(RecordingMedium&);
  const Call call = GENERATE(
      as<Call>{}, [](RecordingMedium& medium) { medium.wait({}); },
      [](RecordingMedium& medium) { medium.barrier(); },
      [](RecordingMedium& medium) { medium.store_word(kPageBytes, 7); },
      [](RecordingMedium& medium) { medium.reserve(kToyBytes); },
      [](RecordingMedium& medium) { medium.write(kPageBytes, {}, 0); });
  const std::uint64_t ways = GENERATE(0, 1, 2);  // nothing landed, a part of it, all
  Disk disk(kToyBytes);
  Log log;
  Behaviour failing{Personality::block, kToyBytes, {}};
  failing.fails_at = 3 + ways;
  failing.tells_late = true;
  RecordingMedium medium(disk, log, failing);
  medium.reserve(2 * kPageBytes);
  while (log.events.size() < failing.fails_at) medium.barrier();
  const Ticket ticket = medium.write(0, bytes, 0);
  REQUIRE(is<FailureEvent>(log.events[failing.fails_at]));
  std::vector<std::byte> found(bytes.size());
  medium.read(0, found);  // which tells nothing
  const auto events = log.events.size();
  REQUIRE_THROWS_AS(call(medium), Error);
  REQUIRE(log.events.size() == events);  // and did nothing
  medium.wait(ticket);                   // it is told once: the guard of a medium refuses the rest
}

TEST_CASE("pmem: what a dead process left is all visible, and settles only where it is rewritten") {
  Disk disk(kToyBytes);
  Log log;
  const auto bytes = three_words();
  {
    RecordingMedium medium(disk, log, {Personality::pmem, kToyBytes, {}});
    medium.reserve(kToyBytes);
    medium.barrier();
    medium.write(kPageBytes, bytes, 0);
    medium.store_word(0, 7);
  }
  REQUIRE(is<DeathEvent>(log.events.back()));  // nobody waited
  REQUIRE(disk.bytes()[0] == std::byte{7});
  REQUIRE(disk.bytes()[kPageBytes + 23] == bytes[23]);
  RecordingMedium medium(disk, log, {Personality::pmem, kToyBytes, {}});
  const auto images = [&] {
    return contents(log, Personality::pmem, false, kPageBytes + 24).size();
  };
  medium.barrier();
  REQUIRE(images() == 16);
  medium.store_word(0, 7);
  medium.barrier();
  REQUIRE(images() == 8);
  medium.store_word(kPageBytes, 7);
  medium.barrier();
  REQUIRE(images() == 4);
  // Older bytes cannot land over settled ones.
  medium.wait(medium.write(kPageBytes, pattern(24, 2), 0));
  medium.barrier();
  REQUIRE(images() == 1);
}

TEST_CASE("a write that failed did not happen, or a part of it did, which no barrier settles") {
  const auto bytes = three_words();
  struct Row {
    Personality personality;
    std::uint64_t fails_at;
    std::size_t images;
  };
  const std::array rows = {
      Row{Personality::pmem, 6, 1},   // it did not happen
      Row{Personality::block, 6, 1},  //
      Row{Personality::pmem, 7, 4},   // two words of three
      Row{Personality::block, 7, 2},  // a sector
      Row{Personality::pmem, 8, 8},   // all of it
      Row{Personality::block, 8, 2},  //
  };
  for (const Row& row : rows) {
    CAPTURE(personality_name(row.personality), row.fails_at);
    Disk fresh(kToyBytes);
    Log events;
    Behaviour failing{row.personality, kToyBytes, {}};
    failing.fails_at = row.fails_at;
    RecordingMedium medium(fresh, events, failing);
    const auto images = [&] { return contents(events, row.personality, false, 24).size(); };
    medium.reserve(kToyBytes);
    medium.wait(medium.write(0, bytes, 0));
    while (events.events.size() < row.fails_at) medium.barrier();
    REQUIRE_THROWS_AS(medium.write(0, pattern(24, 7), 0), Error);
    REQUIRE(images() == row.images);
    const Ticket ticket = medium.write(kPageBytes, bytes, 0);
    medium.wait(ticket);  // of all before it too
    medium.barrier();     // the store would make none
    REQUIRE(images() == row.images);
    medium.wait(medium.write(0, pattern(24, 7), 0));
    medium.barrier();
    REQUIRE(images() == 1);
  }
}

TEST_CASE("block: a write that failed settles none of those before it") {
  Disk disk(kToyBytes);
  Log log;
  const auto bytes = three_words();
  Behaviour failing{Personality::block, kToyBytes, {}};
  failing.fails_at = 3;
  RecordingMedium medium(disk, log, failing);
  medium.reserve(kToyBytes);
  medium.barrier();
  medium.write(0, bytes, 0);
  REQUIRE_THROWS_AS(medium.write(0, pattern(24, 7), 0), Error);
  REQUIRE(contents(log, Personality::block, false, 24).size() == 2);
}

TEST_CASE("a word that failed was stored or not, and no barrier settles which") {
  for (const std::uint64_t fails_at : {3, 4}) {
    CAPTURE(fails_at);
    Disk fresh(kToyBytes);
    Log events;
    Behaviour failing{Personality::pmem, kToyBytes, {}};
    failing.fails_at = fails_at;
    RecordingMedium medium(fresh, events, failing);
    medium.reserve(kToyBytes);
    while (events.events.size() < fails_at) medium.barrier();
    REQUIRE_THROWS_AS(medium.store_word(8, 7), Error);
    medium.barrier();
    const std::size_t images = fails_at == 3 ? 1 : 2;
    REQUIRE(contents(events, Personality::pmem, false, 24).size() == images);
  }
}

TEST_CASE("growth is undone until the barrier") {
  Disk disk(kToyBytes);
  Log log;
  RecordingMedium medium(disk, log, {Personality::pmem, kToyBytes, {}});
  medium.reserve(kPageBytes);
  REQUIRE(contents(log, Personality::pmem, false, 8).size() == 2);
}

namespace {

constexpr std::uint64_t kSeeds = 400;

std::string text(const Disk& disk) {
  return {reinterpret_cast<const char*>(disk.bytes().data()), disk.size_bytes()};
}

// A medium that ends with a word, two pages in one write, and a page over another that was waited
// for, all of them held.
void leave_held(Disk& disk, Log& log, std::uint64_t seed) {
  RecordingMedium medium(
      disk, log, {.personality = Personality::block, .max_size_bytes = kToyBytes, .seed = seed});
  medium.reserve(kToyBytes);
  medium.barrier();
  medium.wait(medium.write(3 * kPageBytes, pattern(24, 1), 0));
  medium.store_word(0, 7);
  medium.write(kPageBytes, pattern(2 * kPageBytes, 2), 0);
  medium.write(3 * kPageBytes, pattern(24, 3), 0);
}

}  // namespace

TEST_CASE("block: of what a medium held when it ended each page is there or not") {
  const Behaviour next{.personality = Personality::block, .max_size_bytes = kToyBytes};
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Disk disk(kToyBytes);
    Log log;
    leave_held(disk, log, seed);
    REQUIRE(is<DeathEvent>(log.events.back()));
    const std::string visible = text(disk);
    seen.insert(visible);
    CAPTURE(seed);

    // A power loss leaves the word or not, unless it is lost for good.
    const bool word = disk.bytes()[0] == std::byte{7};
    REQUIRE(contents(log, Personality::block, false, 24).size() == (word ? 2 : 1));
    // What was waited for is there, or what was written over it.
    const std::byte first = disk.bytes()[3 * kPageBytes];
    REQUIRE((first == pattern(24, 1)[0] || first == pattern(24, 3)[0]));
    // The next barrier covers what is visible, and brings nothing back.
    RecordingMedium(disk, log, next).barrier();
    REQUIRE(text(disk) == visible);
    REQUIRE(contents(log, Personality::block, false, kToyBytes) == std::set{visible});
    // Whoever replays the log sees the same.
    Disk again(kToyBytes);
    for (const Event& event : log.events) log.replay(event, again);
    REQUIRE(text(again) == visible);
  }
  REQUIRE(seen.size() == 16);
}

TEST_CASE("block: what was handed on stays over what is lost") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    Disk disk(kToyBytes);
    Log log;
    {
      RecordingMedium medium(
          disk, log,
          {.personality = Personality::block, .max_size_bytes = kToyBytes, .seed = seed});
      medium.reserve(kToyBytes);
      medium.barrier();
      medium.store_word(0, 7);
      medium.wait(medium.write(0, pattern(24, 2), 0));
    }
    REQUIRE(disk.bytes()[0] == pattern(24, 2)[0]);
    RecordingMedium(disk, log, {Personality::block, kToyBytes}).barrier();
    REQUIRE(contents(log, Personality::block, false, 24).size() == 1);
  }
}

TEST_CASE("block: of a write that failed any sector may have landed") {
  Disk disk(kToyBytes);
  Log log;
  Behaviour failing{Personality::block, kToyBytes, {}};
  failing.fails_at = 8;
  RecordingMedium medium(disk, log, failing);
  medium.reserve(kToyBytes);
  while (log.events.size() < failing.fails_at) medium.barrier();
  REQUIRE_THROWS_AS(medium.write(0, pattern(2 * kSectorBytes, 7), 0), Error);
  REQUIRE(contents(log, Personality::block, false, 2 * kSectorBytes).size() == 4);
}

TEST_CASE("pmem: what was waited for and no barrier covered is orphaned when its medium ends") {
  Disk disk(kToyBytes);
  Log log;
  const Behaviour pmem{Personality::pmem, kToyBytes, {}};
  {
    RecordingMedium medium(disk, log, pmem);
    medium.reserve(kToyBytes);
    medium.barrier();
    medium.wait(medium.write(0, pattern(24, 1), 0));
  }
  RecordingMedium(disk, log, pmem).barrier();
  REQUIRE(contents(log, Personality::pmem, false, 24).size() == 8);
}

TEST_CASE("a medium that holds nothing ends without a word") {
  for (const Personality personality : {Personality::pmem, Personality::block}) {
    Disk disk(kToyBytes);
    Log log;
    {
      RecordingMedium medium(disk, log, {personality, kToyBytes});
      medium.reserve(kToyBytes);
      medium.wait(medium.write(0, pattern(24, 1), 0));
      medium.store_word(kPageBytes, 7);
      medium.barrier();
    }
    REQUIRE(is<BarrierEvent>(log.events.back()));
  }
}

}  // namespace tensorshelf::crash
