// The mark of a prepared attempt, and its home: after damage and crashes, and where somebody forged
// them.
#include <array>
#include <functional>
#include <memory>
#include <span>

#include <tensorshelf/repair.hpp>

#include "begun_shelf.hpp"
#include "cached_disk.hpp"
#include "forgery.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a home of a prepared attempt that was mended is known by its words") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.change();
  begun.shelf.prepare(20);
  begun.shelf.close();
  const std::vector<std::byte> harm(kPageBytes, std::byte{0x5A});
  Medium& medium = *begun.kept.medium;
  medium.wait(medium.write(format::root_at(0, 1), harm, 0));
  begun.reopen();
  CHECK(begun.shelf.info().recovery.repaired_copies == 1);
  begun.shelf.resolve(Decision::abandon);
  begun.change();
  begun.shelf.prepare(20);
  begun.reopen();
  CHECK(begun.shelf.prepared());
  CHECK(begun.shelf.info().recovery.repaired_copies == 0);
}

namespace {

format::PreparedMark mark_of(Medium& medium, unsigned copy) {
  format::PreparedMark mark;
  medium.read(format::mark_at(copy), std::as_writable_bytes(std::span(&mark, 1)));
  return mark;
}

}  // namespace

TEST_CASE("every mark has a number of its own, in both copies, and opening gives out none") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Medium& medium = *begun.kept.medium;
  const auto check = [&](std::uint64_t counter, std::uint64_t version) {
    for (unsigned copy = 0; copy < format::kCopies; ++copy) {
      CHECK(mark_of(medium, copy).counter == counter);
      CHECK(mark_of(medium, copy).version == version);
    }
  };
  check(1, 0);
  begun.reopen();
  check(1, 0);
  std::uint64_t counter = 1;
  for (const auto decision : {Decision::abandon, Decision::commit, Decision::abandon}) {
    begun.w.write(pattern(kBegunBytes, 2));
    begun.shelf.prepare(20, "g");
    const std::uint64_t prepared = begun.shelf.version() + 1;
    check(++counter, prepared);
    begun.reopen();
    check(counter, prepared);
    begun.shelf.resolve(decision);
    if (decision == Decision::abandon) {
      check(++counter, 0);
      begun.reopen();
    } else {
      begun.reopen();
      check(++counter, 0);  // void, for its version is there
    }
    begun.reopen();
    check(counter, 0);
  }
}

TEST_CASE("a damaged copy of a mark that was never used is written anew") {
  const unsigned copy = GENERATE(0U, 1U);
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  const auto harm = [&](unsigned which) {
    const std::vector<std::byte> garbage(kPageBytes, std::byte{0x5A});
    Medium& medium = *begun.kept.medium;
    medium.wait(medium.write(format::mark_at(which), garbage, 0));
  };
  harm(copy);
  begun.reopen();
  CHECK(begun.shelf.info().recovery.repaired_copies == 1);
  harm(1 - copy);
  begun.reopen();
  CHECK(begun.shelf.info().recovery.repaired_copies == 1);
  begun.reopen();
  CHECK(begun.shelf.info().recovery.repaired_copies == 0);
  begun.check_first(begun.shelf);
}

// A process dies while it prepares, at each of its steps, or a flush fails, whose pages stay there
// to be read; the next to open dies at each of its own, and the power fails. What was under way may
// be lost, and never both copies of the mark.
TEST_CASE("no crash in preparing, and in opening after it, takes both copies of the mark") {
  const bool flush = GENERATE(false, true);
  CAPTURE(flush);
  for (unsigned killed = 0, done = 0; done == 0; ++killed) {
    auto disk = std::make_shared<CachedDisk>();
    {
      CachedMedium medium(disk);
      Shelf::format(medium);
    }
    const auto open = [](const std::shared_ptr<CachedDisk>& there) {
      return Shelf::open(std::make_unique<CachedMedium>(there), {.mode = Mode::update});
    };
    {
      Shelf shelf = open(disk);
      make(shelf, "w", 100);
      shelf.persist(1);
      shelf.find("w")->write(pattern(100, 2));
      if (flush) {
        disk->barrier_fails = [at = disk->barriers + killed](unsigned n) { return n == at; };
      } else {
        disk->dies = [at = disk->events + killed](unsigned n) { return n == at; };
      }
      try {
        shelf.prepare(2);
        done = 1;
      } catch (const Error& error) {
        REQUIRE(error.code() == Errc::io);
      }
    }
    disk->dies = {};
    disk->barrier_fails = {};
    for (unsigned dying = 0;; ++dying) {
      CAPTURE(killed, dying);
      const auto there = std::make_shared<CachedDisk>(*disk);
      there->fate_of_dirty = [] { return CachedDisk::Fate::garbage; };
      there->dies = [at = there->events + dying](unsigned n) { return n == at; };
      bool opened = true;
      try {
        open(there);
      } catch (const Error& error) {
        REQUIRE(error.code() == Errc::io);
        opened = false;
      }
      there->dies = {};
      there->lose_power();
      const Shelf shelf = open(there);
      CHECK(shelf.version() == 1);
      if (opened) break;
    }
  }
}

TEST_CASE("a mark that its writer is writing is no damage to a reader") {
  const unsigned torn = GENERATE(0U, 1U);
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Medium& medium = *begun.kept.medium;
  const format::RawPage before = raw_at(medium, format::mark_at(1));
  begun.w.write(pattern(8, 2));
  begun.shelf.prepare(20);
  format::RawPage half = before;
  const format::RawPage after = raw_at(medium, format::mark_at(torn));
  std::copy_n(after.bytes.begin(), 64, half.bytes.begin());
  if (torn == 0) write_raw(medium, format::mark_at(1), before);
  write_raw(medium, format::mark_at(torn), half);
  const Shelf reader = begun.kept.open(Mode::read);
  begun.check_first(reader);
  CHECK(reader.prepared().has_value() == (torn == 1));
  CHECK_FALSE(reader.info().recovery.degraded);
  CHECK(reader.info().recovery.notes.empty());
}

namespace {

struct Way {  // to an attempt: which one it is, after its opening, where nothing is skipped
  const char* name;
  std::uint64_t version;
  std::uint64_t sequence;
  std::function<void(Shelf&)> go = [](Shelf&) {};
  bool found = false;  // and committed: what was prepared before
};

const std::array kWays = {
    Way{"opened", 3, 1},
    Way{"discarded", 3, 2, [](Shelf& shelf) { shelf.discard(); }},
    Way{"transaction", 3, 2, [](Shelf& shelf) { return shelf.transaction(); }},
    Way{"abandoned", 3, 3,
        [](Shelf& shelf) {
          shelf.prepare();
          shelf.resolve(Decision::abandon);
        }},
    Way{"committed", 4, 2, [](Shelf& shelf) { shelf.persist(); }},
    Way{"rolled back", 4, 2, [](Shelf& shelf) { shelf.rollback(2); }},
    Way{"found", 4, 2, [](Shelf& shelf) { shelf.resolve(Decision::commit); }, true},
};

}  // namespace

TEST_CASE("an attempt does not have the tag of the word that it lies under") {
  const Way& way = kWays[GENERATE(range(std::size_t{0}, kWays.size()))];
  CAPTURE(way.name);
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  std::uint64_t incarnation = 0;
  {
    Shelf shelf = kept.open();
    make(shelf, "w", 5000);
    shelf.persist();
    shelf.persist();
    if (way.found) shelf.prepare();
    incarnation = shelf.info().incarnation + 1;
  }
  constexpr unsigned kHomes = 3;
  const std::uint64_t mine = format::attempt_word(way.version, incarnation, way.sequence);
  format::Root home{};  // of a version that is long gone
  home.word = format::tagged_word(way.version - kHomes, format::word_tag(mine));
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_page(*kept.medium, format::root_at(format::home_of(way.version, kHomes), copy),
               format::as_page(home));
  }
  {
    Shelf shelf = kept.open();
    REQUIRE(shelf.info().incarnation == incarnation);
    REQUIRE_FALSE(shelf.info().recovery.degraded);
    way.go(shelf);
    shelf.find("w")->write(pattern(5000, 2));
    REQUIRE(shelf.prepare({}, "g").version == way.version);
  }
  Shelf shelf = kept.open();
  CHECK_FALSE(shelf.info().recovery.degraded);
  REQUIRE(shelf.prepared());
  CHECK(shelf.prepared()->id == "g");
}

TEST_CASE("the last mark of a prepared attempt is refused in time, and the shelf goes on") {
  const unsigned left = GENERATE(0U, 1U, 2U, 3U, 4U);  // each attempt takes two: it must end
  const bool abandon = GENERATE(true, false);
  CAPTURE(left, abandon);
  const Forgery forgery;
  forgery.set_mark(format::empty_mark(format::kMaxCounter - left));
  std::uint64_t version = 2;
  for (unsigned prepared = 0; prepared < left / 2; ++prepared) {
    Shelf shelf = forgery.bench.open();
    shelf.prepare({}, "g");
    shelf.close();
    shelf = forgery.bench.open();
    REQUIRE(shelf.prepared()->id == "g");
    shelf.resolve(abandon ? Decision::abandon : Decision::commit);
    version += abandon ? 0 : 1;
  }
  for (int round = 0; round < 2; ++round) {
    Shelf shelf = forgery.bench.open();
    REQUIRE_FALSE(shelf.info().recovery.degraded);
    REQUIRE(shelf.version() == version);
    const auto bytes = pattern(5000, 30 + round);
    shelf.find("a")->write(bytes);
    REQUIRE(code_of([&] { shelf.prepare({}, "g"); }) == Errc::full);
    REQUIRE_FALSE(shelf.prepared());
    REQUIRE((value(*shelf.find("a")) == bytes));  // nothing was frozen
    REQUIRE(shelf.persist().version == ++version);
  }
}

TEST_CASE("a mark that could not be ended is none") {
  const Forgery forgery;
  forgery.bench.open().prepare({}, "g");
  auto mark = format::read_mark(raw_at(*forgery.bench.medium, format::mark_at(0)), forgery.seeds, 0)
                  .value();
  mark.counter = format::kMaxCounter;
  forgery.set_mark(mark);
  REQUIRE(forgery.error_of_opening(Mode::update) == Errc::corrupt);
  REQUIRE(forgery.bench.open(Mode::read).version() == 2);
  // And repair() sees that it keeps the shelf from being written to.
  REQUIRE(repair(std::make_unique<SharedMedium>(forgery.bench.medium)).repaired);
  Shelf shelf = forgery.bench.open();
  REQUIRE_FALSE(shelf.prepared());
  REQUIRE(shelf.persist().version == 3);
}

// Of a crash between the two, either may be the older one.
TEST_CASE("of the two copies of the mark the one that was written later counts") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Medium& medium = *begun.kept.medium;
  using Page = std::vector<std::byte>;
  const auto page_of = [&](unsigned copy) {
    Page page(kPageBytes);
    medium.read(format::mark_at(copy), page);
    return page;
  };
  const auto put_back = [&](unsigned copy, const Page& page) {
    medium.wait(medium.write(format::mark_at(copy), page, 0));
  };
  std::array<Page, 2> before = {page_of(0), page_of(1)};
  const auto check = [&](bool prepared) {
    for (const unsigned copy : {0U, 1U}) {
      CAPTURE(copy, prepared);
      const Page now = page_of(copy);
      put_back(copy, before[copy]);
      CHECK(begun.kept.open(Mode::read).prepared().has_value() == prepared);
      put_back(copy, now);
      before[copy] = now;
    }
  };
  for (unsigned round = 0; round < 3; ++round) {
    CAPTURE(round);
    begun.change();
    begun.shelf.prepare(20);
    check(true);
    if (round == 1) begun.reopen();  // which counts on from what lies there
    begun.shelf.resolve(Decision::abandon);
    check(false);
  }
}
