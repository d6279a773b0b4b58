// The facts of the fault model (recording_medium.hpp) on a medium that is made shorter.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include <tensorshelf/error.hpp>

#include "crashtest/recording_medium.hpp"
#include "crashtest/toy_contents.hpp"
#include "tests/bytes.hpp"
#include "tests/catch.hpp"
#include "tests/thrown.hpp"

namespace tensorshelf::crash {
namespace {

using testing::code_of;
using testing::pattern;

constexpr std::uint64_t kPage = kPageBytes;
constexpr std::uint64_t kCut = 2 * kPage;  // where it ends then; it had a page more
constexpr std::array kBoth = {Personality::pmem, Personality::block};

struct Toy {
  explicit Toy(Personality how, std::uint64_t full_at = ~std::uint64_t{0}, std::uint64_t seed = 0,
               const MediumBugs& bugs = {})
      : personality(how),
        medium(disk, log,
               {.personality = how,
                .max_size_bytes = kToyBytes,
                .bugs = bugs,
                .full_at = full_at,
                .seed = seed}) {}
  void write(std::uint64_t at, unsigned value) { medium.wait(medium.write(at, bytes(value), 0)); }
  // Of a size that lands whole or not at all, on either.
  std::vector<std::byte> bytes(unsigned value) const {
    return pattern(personality == Personality::pmem ? kWordBytes : kSectorBytes, value);
  }
  // What can be at the place once the power is gone: pattern `1` or `2`, zeros or `-` for no end.
  std::set<std::string> left_at(std::uint64_t at, std::size_t max_images = 1 << 16) const {
    std::set<std::string> all;
    const std::size_t size = bytes(1).size();
    for (const auto& found : contents(log, personality, false, at + size, max_images)) {
      all.insert(found.size() < at + size ? "-" : name(found.substr(at)));
    }
    return all;
  }
  std::string name(const std::string& found) const {
    if (found == std::string(found.size(), '\0')) return "0";
    for (const unsigned value : {1, 2}) {
      const auto known = bytes(value);
      const std::string text(reinterpret_cast<const char*>(known.data()), known.size());
      if (found == text) return std::to_string(value);
    }
    return "garbage";
  }
  std::string read_at(std::uint64_t at) {
    std::string found(bytes(1).size(), '-');
    medium.read(at, std::as_writable_bytes(std::span(found)));
    return name(found);
  }

  Personality personality;
  Disk disk{kToyBytes};
  Log log;
  RecordingMedium medium;
};

using Names = std::set<std::string>;

// How far there can be something, and room, once the power is gone.
std::set<std::pair<std::uint64_t, std::uint64_t>> reaches(const Log& log) {
  Disk disk(kToyBytes);
  std::set<std::pair<std::uint64_t, std::uint64_t>> all;
  Counts counts;
  Rng rng(3);
  walk_images(
      disk, log, {Personality::block, false, 64, log.events.size() - 1},
      [](std::size_t) { return 0; }, rng, counts,
      [&](const CrashPoint&, ReadSet&) {
        all.insert({disk.size_bytes() / kPage, disk.room_bytes() / kPage});
      });
  return all;
}

}  // namespace

TEST_CASE("what a medium gave back is there after a power loss, or not, whatever barriers came") {
  for (const Personality personality : kBoth) {
    CAPTURE(personality_name(personality));
    Toy toy(personality);
    toy.medium.reserve(3 * kPage);
    toy.write(kPage, 2);
    toy.write(kCut, 1);
    toy.medium.barrier();
    REQUIRE(toy.medium.shrink(kCut) == kCut);
    REQUIRE(toy.medium.size() == kCut);
    REQUIRE(toy.disk.room_bytes() == kCut);
    for (int barriers = 0; barriers < 3; ++barriers) {
      REQUIRE(toy.left_at(kCut) == Names{"1", "-"});
      REQUIRE(toy.left_at(kPage) == Names{"2"});
      REQUIRE(reaches(toy.log) ==
              std::set<std::pair<std::uint64_t, std::uint64_t>>{{2, 2}, {3, 2}});
      toy.medium.barrier();
    }
    const std::size_t events = toy.log.events.size();
    REQUIRE(toy.medium.shrink(kCut) == kCut);  // there is nothing to do
    REQUIRE(toy.log.events.size() == events);
  }
}

TEST_CASE("room that is reserved anew is zero, and settles what was given back") {
  for (const Personality personality : kBoth) {
    for (const auto& [value, barrier] :  // the same bytes as before, too
         {std::pair{1, false}, {2, false}, {1, true}}) {
      CAPTURE(personality_name(personality), value, barrier);
      Toy toy(personality);
      toy.medium.reserve(3 * kPage);
      toy.write(kCut, 1);
      toy.medium.barrier();
      toy.medium.shrink(kCut);
      if (barrier) toy.medium.barrier();
      REQUIRE(toy.medium.reserve(3 * kPage) == 3 * kPage);
      REQUIRE(toy.read_at(kCut) == "0");
      REQUIRE(toy.left_at(kCut) == Names{"1", "-", "0"});
      toy.write(kCut, static_cast<unsigned>(value));
      REQUIRE(toy.read_at(kCut) == std::to_string(value));
      REQUIRE(toy.left_at(kCut) == Names{"1", "-", "0", std::to_string(value)});
      REQUIRE(reaches(toy.log) ==
              std::set<std::pair<std::uint64_t, std::uint64_t>>{{2, 2}, {3, 2}});
      toy.medium.barrier();
      REQUIRE(toy.left_at(kCut) == Names{std::to_string(value)});
      REQUIRE(reaches(toy.log) == std::set<std::pair<std::uint64_t, std::uint64_t>>{{3, 3}});
    }
  }
}

TEST_CASE("of what came after a cut nothing lands on what lay there before") {
  for (const Personality personality : kBoth) {
    CAPTURE(personality_name(personality));
    Toy toy(personality);
    toy.medium.reserve(3 * kPage);
    toy.write(kPage, 1);
    toy.write(kCut, 1);
    toy.medium.barrier();
    toy.medium.shrink(kPage);
    toy.medium.reserve(4 * kPage);
    toy.write(kPage, 2);
    const std::size_t size = toy.bytes(1).size();
    std::set<std::array<std::string, 3>> found;
    for (const std::string& all : contents(toy.log, personality, false, 4 * kPage)) {
      const auto at = [&](std::uint64_t place) {
        return all.size() < place + size ? "-" : toy.name(all.substr(place, size));
      };
      found.insert({at(kPage), at(kCut), at(3 * kPage)});
    }
    REQUIRE(found == std::set<std::array<std::string, 3>>{{"1", "1", "-"},  // as before
                                                          {"-", "-", "-"},  // cut
                                                          {"0", "-", "-"},
                                                          {"2", "-", "-"},  // and grown, half-way
                                                          {"0", "0", "0"},
                                                          {"2", "0", "0"}});
  }
}

TEST_CASE("where the growth is not settled, neither is what was written in it") {
  Toy toy(Personality::block, ~std::uint64_t{0}, 0, {.growth_not_settled = true});
  toy.medium.reserve(3 * kPage);
  toy.write(kCut, 1);
  toy.medium.barrier();
  toy.medium.shrink(kCut);
  toy.medium.reserve(3 * kPage);
  toy.write(kCut, 2);
  toy.medium.barrier();
  REQUIRE(toy.left_at(kCut) == Names{"1", "-", "0", "2"});
}

TEST_CASE("a length that no barrier settles is gone with a later cut") {
  Toy toy(Personality::block, 2);
  using Reaches = std::set<std::pair<std::uint64_t, std::uint64_t>>;
  toy.medium.reserve(kPage);
  toy.medium.barrier();
  REQUIRE(code_of([&] { toy.medium.reserve(3 * kPage); }) == Errc::full);
  REQUIRE(toy.medium.size() == 3 * kPage);
  REQUIRE(toy.medium.shrink(kPage) == kPage);
  toy.medium.barrier();
  REQUIRE(reaches(toy.log) == Reaches{{1, 1}, {2, 1}, {3, 1}});
  toy.medium.reserve(kCut);
  toy.medium.barrier();
  REQUIRE(reaches(toy.log) == Reaches{{2, 2}});
}

TEST_CASE("what nobody waited for goes with the room, and lands on none that comes later") {
  for (const Personality personality : kBoth) {
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      CAPTURE(personality_name(personality), seed);
      auto toy = std::make_unique<Toy>(personality, ~std::uint64_t{0}, seed);
      toy->medium.reserve(3 * kPage);
      toy->medium.barrier();
      toy->medium.write(kPage, pattern(2 * kPage, 3), 0);  // it ends beyond
      toy->medium.write(kCut, toy->bytes(1), 0);
      toy->medium.shrink(kCut);
      const std::size_t images = 1 << 11;  // each unit of that write is in half of them
      REQUIRE(toy->left_at(kCut, images).contains("-"));
      toy->medium.reserve(3 * kPage);
      toy->medium.barrier();
      REQUIRE(toy->left_at(kCut, images) == Names{"0"});
      { const RecordingMedium ends(toy->disk, toy->log, {.personality = personality}); }
      toy.reset();  // with what is held of the write that is there in part
    }
  }
}

TEST_CASE("a medium that ends has lost of what it gave back nothing that others could see") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    Disk disk(kToyBytes);
    Log log;
    const Behaviour behaviour{
        .personality = Personality::block, .max_size_bytes = kToyBytes, .seed = seed};
    {
      RecordingMedium medium(disk, log, behaviour);
      medium.reserve(3 * kPage);
      medium.barrier();
      medium.write(kPage, pattern(2 * kPage, 3), 0);
      medium.shrink(kCut);
      medium.reserve(3 * kPage);
    }
    const auto* const death = std::get_if<DeathEvent>(&log.events.back());
    REQUIRE(death != nullptr);
    for (const Loss& loss : death->lost) REQUIRE(loss.at == kPage);
    Disk replayed(kToyBytes);
    for (const Event& event : log.events) log.replay(event, replayed);
    REQUIRE(replayed.fingerprint() == disk.fingerprint());
    for (const std::byte byte : disk.bytes().subspan(kCut)) REQUIRE(byte == std::byte{0});
  }
}

TEST_CASE("growth before it settles by itself, and gives no room beyond") {
  Toy toy(Personality::block);
  using Reaches = std::set<std::pair<std::uint64_t, std::uint64_t>>;
  toy.medium.reserve(kPage);
  toy.medium.barrier();
  toy.medium.reserve(3 * kPage);
  toy.medium.shrink(kCut);
  REQUIRE(reaches(toy.log) == Reaches{{1, 1}, {2, 1}, {3, 1}});
  toy.medium.barrier();
  REQUIRE(reaches(toy.log) == Reaches{{2, 2}, {3, 2}});
  toy.medium.reserve(4 * kPage);
  REQUIRE(reaches(toy.log) == Reaches{{2, 2}, {3, 2}, {4, 2}});
  toy.medium.shrink(kPage);
  toy.medium.reserve(kCut);
  toy.medium.barrier();
  REQUIRE(reaches(toy.log) == Reaches{{2, 2}});
}

TEST_CASE("a shrink that is refused changes nothing, and is no failure") {
  for (const Personality personality : kBoth) {
    CAPTURE(personality_name(personality));
    Toy toy(personality, 4);
    toy.medium.reserve(3 * kPage);
    toy.write(kCut, 1);
    toy.medium.barrier();
    REQUIRE(code_of([&] { toy.medium.shrink(kCut); }) == Errc::io);
    REQUIRE(toy.log.events.size() == 4);
    REQUIRE(toy.medium.size() == 3 * kPage);
    REQUIRE(toy.disk.room_bytes() == 3 * kPage);
    REQUIRE(toy.left_at(kCut) == Names{"1"});
    REQUIRE(toy.read_at(kCut) == "1");
    REQUIRE(toy.medium.shrink(kCut) == kCut);  // once
  }
}

TEST_CASE("pages that cannot be read are given back, and new ones can") {
  ReadFaults faults{.pages = {kPage, kCut}};
  Disk disk(kToyBytes);
  Log log;
  RecordingMedium medium(disk, log, {.max_size_bytes = kToyBytes, .faults = &faults});
  medium.reserve(3 * kPage);
  medium.shrink(kCut);
  medium.reserve(3 * kPage);
  std::vector<std::byte> page(kPage);
  REQUIRE_NOTHROW(medium.read(kCut, page));
  REQUIRE(code_of([&] { medium.read(kPage, page); }) == Errc::io);
}

TEST_CASE("whoever gave room back and goes on using it is stopped") {
  Toy toy(Personality::pmem);
  toy.medium.reserve(3 * kPage);
  toy.medium.shrink(kCut);
  std::vector<std::byte> page(kPage);
  const auto aborts = [](auto call) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGABRT, SIG_DFL);
      std::freopen("/dev/null", "w", stderr);
      call();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  };
  REQUIRE_FALSE(aborts([&] { toy.medium.read(kPage, page); }));
  REQUIRE(aborts([&] { toy.medium.read(kPage + 8, page); }));
  REQUIRE(aborts([&] { toy.medium.look(kCut, page); }));
  REQUIRE(aborts([&] { (void)toy.medium.view({kCut, 8}); }));
  REQUIRE(aborts([&] { toy.medium.write(kCut, page, 0); }));
  REQUIRE(aborts([&] { toy.medium.store_word(kCut, 1); }));
  REQUIRE(aborts([&] { toy.medium.shrink(3 * kPage); }));
  REQUIRE(aborts([&] { toy.medium.shrink(8); }));
  toy.medium.reserve(3 * kPage);
  REQUIRE_FALSE(aborts([&] { toy.medium.read(kCut, page); }));
}

TEST_CASE("a medium that failed is unsure of nothing that lay there before a cut") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    for (const bool anew : {false, true}) {  // written again, behind no barrier
      CAPTURE(seed, anew);
      Disk disk(kToyBytes);
      Log log;
      RecordingMedium medium(disk, log,
                             {.personality = Personality::block,
                              .max_size_bytes = kToyBytes,
                              .fails_at = anew ? 10u : 8u,
                              .seed = seed});
      const auto write = [&](unsigned value) {
        medium.wait(medium.write(kCut, pattern(kSectorBytes, value), 0));
      };
      medium.reserve(3 * kPage);
      write(1);
      medium.barrier();
      write(2);
      medium.shrink(kCut);
      medium.reserve(3 * kPage);
      if (anew) write(3);
      REQUIRE_THROWS_AS(medium.barrier(), Error);
      std::vector<std::byte> found(kSectorBytes, std::byte{1});
      medium.read(kCut, found);
      const bool zero = found == std::vector<std::byte>(kSectorBytes);
      const bool written = anew && found == pattern(kSectorBytes, 3);
      REQUIRE((zero || written));
    }
  }
}

TEST_CASE("a reader whose writer makes the medium shorter gets an error beyond") {
  for (const Personality personality : kBoth) {
    CAPTURE(personality_name(personality));
    Toy toy(personality);
    toy.medium.reserve(3 * kPage);
    toy.medium.barrier();
    Log none;
    RecordingMedium reader(toy.disk, none, {.personality = personality});
    toy.medium.shrink(kCut);
    std::vector<std::byte> bytes(kPage);
    REQUIRE(reader.size() == kCut);
    REQUIRE(code_of([&] { reader.read(kCut, bytes); }) == Errc::truncated);
    REQUIRE(code_of([&] { reader.look(kPage + 8, bytes); }) == Errc::truncated);
    REQUIRE(reader.view({kCut, kPage}).empty());
    REQUIRE_NOTHROW(reader.read(kPage, bytes));
  }
}

TEST_CASE("of two media the first is made shorter, the second is of a fixed size") {
  Disk disk(kToyBytes);
  Log log;
  Recorded media = recorded(disk, log, {.max_size_bytes = kToyBytes, .second_bytes = kPage});
  media.first->reserve(3 * kPage);
  REQUIRE(media.first->shrink(kPage) == kPage);
  REQUIRE(media.first->size() == kPage);
  REQUIRE(disk.size_bytes() == 2 * kPage);
  REQUIRE(media.also[0]->shrink(kPage) == kPage);
  REQUIRE(disk.size_bytes() == 2 * kPage);
}

TEST_CASE("what was given back comes again as a disk is rolled back") {
  Disk disk(kToyBytes);
  disk.grow(3 * kPage);
  disk.make_room(3 * kPage);
  const std::uint64_t empty = disk.fingerprint();
  disk.write(kCut, pattern(100, 1));
  const std::uint64_t before = disk.fingerprint();
  const Disk::Mark mark = disk.mark();
  disk.cut(kCut);
  REQUIRE(disk.size_bytes() == kCut);
  REQUIRE(disk.room_bytes() == kCut);
  disk.grow(3 * kPage);
  disk.make_room(3 * kPage);
  REQUIRE(disk.fingerprint() == empty);
  disk.rollback(mark);
  REQUIRE(disk.fingerprint() == before);
  REQUIRE(disk.bytes()[kCut + 99] == pattern(100, 1)[99]);
}

}  // namespace tensorshelf::crash
