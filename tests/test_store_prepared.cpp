// What is prepared, found by whoever opens the shelf next; and where it, or its mark, is damaged.
#include <array>
#include <cstring>

#include <tensorshelf/repair.hpp>

#include "begun_shelf.hpp"
#include "cached_disk.hpp"
#include "raw_pages.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

void damage(Medium& medium, std::uint64_t at, std::size_t byte = 100) {
  std::vector<std::byte> page(kPageBytes);
  medium.read(at, page);
  page[byte] ^= std::byte{1};
  medium.wait(medium.write(at, page, 0));
}

// A page that holds `bytes` somewhere in the medium, from `from` on.
std::uint64_t find_page(Medium& medium, std::span<const std::byte> bytes) {
  std::vector<std::byte> page(kPageBytes);
  for (std::uint64_t at = 0; at < medium.size(); at += kPageBytes) {
    medium.read(at, page);
    if (std::equal(bytes.begin(), bytes.end(), page.begin())) return at;
  }
  FAIL("not on the medium");
  return 0;
}

}  // namespace

TEST_CASE("opening finds what is prepared, and refuses changes until it is decided") {
  const Shape shape = any_shape();
  const bool commit = GENERATE(true, false);
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement), commit);
  Begun begun(shape);
  Shelf& shelf = begun.shelf;
  begun.change();
  const std::string id("\0\xFF id", 5);
  shelf.prepare(20, id);
  for (int times = 0; times < 2; ++times) {  // opening decides nothing
    begun.reopen();
    begun.check_first(shelf);
    REQUIRE(shelf.prepared());
    CHECK(shelf.prepared()->id == id);
    CHECK(shelf.info().recovery.prepared->version == 2);
    CHECK_FALSE(shelf.info().recovery.interrupted);
    CHECK(code_of([&] { begun.w.write(pattern(8, 1)); }) == Errc::unresolved);
    CHECK(code_of([&] { make(shelf, "x", 8); }) == Errc::unresolved);
    CHECK(code_of([&] { shelf.erase("w"); }) == Errc::unresolved);
    CHECK(code_of([&] { shelf.persist(1); }) == Errc::unresolved);
    CHECK(code_of([&] { shelf.persist_async(1); }) == Errc::unresolved);
    CHECK(code_of([&] { shelf.prepare(1); }) == Errc::unresolved);
    CHECK(code_of([&] { shelf.discard(); }) == Errc::unresolved);
    CHECK(code_of([&] { return shelf.transaction(); }) == Errc::unresolved);
    CHECK(code_of([&] { shelf.rollback(1); }) == Errc::unresolved);
  }
  if (commit) {
    TensorRef old = shelf.find("old").value();
    CHECK(shelf.resolve(Decision::commit).commit->version == 2);
    begun.check_second(shelf);
    CHECK(code_of([&] { old.write(pattern(8, 1)); }) == Errc::unknown_name);
    CHECK((value(begun.w) == Begun::changed()));  // handles stay with their tensors
    CHECK(shelf.versions().size() == std::min<std::size_t>(3, shape.keep + 1));
  } else {
    shelf.resolve(Decision::abandon);
    begun.check_first(shelf);
  }
  CHECK_FALSE(shelf.prepared());
  const std::uint64_t version = shelf.version();
  begun.w.write(pattern(kBegunBytes, 5));
  make(shelf, "x", 300'000).write(pattern(300'000, 6));
  CHECK(shelf.persist(50).version == version + 1);
  begun.reopen();
  CHECK_FALSE(shelf.prepared());
  CHECK((value(begun.w) == pattern(kBegunBytes, 5)));
  CHECK((value(shelf.find("x").value()) == pattern(300'000, 6)));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a prepared attempt whose data is damaged is not committed, and can be abandoned") {
  const bool manifest = GENERATE(true, false);
  CAPTURE(manifest);
  Begun begun({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.w.write(pattern(kBegunBytes, 2));
  begun.shelf.prepare(20, "g");
  begun.shelf.close();
  Medium& medium = *begun.kept.medium;
  if (manifest) {
    const auto root = format::load<format::Root>(raw_at(medium, format::root_at(2 % 3, 0)));
    for (const std::uint64_t at : root.pages[0].at) damage(medium, at);
  } else {
    damage(medium, find_page(medium, pattern(kPageBytes, 2)));
  }
  Shelf shelf = begun.kept.open();
  begun.check_first(shelf);
  CHECK(shelf.prepared()->id == "g");
  CHECK_FALSE(shelf.info().recovery.degraded);
  CHECK(code_of([&] { shelf.resolve(Decision::commit); }) == Errc::corrupt);
  CHECK(code_of([&] { shelf.find("w")->write(pattern(8, 1)); }) == Errc::unresolved);
  CHECK(shelf.prepared());
  shelf.resolve(Decision::abandon);
  begun.check_first(shelf);
  shelf.find("w")->write(pattern(kBegunBytes, 3));
  CHECK(shelf.persist(20).version == 2);
  shelf.close();
  shelf = begun.kept.open();
  CHECK((value(shelf.find("w").value()) == pattern(kBegunBytes, 3)));
}

TEST_CASE("one damaged copy of the mark, or of the home, loses no prepared attempt") {
  const unsigned copy = GENERATE(0U, 1U);
  const bool home = GENERATE(true, false);
  CAPTURE(copy, home);
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.change();
  begun.shelf.prepare(20, "g");
  begun.shelf.close();
  const auto place = [&](unsigned which) {
    return home ? format::root_at(0, which) : format::mark_at(which);
  };
  damage(*begun.kept.medium, place(copy));
  {
    const Shelf reader = begun.kept.open(Mode::read);
    begun.check_first(reader);
    CHECK(reader.prepared());
    CHECK_FALSE(reader.info().recovery.degraded);
  }
  Shelf shelf = begun.kept.open();
  CHECK(shelf.prepared());
  CHECK_FALSE(shelf.info().recovery.degraded);
  CHECK(shelf.info().recovery.repaired_copies == 1);
  shelf.close();
  damage(*begun.kept.medium, place(1 - copy));  // the other one: the first was written anew
  shelf = begun.kept.open();
  REQUIRE(shelf.prepared());
  CHECK(shelf.prepared()->id == "g");
  const auto [found, commit] = shelf.resolve(Decision::commit);
  CHECK(found);
  CHECK(commit->version == 2);
  begun.check_second(shelf);
  shelf.close();
  begun.check_second(begun.kept.open());
}

TEST_CASE("where both copies of the mark are lost, only repair() goes on") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.change();
  begun.shelf.prepare(20, "g");
  begun.shelf.close();
  Medium& medium = *begun.kept.medium;
  for (const unsigned copy : {0U, 1U}) damage(medium, format::mark_at(copy));
  CHECK(code_of([&] { begun.kept.open(); }) == Errc::corrupt);
  begun.check_first(begun.kept.open(Mode::read));
  const RepairReport report =
      repair(std::make_unique<SharedMedium>(begun.kept.medium), begun.kept.options());
  CHECK(report.repaired);
  CHECK(report.version == 1);
  begun.reopen();
  CHECK_FALSE(begun.shelf.prepared());
  begun.check_first(begun.shelf);
  begun.change();
  begun.shelf.prepare(20, "h");
  begun.reopen();
  CHECK(begun.shelf.prepared()->id == "h");
}

TEST_CASE("a mark is no other attempt's, and not of a version that is there") {
  Begun begun({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Medium& medium = *begun.kept.medium;
  std::array<std::vector<std::byte>, 2> mark;
  begun.w.write(pattern(kBegunBytes, 2));
  begun.shelf.prepare(20, "g");
  for (const unsigned copy : {0U, 1U}) {
    mark[copy].resize(kPageBytes);
    medium.read(format::mark_at(copy), mark[copy]);
  }
  const auto put_back = [&] {
    for (const unsigned copy : {0U, 1U}) {
      medium.wait(medium.write(format::mark_at(copy), mark[copy], 0));
    }
  };
  SECTION("committed") {
    begun.shelf.resolve(Decision::commit);
    CHECK_FALSE(begun.kept.open(Mode::read).prepared());
  }
  SECTION("abandoned, and another attempt in its home") {
    CHECK_FALSE(begun.shelf.resolve(Decision::abandon).found);
    begun.w.write(pattern(kBegunBytes, 3));
    begun.shelf.prepare(20, "other");
    put_back();
    CHECK_FALSE(begun.kept.open(Mode::read).prepared());
  }
  SECTION("another opening's attempt, of the same sequence") {
    begun.shelf.resolve(Decision::abandon);
    begun.reopen();
    begun.w.write(pattern(kBegunBytes, 3));
    begun.shelf.prepare(20, "other");
    put_back();
    CHECK_FALSE(begun.kept.open(Mode::read).prepared());
  }
  begun.shelf.close();
  CHECK_FALSE(begun.kept.open().prepared());
  // And one that means nothing is void from the next opening for writing on.
  const auto left = format::load<format::PreparedMark>(raw_at(medium, format::mark_at(0)));
  CHECK(left.version == 0);
}

TEST_CASE("what a prepared attempt copied forward is looked at before it is committed") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.w.write(pattern(100, 2));  // in chunk 0: the others are copied
  begun.shelf.prepare(20);
  const auto copied = pattern(kBegunBytes, 1);
  const Lease lease = begun.w.lease();
  REQUIRE(lease.in_place());
  const auto all = begun.kept.medium->view({0, begun.kept.medium->size()});
  const auto at = static_cast<std::uint64_t>(lease.bytes().data() - all.data()) + kMiB;
  begun.shelf.close();
  damage(*begun.kept.medium, at);
  Shelf shelf = begun.kept.open();
  CHECK(code_of([&] { shelf.resolve(Decision::commit); }) == Errc::corrupt);
  shelf.resolve(Decision::abandon);
  begun.check_first(shelf);
}

TEST_CASE("what cannot be read for a moment is not to be abandoned for it") {
  const bool manifest = GENERATE(true, false);
  CAPTURE(manifest);
  auto disk = std::make_shared<CachedDisk>();
  {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  const auto open = [&] {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = Mode::update});
  };
  {
    Shelf shelf = open();
    make(shelf, "w", 5000);
    shelf.persist(1);
    shelf.find("w")->write(pattern(5000, 2));
    shelf.prepare(2);
  }
  format::Root root;
  std::memcpy(&root, disk->visible.data() + format::root_at(0, 0), sizeof root);
  if (manifest) {
    for (const std::uint64_t at : root.pages[0].at) disk->unreadable[at] = EIO;
  } else {
    const auto value = pattern(5000, 2);
    const auto there = std::search(disk->visible.begin(), disk->visible.end(), value.begin(),
                                   value.begin() + kPageBytes);
    disk->unreadable[static_cast<std::uint64_t>(there - disk->visible.begin())] = EIO;
  }
  {
    Shelf shelf = open();
    const auto error = error_of([&] { shelf.resolve(Decision::commit); });
    REQUIRE(error);
    CHECK(error->code() == Errc::corrupt);
    CHECK(error->os_error() == EIO);
    CHECK(error->remedy().find("may pass") != std::string::npos);
    CHECK(shelf.prepared());
  }
  disk->unreadable.clear();
  Shelf shelf = open();
  CHECK(shelf.resolve(Decision::commit).commit->version == 2);
  CHECK((value(shelf.find("w").value()) == pattern(5000, 2)));
}

TEST_CASE("what is prepared on a medium that was cut short since can be abandoned alone") {
  const auto disk = std::make_shared<CachedDisk>();
  {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  const auto open = [&] {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = Mode::update});
  };
  std::uint64_t before = 0;
  {
    Shelf shelf = open();
    make(shelf, "w", 5000).write(pattern(5000, 1));
    shelf.persist(1);
    before = disk->visible.size();
    make(shelf, "large", 3 * kMiB).write(pattern(3 * kMiB, 2));
    shelf.prepare(2);
    REQUIRE(disk->visible.size() > before);
  }
  disk->visible.resize(before);
  Shelf shelf = open();
  REQUIRE(shelf.prepared());
  CHECK(shelf.info().recovery.repaired_copies == 0);
  const auto error = error_of([&] { shelf.resolve(Decision::commit); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(error->os_error() == 0);
  CHECK(contains(error->what(), "the medium is shorter than what it spans"));
  shelf.resolve(Decision::abandon);
  CHECK((value(shelf.find("w").value()) == pattern(5000, 1)));
  make(shelf, "large", 3 * kMiB).write(pattern(3 * kMiB, 3));
  CHECK(shelf.persist(2).version == 2);
}

TEST_CASE("an attempt that was abandoned is none that was interrupted") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.change();
  begun.shelf.prepare(20);
  begun.shelf.resolve(Decision::abandon);
  begun.reopen();
  CHECK_FALSE(begun.shelf.info().recovery.interrupted);
  begun.change();
  begun.shelf.prepare(20);
  begun.reopen();
  CHECK_FALSE(begun.shelf.info().recovery.interrupted);
  begun.shelf.resolve(Decision::abandon);
  begun.reopen();
  CHECK_FALSE(begun.shelf.info().recovery.interrupted);
}

TEST_CASE("the split of what is prepared is that of the shelf once it is committed") {
  Begun begun({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.shelf.close();
  OpenOptions options = begun.kept.options();
  options.keep = 0;
  options.in_flight = 3;
  begun.shelf = begun.kept.open(options);
  begun.w = begun.shelf.find("w").value();
  begun.change();
  begun.shelf.prepare(20);
  begun.shelf.close();
  options.keep = options.in_flight = std::nullopt;
  const bool asked = GENERATE(false, true);  // for yet another one, by who commits it
  CAPTURE(asked);
  if (asked) options.keep = 1;
  Shelf shelf = begun.kept.open(options);
  CHECK(shelf.info().keep == (asked ? 1 : 2));
  shelf.resolve(Decision::commit);
  CHECK(shelf.info().keep == (asked ? 1 : 0));
  CHECK(shelf.info().in_flight == (asked ? 2 : 3));
  shelf.persist(30);
  CHECK(shelf.versions().size() == (asked ? 2 : 1));
  shelf.close();
  options.keep = std::nullopt;
  shelf = begun.kept.open(options);
  CHECK(shelf.info().keep == (asked ? 1 : 0));
}

TEST_CASE("what is prepared may lie where the shelf has grown for it") {
  const bool commit = GENERATE(true, false);
  CAPTURE(commit);
  constexpr std::uint64_t size = 8 * kMiB;
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  const std::uint64_t before = begun.shelf.info().capacity_bytes;
  make(begun.shelf, "large", size).write(pattern(size, 2));
  begun.shelf.prepare(20);
  begun.reopen();
  Shelf& shelf = begun.shelf;
  begun.check_first(shelf);
  REQUIRE(shelf.prepared());
  CHECK_FALSE(shelf.info().recovery.degraded);
  const std::uint64_t capacity = shelf.info().capacity_bytes;
  CHECK(capacity >= before + 2 * size);
  shelf.resolve(commit ? Decision::commit : Decision::abandon);
  make(shelf, "other", size).write(pattern(size, 3));  // beside it, or in its place
  shelf.persist(30);
  CHECK((shelf.info().capacity_bytes == capacity) == !commit);
  begun.reopen();
  CHECK(shelf.find("large").has_value() == commit);
  if (commit) CHECK((value(shelf.find("large").value()) == pattern(size, 2)));
  CHECK((value(shelf.find("other").value()) == pattern(size, 3)));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a second repair gives out no incarnation that a prepared attempt has") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  const auto lose = [&] {
    begun.shelf.close();
    for (const unsigned copy : {0U, 1U}) {
      damage(*begun.kept.medium, format::incarnation_at(copy), 0);
    }
    repair(std::make_unique<SharedMedium>(begun.kept.medium), begun.kept.options());
  };
  lose();
  begun.reopen();
  const std::uint64_t writer = begun.shelf.info().incarnation;
  begun.change();
  begun.shelf.prepare(20);
  lose();
  CHECK(begun.kept.open().info().incarnation > writer + 1);
}
