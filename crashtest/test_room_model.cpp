// The facts of the fault model (recording_medium.hpp) on how long a medium is, and how far there is
// room on it.
#include <set>

#include <tensorshelf/error.hpp>

#include "crashtest/recording_medium.hpp"
#include "crashtest/walk.hpp"
#include "tests/catch.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::uint64_t kToyBytes = 4 * kPageBytes;

struct Reach {
  std::uint64_t size_bytes;
  std::uint64_t room_bytes;
  auto operator<=>(const Reach&) const = default;
};

// All that there can be after a crash at the end of the log.
std::set<Reach> reaches(const Log& log) {
  Disk disk(kToyBytes);
  std::set<Reach> all;
  Counts counts;
  Rng rng(3);
  walk_images(
      disk, log, {Personality::block, false, 64, log.events.size() - 1},
      [](std::size_t) { return 0; }, rng, counts,
      [&](const CrashPoint&, ReadSet&) {
        all.insert({disk.size_bytes(), disk.room_bytes()});
      });
  return all;
}

}  // namespace

TEST_CASE("a length is not room") {
  Disk disk(kToyBytes);
  Log log;
  Behaviour behaviour{Personality::block, kToyBytes, {}};
  constexpr std::uint64_t page = kPageBytes;

  SECTION("of a growth that no barrier settled a power loss leaves a length at most") {
    RecordingMedium medium(disk, log, behaviour);
    medium.reserve(page);
    medium.barrier();
    medium.reserve(3 * page);
    REQUIRE(reaches(log) == std::set<Reach>{{page, page}, {2 * page, page}, {3 * page, page}});
    medium.barrier();
    REQUIRE(reaches(log) == std::set<Reach>{{3 * page, 3 * page}});
  }
  SECTION("a growth that failed leaves no room, and any length, which no barrier settles") {
    struct Row {
      std::uint64_t fails_at;
      std::uint64_t length;  // as every process sees it
      std::set<Reach> after_power_loss;
    };
    const std::array rows = {
        Row{3, page, {{page, page}}},  // it did not happen
        Row{4, 2 * page, {{page, page}, {2 * page, page}}},
        Row{5, 3 * page, {{page, page}, {2 * page, page}, {3 * page, page}}},
    };
    for (const Row& row : rows) {
      CAPTURE(row.fails_at);
      Disk fresh(kToyBytes);
      Log events;
      behaviour.fails_at = row.fails_at;
      RecordingMedium medium(fresh, events, behaviour);
      medium.reserve(page);
      while (events.events.size() < row.fails_at) medium.barrier();
      REQUIRE_THROWS_AS(medium.reserve(3 * page), Error);
      medium.barrier();  // the store would make none
      REQUIRE(fresh.size_bytes() == row.length);
      REQUIRE(fresh.room_bytes() == page);
      REQUIRE(reaches(events) == row.after_power_loss);
    }
  }
  SECTION("a full medium may be longer than before, which is no room") {
    for (const std::uint64_t full_at : {3, 4, 5}) {
      CAPTURE(full_at);
      Disk fresh(kToyBytes);
      Log events;
      behaviour.full_at = full_at;
      RecordingMedium medium(fresh, events, behaviour);
      medium.reserve(page);
      while (events.events.size() < full_at) medium.barrier();
      REQUIRE_THROWS_AS(medium.reserve(3 * page), Error);
      REQUIRE(fresh.size_bytes() == (full_at - 2) * page);
      REQUIRE(fresh.room_bytes() == page);
      REQUIRE(medium.reserve(2 * page) == 2 * page);  // and goes on
      medium.barrier();
      REQUIRE(fresh.room_bytes() == 2 * page);
    }
  }
  SECTION("what was found is room once it is reserved, and that can fail") {
    disk.grow(3 * page);
    behaviour.full_at = 0;
    behaviour.fails_at = 1;
    RecordingMedium medium(disk, log, behaviour);
    REQUIRE_THROWS_AS(medium.reserve(2 * page), Error);  // Errc::full is no failure
    REQUIRE(log.events.empty());
    REQUIRE(medium.reserve(page) == page);
    REQUIRE_THROWS_AS(medium.reserve(2 * page), Error);
    REQUIRE(is<FailureEvent>(log.events.back()));
    REQUIRE(disk.room_bytes() == page);
    REQUIRE(disk.size_bytes() == 3 * page);
    REQUIRE(medium.reserve(2 * page) == 2 * page);
    REQUIRE(disk.room_bytes() == 2 * page);
    REQUIRE(medium.reserve(page) == 2 * page);  // there is so much already
  }
  SECTION("whole granules are given, and what is left where none fits") {
    Disk wide(8 * page);
    behaviour.granule_bytes = 3 * page;
    behaviour.max_size_bytes = 8 * page;
    RecordingMedium medium(wide, log, behaviour);
    REQUIRE(medium.reserve(1) == 3 * page);
    REQUIRE(medium.reserve(3 * page) == 3 * page);
    REQUIRE(medium.reserve(3 * page + 1) == 6 * page);
    REQUIRE(medium.reserve(7 * page) == 8 * page);
    REQUIRE(wide.room_bytes() == 8 * page);
    REQUIRE_THROWS_AS(medium.reserve(8 * page + 1), Error);
  }
}

}  // namespace tensorshelf::crash
