// The harness must be able to fail. A toy store of two slots and one word, small enough to be
// right by inspection, is explored whole, then with one mistake at a time; each must be found.
#include <array>
#include <stdexcept>
#include <string>

#include <tensorshelf/error.hpp>

#include "crashtest/images.hpp"
#include "crashtest/recording_medium.hpp"
#include "crashtest/walk.hpp"
#include "crashtest/workload.hpp"
#include "tests/catch.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::uint64_t kHome = 0;  // the word: version
constexpr std::uint64_t kToyBytes = 4 * kPageBytes;

std::uint64_t slot(std::uint64_t version) { return (1 + version % 2) * kPageBytes; }

std::vector<std::byte> value(std::uint64_t version, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(mixed(version * 977 + i));
  return bytes;
}

enum class Mistake { none, no_wait, no_barrier, flip_first, ack_early, wrong_slot, in_a_thread };

// Version v's bytes are in slot v % 2; the word names v. Marks acknowledge.
void toy_run(Medium& medium, Log& log, Mistake mistake, std::size_t size) {
  medium.reserve(kToyBytes);
  medium.barrier();
  log.events.push_back(MarkEvent{});
  for (std::uint64_t version = 1; version <= 4; ++version) {
    const std::vector<std::byte> bytes = value(version, size);
    const std::uint64_t place = slot(mistake == Mistake::wrong_slot ? version - 1 : version);
    if (mistake == Mistake::flip_first) medium.store_word(kHome, version);
    Ticket ticket;
    if (mistake == Mistake::in_a_thread) {
      std::thread([&] { ticket = medium.write(place, bytes, 0); }).join();
    } else {
      ticket = medium.write(place, bytes, 0);
    }
    if (mistake != Mistake::no_wait) medium.wait(ticket);
    if (mistake != Mistake::no_barrier) medium.barrier();
    if (mistake != Mistake::flip_first) medium.store_word(kHome, version);
    if (mistake != Mistake::ack_early) medium.barrier();
    log.events.push_back(MarkEvent{.number = version});
    medium.barrier();
  }
}

struct ToyRun {
  Mistake mistake = Mistake::none;
  Personality personality = Personality::pmem;
  bool trash = false;
  MediumBugs bugs = {};
  std::size_t size = 24;
  std::size_t cap = 64;
};

struct ToyResult {
  Counts counts;
  std::uint64_t wrong = 0;
};

ToyResult explore_toy(const ToyRun& run) {
  Disk disk(kToyBytes);
  Log log;
  const Behaviour behaviour{run.personality, kToyBytes, run.bugs};
  {
    RecordingMedium medium(disk, log, behaviour);
    toy_run(medium, log, run.mistake, run.size);
  }
  disk.rollback({});
  std::vector<std::uint64_t> acked;
  std::uint64_t now = 0;
  std::size_t first = log.events.size();
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    if (const auto* mark = std::get_if<MarkEvent>(&log.events[i])) {
      first = std::min(first, i);
      now = mark->number;
    }
    acked.push_back(now);
  }
  ToyResult result;
  Rng rng(7);
  walk_images(
      disk, log, {run.personality, run.trash, run.cap, first},
      [&](std::size_t event) { return acked[event]; }, rng, result.counts,
      [&](const CrashPoint& point, ReadSet& reads) {
        Log recovery_log;
        RecordingMedium medium(disk, recovery_log, behaviour, &reads);
        std::uint64_t version = 0;
        medium.read(kHome, std::as_writable_bytes(std::span(&version, 1)));
        bool right = version == acked[point.event] || version == acked[point.event] + 1;
        if (right && version != 0) {
          std::vector<std::byte> bytes(run.size);
          medium.read(slot(version), bytes);
          right = bytes == value(version, run.size);
        }
        result.wrong += !right;
      });
  return result;
}

}  // namespace

TEST_CASE("a toy store without mistakes survives every image, and all of them are tried") {
  for (const Personality personality : {Personality::pmem, Personality::block}) {
    for (const bool trash : {false, true}) {
      const ToyResult result = explore_toy({.personality = personality, .trash = trash});
      CAPTURE(personality_name(personality), trash);
      REQUIRE(result.wrong == 0);
      REQUIRE(result.counts.distinct > 8);
      REQUIRE(result.counts.exhaustive_points == result.counts.crash_points);
    }
  }
}

TEST_CASE("each mistake of the toy store is found") {
  struct Row {
    const char* name;
    ToyRun run;
  };
  constexpr MediumBugs no_drain{.worker_without_drain = true};
  constexpr MediumBugs torn{.torn_word = true};
  const std::array rows = {
      Row{"no barrier, pmem", {Mistake::no_barrier, Personality::pmem}},
      Row{"no barrier, block", {Mistake::no_barrier, Personality::block}},
      Row{"no wait, pmem", {Mistake::no_wait, Personality::pmem}},
      Row{"no wait, block", {Mistake::no_wait, Personality::block}},
      Row{"flip first, pmem", {Mistake::flip_first, Personality::pmem}},
      Row{"flip first, block", {Mistake::flip_first, Personality::block}},
      Row{"early ack, pmem", {Mistake::ack_early, Personality::pmem}},
      Row{"early ack, block", {Mistake::ack_early, Personality::block}},
      Row{"wrong slot, pmem", {Mistake::wrong_slot, Personality::pmem}},
      Row{"worker, no drain", {Mistake::in_a_thread, Personality::pmem, false, no_drain}},
      Row{"no barrier, sampled", {Mistake::no_barrier, Personality::pmem, false, {}, 4096, 64}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    REQUIRE(explore_toy(row.run).wrong > 0);
  }
  SECTION("no harm where the model says so") {
    REQUIRE(explore_toy({Mistake::in_a_thread, Personality::pmem}).wrong == 0);
    REQUIRE(explore_toy({Mistake::none, Personality::pmem, false, no_drain}).wrong == 0);
    REQUIRE(explore_toy({Mistake::none, Personality::pmem, false, torn}).wrong == 0);  // < 2^32
  }
}

TEST_CASE("the disk goes back to where it was") {
  Disk disk(kToyBytes);
  disk.grow(kToyBytes);
  const std::uint64_t before = disk.fingerprint();
  const Disk::Mark mark = disk.mark();
  disk.write(3, value(1, 21));
  disk.write(8, value(2, 8));
  const std::uint64_t one_order = disk.fingerprint();
  REQUIRE(one_order != before);
  disk.rollback(mark);
  REQUIRE(disk.fingerprint() == before);
  disk.write(3, value(1, 5));
  disk.write(8, value(2, 8));
  const std::vector<std::byte> tail = value(1, 21);
  disk.write(16, std::span(tail).subspan(13));
  REQUIRE(disk.fingerprint() == one_order);  // the content counts, not the way to it
  disk.rollback(mark);
  for (const std::byte byte : disk.bytes()) REQUIRE(byte == std::byte{0});
}

TEST_CASE("every workload can be read, and nonsense cannot") {
  for (const Workload& workload : workloads()) {
    CAPTURE(workload.name);
    REQUIRE(!parse(workload.program).empty());
  }
  REQUIRE_THROWS_AS(parse("create a"), std::invalid_argument);
  REQUIRE_THROWS_AS(parse("persist twice"), std::invalid_argument);
  REQUIRE_THROWS_AS(parse("explode"), std::invalid_argument);
}

}  // namespace tensorshelf::crash
