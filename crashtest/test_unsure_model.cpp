// The facts of the fault model (recording_medium.hpp) on what is read once a call has failed.
#include <cstring>
#include <set>
#include <span>
#include <string>

#include <tensorshelf/error.hpp>

#include "crashtest/recording_medium.hpp"
#include "crashtest/toy_contents.hpp"
#include "tests/bytes.hpp"
#include "tests/catch.hpp"

namespace tensorshelf::crash {

using testing::pattern;

namespace {

constexpr std::size_t kUnsureBytes = 2 * kSectorBytes;

std::string read_by(RecordingMedium& medium) {
  std::string bytes(kUnsureBytes, '-');
  medium.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Two sectors: pattern 1 behind a barrier, pattern 2 waited for, and then that call fails.
enum class Fails { barrier, wait, write };
void fail_at(RecordingMedium& medium, Fails call) {
  medium.reserve(kToyBytes);
  medium.wait(medium.write(0, pattern(kUnsureBytes, 1), 0));
  medium.barrier();
  const Ticket ticket = medium.write(0, pattern(kUnsureBytes, 2), 0);
  medium.wait(ticket);
  if (call == Fails::barrier) REQUIRE_THROWS_AS(medium.barrier(), Error);
  if (call == Fails::wait) REQUIRE_THROWS_AS(medium.wait(ticket), Error);
  if (call == Fails::write) REQUIRE_THROWS_AS(medium.write(kPageBytes, pattern(8, 3), 0), Error);
}

Behaviour failing(Personality personality, std::uint64_t seed) {
  return {.personality = personality, .max_size_bytes = kToyBytes, .fails_at = 6, .seed = seed};
}

// The values of both sectors: of each which pattern, or 0 where it is neither.
std::string sectors_of(const std::string& bytes) {
  std::string which;
  for (std::size_t at = 0; at < kUnsureBytes; at += kSectorBytes) {
    char found = '0';
    for (const char number : {'1', '2'}) {
      const auto value = pattern(kUnsureBytes, static_cast<std::uint64_t>(number - '0'));
      if (std::memcmp(&value[at], &bytes[at], kSectorBytes) == 0) found = number;
    }
    which += found;
  }
  return which;
}

}  // namespace

TEST_CASE("block: after a failure each read gives old or new sectors, and a look what is visible") {
  for (const Fails call : {Fails::barrier, Fails::wait, Fails::write}) {
    std::set<std::string> seen;
    unsigned differ = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      Disk disk(kToyBytes);
      Log log;
      RecordingMedium medium(disk, log, failing(Personality::block, seed));
      fail_at(medium, call);
      const std::string first = sectors_of(read_by(medium));
      const std::string second = sectors_of(read_by(medium));
      seen.insert({first, second});
      if (first != second) ++differ;
      std::string looked(kUnsureBytes, '-');
      medium.look(0, std::as_writable_bytes(std::span(looked)));
      REQUIRE(sectors_of(looked) == "22");
    }
    REQUIRE(seen == std::set<std::string>{"11", "12", "21", "22"});
    REQUIRE(differ > 5);
  }
}

TEST_CASE("pmem: after a failure what was written is read") {
  Disk disk(kToyBytes);
  Log log;
  RecordingMedium medium(disk, log, failing(Personality::pmem, 1));
  fail_at(medium, Fails::barrier);
  REQUIRE(sectors_of(read_by(medium)) == "22");
}

TEST_CASE("block: the next process too is unsure of what a flush lost, until it is written anew") {
  std::set<std::string> seen;
  unsigned differ = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Disk disk(kToyBytes);
    Log log;
    {
      RecordingMedium medium(disk, log, failing(Personality::block, seed));
      fail_at(medium, Fails::barrier);
    }
    Unsure unsure(log, kToyBytes, Unsure::What::no_barrier_will_cover, seed);
    REQUIRE_FALSE(unsure.empty());
    const Behaviour next{
        .personality = Personality::block, .max_size_bytes = kToyBytes, .unsure = &unsure};
    std::string first;
    {
      RecordingMedium medium(disk, log, next);
      medium.barrier();  // which covers nothing of it
      first = sectors_of(read_by(medium));
      seen.insert(first);
      REQUIRE(contents(log, Personality::block, false, kUnsureBytes).size() == 4);
    }
    RecordingMedium medium(disk, log, next);
    if (sectors_of(read_by(medium)) != first) ++differ;
    medium.wait(medium.write(0, pattern(kSectorBytes, 2), 0));
    medium.barrier();
    REQUIRE(unsure.empty());  // of the page
    REQUIRE(sectors_of(read_by(medium)).front() == '2');
    REQUIRE(contents(log, Personality::block, false, kUnsureBytes).size() == 1);
  }
  REQUIRE(seen == std::set<std::string>{"11", "12", "21", "22"});
  REQUIRE(differ > 20);
}

TEST_CASE("block: a word leaves in its page what a read gives of the rest") {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Disk disk(kToyBytes);
    Log log;
    {
      RecordingMedium medium(disk, log, failing(Personality::block, seed));
      fail_at(medium, Fails::barrier);
    }
    Unsure unsure(log, kToyBytes, Unsure::What::no_barrier_will_cover, seed);
    RecordingMedium medium(
        disk, log,
        {.personality = Personality::block, .max_size_bytes = kToyBytes, .unsure = &unsure});
    medium.store_word(kPageBytes - 8, 7);
    medium.barrier();
    const std::string kept = sectors_of(read_by(medium));
    seen.insert(kept);
    REQUIRE(sectors_of(read_by(medium)) == kept);
    REQUIRE(contents(log, Personality::block, false, kUnsureBytes).size() == 1);
  }
  REQUIRE(seen == std::set<std::string>{"11", "12", "21", "22"});
}

TEST_CASE("block: what was waited for when a write failed is there for the next process") {
  Disk disk(kToyBytes);
  Log log;
  {
    RecordingMedium medium(disk, log, failing(Personality::block, 3));
    fail_at(medium, Fails::write);
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Unsure unsure(log, kToyBytes, Unsure::What::no_barrier_will_cover, seed);
    RecordingMedium medium(
        disk, log,
        {.personality = Personality::block, .max_size_bytes = kToyBytes, .unsure = &unsure});
    REQUIRE(sectors_of(read_by(medium)) == "22");
  }
}

}  // namespace tensorshelf::crash
