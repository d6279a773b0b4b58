// Homes that wait for their next version. What shows that no version was lost there must not hang
// on one page: an open for writing leaves every copy of them whole, or wiped.
#include <algorithm>
#include <cerrno>

#include <tensorshelf/repair.hpp>

#include "cached_disk.hpp"
#include "forgery.hpp"
#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using format::Root;
using format::root_at;

namespace {

constexpr Shape kShape{.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole};

void put_garbage(Medium& medium, std::uint64_t at) {
  write_raw(medium, at, page_of(std::byte{0x5A}));
}

void check_interrupted(const Shelf& shelf, unsigned version) {
  const Recovery recovery = shelf.info().recovery;
  CHECK(recovery.interrupted);
  CHECK_FALSE(recovery.degraded);
  CHECK(recovery.lost.empty());
  CHECK(shelf.version() == version);
  CHECK((value(shelf.find("w").value()) == pattern(5000, version)));
}

void check_both(const Shelf& shelf, unsigned newest) {
  CHECK_FALSE(shelf.info().recovery.degraded);
  CHECK(shelf.version() == newest);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{newest - 1, newest});
}

std::unique_ptr<Kept> committed(unsigned versions) {
  auto kept = std::make_unique<Kept>(kShape);
  Shelf shelf = kept->open();
  for (unsigned version = 1; version <= versions; ++version) commit(shelf, version);
  return kept;
}

// Commits version 5, and is killed when the first 64 bytes of its root are there, in one copy.
void die_describing(const Kept& kept) {
  const auto first = raw_at(*kept.medium, root_at(5 % 3, 0));
  const auto second = raw_at(*kept.medium, root_at(5 % 3, 1));
  Shelf shelf = kept.open();
  shelf.find("w")->write(pattern(5000, 5));
  crash_before_flip(kept, shelf);
  format::RawPage torn = raw_at(*kept.medium, root_at(5 % 3, 0));
  std::copy(first.bytes.begin() + 64, first.bytes.end(), torn.bytes.begin() + 64);
  REQUIRE(torn.bytes != first.bytes);
  write_raw(*kept.medium, root_at(5 % 3, 0), torn);
  write_raw(*kept.medium, root_at(5 % 3, 1), second);
}

}  // namespace

TEST_CASE("an attempt of whose root one copy alone was written is told as an interruption") {
  const unsigned written = GENERATE(0U, 1U);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  commit(shelf, 2);
  const std::uint64_t other = format::root_at(3 % 2, 1 - written);
  const format::RawPage before = raw_at(*kept.medium, other);
  crash_before_flip(kept, shelf);
  write_raw(*kept.medium, other, before);
  check_interrupted(kept.open(), 2);
}

TEST_CASE("an attempt over a home that was wiped is not taken for a lost version") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  for (unsigned version = 1; version <= 3; ++version) commit(shelf, version);
  for (const unsigned copy : {0U, 1U}) put_garbage(*kept.medium, format::root_at(3 % 2, copy));
  shelf = kept.open();
  REQUIRE(shelf.info().recovery.degraded);
  crash_before_flip(kept, shelf);
  check_interrupted(kept.open(), 2);
}

TEST_CASE("an attempt over a home that was mended is not taken for a lost version") {
  const unsigned mended = GENERATE(0U, 1U);  // of which copy all that is known is what was mended
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    commit(shelf, 1);
    commit(shelf, 2);
  }
  write_raw(*kept.medium, format::root_at(1, mended), {});  // of version 1, which stays
  Shelf shelf = kept.open();
  CHECK(shelf.info().recovery.repaired_copies == 1);
  commit(shelf, 3);
  shelf.find("w")->write(pattern(5000, 4));
  crash_before_flip(kept, shelf);
  put_garbage(*kept.medium, format::root_at(4 % 3, 1 - mended));  // torn by the crash
  shelf = kept.open();
  check_interrupted(shelf, 3);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{2, 3});
}

TEST_CASE("a home that waits may lose one copy, and after an open the other") {
  const unsigned first = GENERATE(0U, 1U);
  const auto kept = committed(4);
  put_garbage(*kept->medium, root_at(5 % 3, first));
  check_both(kept->open(Mode::read), 4);
  check_both(kept->open(), 4);
  CHECK_FALSE(kept->open().info().recovery.interrupted);
  put_garbage(*kept->medium, root_at(5 % 3, 1 - first));
  check_both(kept->open(), 4);
}

TEST_CASE("a home in which a crash left a torn root may lose the other copy after an open") {
  const auto kept = committed(4);
  die_describing(*kept);
  check_interrupted(kept->open(), 4);
  put_garbage(*kept->medium, root_at(5 % 3, 1));
  check_both(kept->open(), 4);
}

TEST_CASE("a home that waits may lose a copy before a crash in an attempt there, too") {
  const auto kept = committed(4);
  put_garbage(*kept->medium, root_at(5 % 3, 1));
  kept->open().close();
  die_describing(*kept);
  check_both(kept->open(), 4);
}

TEST_CASE("a home that was wiped may lose either copy") {
  const unsigned copy = GENERATE(0U, 1U);
  const auto kept = committed(5);
  for (const unsigned each : {0U, 1U}) put_garbage(*kept->medium, root_at(5 % 3, each));
  {
    Shelf shelf = kept->open();
    REQUIRE(shelf.info().recovery.degraded);
    REQUIRE(shelf.version() == 4);
    commit(shelf, 5);  // the home of 6 was wiped as well
  }
  put_garbage(*kept->medium, root_at(6 % 3, copy));
  check_both(kept->open(), 5);
  put_garbage(*kept->medium, root_at(6 % 3, 1 - copy));
  check_both(kept->open(), 5);
}

TEST_CASE("a copy of a home that waits which cannot be read keeps nobody from writing") {
  const bool wiped = GENERATE(false, true);
  const auto disk = std::make_shared<CachedDisk>();
  CachedMedium medium(disk);
  Shelf::format(medium, {.keep = 1});
  const auto open = [&] {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = Mode::update});
  };
  {
    Shelf shelf = open();
    for (unsigned version = 1; version <= 5; ++version) commit(shelf, version);
  }
  if (wiped) {
    for (const unsigned copy : {0U, 1U}) put_garbage(medium, root_at(5 % 3, copy));
    Shelf shelf = open();
    commit(shelf, 5);
  }
  for (const unsigned copy : {1U, 0U}) {
    disk->unreadable[root_at(6 % 3, copy)] = EIO;
    check_both(open(), 5);
    CHECK(disk->unreadable.empty());  // written anew
  }
}

TEST_CASE("damage to one copy of the next home, before an attempt and after it, loses nothing") {
  const Shape shape = any_shape();
  const bool prepared = GENERATE(false, true);
  const bool no_word = GENERATE(false, true);
  const unsigned first = GENERATE(0U, 1U);
  CAPTURE(shape.keep, shape.in_flight, prepared, no_word, first);
  const unsigned slots = 1 + shape.keep + shape.in_flight;
  const Kept kept(shape);
  {
    Shelf shelf = kept.open();
    for (unsigned version = 1; version <= slots; ++version) commit(shelf, version);
  }
  const auto home = [&](unsigned copy) {
    return format::root_at(format::home_of(slots + 1, slots), copy);
  };
  format::RawPage page = raw_at(*kept.medium, home(first));
  std::fill_n(page.bytes.begin(), no_word ? sizeof(Root::word) : std::size_t{kPageBytes},
              std::byte{0});
  write_raw(*kept.medium, home(first), page);
  Shelf shelf = kept.open();
  shelf.find("w")->write(pattern(5000, slots + 1));
  if (prepared) {
    shelf.prepare();
    shelf.close();
  } else {
    crash_before_flip(kept, shelf);
  }
  put_garbage(*kept.medium, home(1 - first));
  shelf = kept.open();
  if (!prepared) return check_interrupted(shelf, slots);
  CHECK_FALSE(shelf.info().recovery.degraded);
  REQUIRE(shelf.prepared());
  shelf.resolve(Decision::commit);
  CHECK((value(shelf.find("w").value(), true) == pattern(5000, slots + 1)));
}

// Of a version older than any that is kept.
TEST_CASE("a home of which both words are damaged is written under one that is known again") {
  const Kept kept({.keep = 1, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    for (unsigned version = 1; version <= 4; ++version) commit(shelf, version);
  }
  for (const unsigned copy : {0U, 1U}) put_garbage(*kept.medium, format::root_at(6 % 4, copy));
  Shelf shelf = kept.open();
  CHECK_FALSE(
      shelf.info().recovery.degraded);  // version 6 comes after 5, of which nothing is there
  commit(shelf, 5);
  shelf.find("w")->write(pattern(5000, 6));
  crash_before_flip(kept, shelf);
  check_interrupted(kept.open(), 5);
}

// The writes of version 4 never came to one copy, where version 1 lies still, whole. Nobody misses
// them once version 6 is there; but what is described over version 1 would be known by nobody.
TEST_CASE("a copy that holds a root older than the last one is wiped while its home waits") {
  const unsigned stale = GENERATE(0U, 1U);
  const auto kept = committed(3);
  const format::RawPage first = raw_at(*kept->medium, root_at(4 % 3, stale));
  {
    Shelf shelf = kept->open();
    for (unsigned version = 4; version <= 6; ++version) commit(shelf, version);
  }
  write_raw(*kept->medium, root_at(4 % 3, stale), first);
  Shelf shelf = kept->open();
  check_both(shelf, 6);
  shelf.find("w")->write(pattern(5000, 7));

  SECTION("so that an attempt in the other copy is known, prepared or not") {
    const bool prepared = GENERATE(true, false);
    if (prepared) {
      shelf.prepare({}, "rank 3");
      shelf.close();
    } else {
      crash_before_flip(*kept, shelf);
    }
    put_garbage(*kept->medium, root_at(7 % 3, 1 - stale));
    shelf = kept->open();
    check_both(shelf, 6);
    CHECK(shelf.prepared().has_value() == prepared);
  }
  SECTION("and a crash that tears the other copy raises no doubt") {
    crash_before_flip(*kept, shelf);
    format::RawPage torn = raw_at(*kept->medium, root_at(7 % 3, 1 - stale));
    std::fill_n(torn.bytes.begin() + 600, 8, std::byte{1});
    write_raw(*kept->medium, root_at(7 % 3, 1 - stale), torn);
    shelf = kept->open();
    check_both(shelf, 6);
  }
}

// A doubt whether version 6 was lost, and a chunk of version 5 that cannot be read: for a moment,
// perhaps.
TEST_CASE("an open for writing gives no version up for a chunk that cannot be read") {
  const auto disk = std::make_shared<CachedDisk>();
  CachedMedium medium(disk);
  Shelf::format(medium, {.keep = 1});
  const auto open = [&](Mode mode) {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
  };
  {
    Shelf shelf = open(Mode::update);
    for (unsigned version = 1; version <= 5; ++version) commit(shelf, version);
  }
  const auto newest = pattern(5000, 5);
  const auto chunk = std::search(disk->visible.begin(), disk->visible.end(), newest.begin(),
                                 newest.begin() + kPageBytes);
  const auto chunk_at = static_cast<std::uint64_t>(chunk - disk->visible.begin());
  REQUIRE(chunk_at < disk->visible.size());
  format::RawPage torn = raw_at(medium, root_at(6 % 3, 0));
  std::fill(torn.bytes.begin() + 512, torn.bytes.end(), std::byte{0x11});
  write_raw(medium, root_at(6 % 3, 0), torn);
  put_garbage(medium, root_at(6 % 3, 1));
  medium.barrier();

  disk->unreadable[chunk_at] = EIO;
  const auto error = error_of([&] { open(Mode::update); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(error->os_error() == EIO);
  CHECK(open(Mode::read).version() == 4);  // which writes nothing

  SECTION("it passes") {
    disk->unreadable.clear();
    Shelf shelf = open(Mode::update);
    CHECK(shelf.version() == 5);
    CHECK((value(shelf.find("w").value()) == newest));
  }
  SECTION("it does not, and repair() is asked to go on") {
    CHECK(repair(std::make_unique<CachedMedium>(disk)).version == 5);
    CHECK(open(Mode::update).version() == 5);
  }
}
