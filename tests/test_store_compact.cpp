// Shelves that are made as small as what is in them, while they are used.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <optional>
#include <thread>

#include "kept_versions.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::chrono::duration<double> kShort(0.05);

std::vector<std::byte> value_of(const Shelf& shelf, const std::string& name) {
  return value(shelf.find(name).value());
}

std::string nth(unsigned i) { return "t" + std::to_string(i); }

// Tensors of so many bytes each, each of its own pattern, in one version.
void fill(Shelf& shelf, unsigned count, std::int64_t size) {
  for (unsigned i = 0; i < count; ++i) {
    make(shelf, nth(i), size).write(pattern(static_cast<std::size_t>(size), i));
  }
  shelf.persist(1);
}

void erase_even(Shelf& shelf, unsigned count) {
  for (unsigned i = 0; i < count; i += 2) shelf.erase(nth(i));
  shelf.persist();
}

void check_odd(const Shelf& shelf, unsigned count, std::int64_t size) {
  for (unsigned i = 1; i < count; i += 2) {
    CAPTURE(i);
    CHECK((value_of(shelf, nth(i)) == pattern(static_cast<std::size_t>(size), i)));
  }
  CHECK(shelf.verify().damage.empty());
}

std::uint64_t slots_of(unsigned count, std::int64_t size, unsigned slots) {
  return std::uint64_t{count} * slots * static_cast<std::uint64_t>(size);
}

}  // namespace

TEST_CASE("what tensors that were erased leave is given back, and the rest stays as it is") {
  const Kept kept(any_shape());
  const std::int64_t size = GENERATE(as<std::int64_t>{}, 5000, 2 * kMiB + 1000);
  const unsigned count = size > 10'000 ? 6 : 200;
  {
    Shelf shelf = kept.open();
    fill(shelf, count, size);
    erase_even(shelf, count);
    const std::uint64_t before = kept.medium->size();
    const CompactReport report = shelf.compact();
    CHECK(report.bytes_before > report.bytes_after);
    CHECK(report.damaged.empty());
    CHECK(report.bytes_after <= kept.medium->size());
    CHECK(kept.medium->size() < before);
    const unsigned slots = 1 + kept.shape.keep + kept.shape.in_flight;
    const std::uint64_t content = slots_of(count / 2, (size + 4095) / 4096 * 4096, slots);
    CHECK(kept.medium->size() <= content + content / 20 + 2 * kMiB);
    CHECK(shelf.step() == 1);
    check_odd(shelf, count, size);
    CHECK_FALSE(shelf.has_uncommitted());
    // Once more there is nothing to do.
    const CompactReport again = shelf.compact();
    CHECK(again.bytes_moved == 0);
    CHECK(again.bytes_copied == 0);
    CHECK(again.bytes_after == report.bytes_after);
  }
  Shelf shelf = kept.open();
  check_odd(shelf, count, size);
  // And it grows again.
  fill(shelf, 1, size);
  CHECK((value_of(shelf, nth(0)) == pattern(static_cast<std::size_t>(size), 0)));
  check_odd(shelf, count, size);
}

TEST_CASE("older versions, and what is rolled back to, stay as they are") {
  const Kept kept({.keep = 3, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  const std::int64_t size = 20'000;
  {
    Shelf shelf = kept.open();
    fill(shelf, 40, size);
    TensorRef w = shelf.find(nth(1)).value();
    erase_even(shelf, 40);
    w.write(pattern(size, 100));
    shelf.persist(3);
    w.write(pattern(size, 101));
    shelf.persist(4);
    static_cast<void>(shelf.compact());
    CHECK((value(w) == pattern(size, 101)));
    for (unsigned i = 0; i < 4; ++i) {
      w.write(pattern(size, 200 + i));
      shelf.persist();
    }
    const std::uint64_t newest = shelf.version();
    make(shelf, "new", 4000).write(pattern(4000, 7));
    shelf.persist();
    for (unsigned back = 0; back < 3; ++back) {
      CHECK((value_at(shelf, newest - back, nth(1)) == pattern(size, 203 - back)));
    }
    shelf.rollback(newest - 2);
    CHECK((value(w) == pattern(size, 201)));
    CHECK((value_at(shelf, newest, nth(1)) == pattern(size, 203)));
  }
  Shelf shelf = kept.open();
  CHECK((value_of(shelf, nth(1)) == pattern(size, 201)));
  CHECK(shelf.info().recovery.dropped.empty());
}

TEST_CASE("changes that nobody commits are waited for, and neither lost nor committed") {
  const Kept kept({.keep = 0,
                   .in_flight = 1,
                   .mapped = true,
                   .placement = GENERATE(Placement::whole, Placement::by_chunk)});
  Shelf shelf = kept.open();
  fill(shelf, 10, 30'000);
  erase_even(shelf, 10);
  shelf.find(nth(1))->write(pattern(100, 50), 8);
  const auto expected = value_of(shelf, nth(1));
  const std::uint64_t version = shelf.version();
  CHECK(code_of([&] { shelf.compact(kShort); }) == Errc::uncommitted);
  CHECK(shelf.version() == version);
  CHECK((value_of(shelf, nth(1)) == expected));
  CHECK((value(shelf.find(nth(1)).value(), true) == pattern(30'000, 1)));
  SECTION("they are committed") {
    shelf.persist();
    CHECK((value_of(shelf, nth(1)) == expected));
  }
  SECTION("they are dropped") {
    shelf.discard();
    CHECK((value_of(shelf, nth(1)) == pattern(30'000, 1)));
  }
  SECTION("the tensor is erased with them") {
    shelf.erase(nth(1));
    shelf.discard();
    CHECK((value_of(shelf, nth(1)) == pattern(30'000, 1)));
  }
  static_cast<void>(shelf.compact());
  const auto now = value_of(shelf, nth(1));
  shelf = kept.open();
  CHECK((value_of(shelf, nth(1)) == now));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a lease shows what it showed, and is in nobody's way") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  fill(shelf, 4, kMiB);
  const Lease lease = shelf.find(nth(1))->lease();
  REQUIRE(lease.in_place());
  erase_even(shelf, 4);
  for (unsigned i = 0; i < 3; ++i) {
    shelf.find(nth(1))->write(pattern(kMiB, 10 + i));
    shelf.persist();
  }
  static_cast<void>(shelf.compact());
  make(shelf, "new", kMiB).write(pattern(kMiB, 99));
  shelf.persist();
  const auto shown = lease.bytes();
  const auto expected = pattern(kMiB, 1);
  CHECK(std::equal(shown.begin(), shown.end(), expected.begin(), expected.end()));
  CHECK((value_of(shelf, nth(1)) == pattern(kMiB, 12)));
}

TEST_CASE("a lease of what is erased behind a move keeps its place") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  fill(shelf, 10, 30'000);
  erase_even(shelf, 10);
  for (unsigned i = 0; i < 3; ++i) shelf.persist();
  shelf.find(nth(1))->write(pattern(8, 50), 8);
  REQUIRE(code_of([&] { shelf.compact(kShort); }) == Errc::uncommitted);  // slots lie elsewhere
  shelf.erase(nth(9));
  const Lease lease = shelf.at(shelf.version()).find(nth(9))->lease();
  REQUIRE(lease.in_place());
  for (unsigned i = 0; i < 4; ++i) shelf.persist();
  for (unsigned i = 20; i < 40; ++i) make(shelf, nth(i), 30'000).write(pattern(30'000, i));
  shelf.persist();
  const auto shown = lease.bytes();
  const auto expected = pattern(30'000, 9);
  CHECK(std::equal(shown.begin(), shown.end(), expected.begin(), expected.end()));
}

TEST_CASE("a lease of a version that somebody kept holds what was moved and erased since") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  fill(shelf, 10, 30'000);
  erase_even(shelf, 10);
  const std::uint64_t version = shelf.version();
  std::optional<VersionPin> pin = shelf.pin();
  const CompactReport report = shelf.compact();
  REQUIRE(report.bytes_moved > 0);
  shelf.erase(nth(9));
  for (unsigned i = 0; i < 4; ++i) shelf.persist();  // with its last places no version has it now
  const Lease lease = shelf.at(version).find(nth(9))->lease();
  REQUIRE(lease.in_place());
  pin.reset();
  for (unsigned i = 0; i < 4; ++i) shelf.persist();
  for (unsigned i = 20; i < 40; ++i) make(shelf, nth(i), 30'000).write(pattern(30'000, i));
  shelf.persist();
  const auto shown = lease.bytes();
  const auto expected = pattern(30'000, 9);
  CHECK(std::equal(shown.begin(), shown.end(), expected.begin(), expected.end()));
}

TEST_CASE("beside threads that assign, commit and read it comes to its end") {
  const bool mapped = GENERATE(true, false);
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const bool in_background = GENERATE(false, true);
  const Kept kept({.keep = 1, .in_flight = 2, .mapped = mapped, .placement = placement});
  Shelf shelf = kept.open();
  const std::int64_t size = kMiB + 100;
  fill(shelf, 12, size);
  std::atomic<bool> ends = false;
  std::atomic<std::uint64_t> commits = 0;
  erase_even(shelf, 12);
  std::thread trainer([&] {
    TensorRef hot = shelf.find(nth(1)).value();
    TensorRef warm = shelf.find(nth(3)).value();
    for (unsigned i = 0; !ends; ++i) {
      hot.write(pattern(static_cast<std::size_t>(size), i));
      warm.write(pattern(64, i), 8);
      if (in_background) {
        shelf.persist_async(i);
      } else {
        shelf.persist(i);
      }
      ++commits;
    }
  });
  std::thread reader([&] {
    const TensorRef cold = shelf.find(nth(5)).value();
    while (!ends) {
      if (value(cold) != pattern(static_cast<std::size_t>(size), 5)) std::abort();
      static_cast<void>(shelf.find(nth(1))->lease_committed());
    }
  });
  while (commits == 0) std::this_thread::yield();
  const std::uint64_t slots = 4 * 6 * round_up(static_cast<std::uint64_t>(size), kPageBytes);
  const std::uint64_t small = slots + slots / 20 + kMiB;
  CompactReport report = shelf.compact();
  CHECK(report.bytes_after < report.bytes_before);
  // What a trainer that never rests was assigning all the while may have stayed: another run.
  for (int again = 0; again < 3 && report.bytes_after > small; ++again) report = shelf.compact();
  ends = true;
  trainer.join();
  reader.join();
  shelf.persist();  // behind all that is on its way
  CHECK(report.bytes_after <= small);
  CHECK(shelf.verify().damage.empty());
  const auto hot = value_of(shelf, nth(1));
  shelf = kept.open();
  CHECK((value_of(shelf, nth(1)) == hot));
  for (const unsigned i : {5U, 7U, 9U, 11U}) {
    CHECK((value_of(shelf, nth(i)) == pattern(static_cast<std::size_t>(size), i)));
  }
}

TEST_CASE("a reader beside shows versions as they are, or says that they are gone") {
  const bool mapped = GENERATE(true, false);
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = mapped, .placement = Placement::whole});
  Shelf shelf = kept.open();
  const std::int64_t size = 50'000;
  fill(shelf, 20, size);
  Shelf reader = kept.open(Mode::read);
  const TensorRef held = reader.find(nth(5)).value();
  erase_even(shelf, 20);
  static_cast<void>(shelf.compact());
  // What it still shows is overtaken by now.
  std::vector<std::byte> bytes(size);
  if (const auto error = error_of([&] { held.read(bytes); })) {
    CHECK(error->code() == Errc::stale);
  } else {
    CHECK(bytes == pattern(size, 5));
  }
  CHECK(reader.refresh());
  check_odd(reader, 20, size);
  CHECK((value(held) == pattern(size, 5)));
  CHECK_FALSE(reader.find(nth(0)));
}

TEST_CASE("what was prepared by a shelf that is opened anew lies where it was moved to") {
  const Decision decision = GENERATE(Decision::commit, Decision::abandon);
  const Kept kept({.keep = 1, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf shelf = kept.open();
    fill(shelf, 10, 30'000);
    erase_even(shelf, 10);
    for (unsigned i = 0; i < 3; ++i) shelf.persist();
    shelf.find(nth(3))->write(pattern(30'000, 60));
    CHECK(code_of([&] { shelf.compact(kShort); }) == Errc::uncommitted);
    shelf.find(nth(5))->write(pattern(30'000, 61));
    shelf.prepare(9, "job");
  }
  Shelf shelf = kept.open();
  CHECK(code_of([&] { shelf.compact(kShort); }) == Errc::unresolved);
  CHECK((value_of(shelf, nth(1)) == pattern(30'000, 1)));
  shelf.resolve(decision);
  const bool there = decision == Decision::commit;
  CHECK((value_of(shelf, nth(3)) == pattern(30'000, there ? 60 : 3)));
  CHECK((value_of(shelf, nth(5)) == pattern(30'000, there ? 61 : 5)));
  static_cast<void>(shelf.compact());
  for (unsigned i = 0; i < 3; ++i) {
    shelf.find(nth(3))->write(pattern(30'000, 70 + i));
    shelf.persist();
  }
  shelf = kept.open();
  CHECK((value_of(shelf, nth(3)) == pattern(30'000, 72)));
  CHECK((value_of(shelf, nth(5)) == pattern(30'000, there ? 61 : 5)));
  CHECK((value_of(shelf, nth(1)) == pattern(30'000, 1)));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a file is as short as what is in it") {
  const bool memory = GENERATE(true, false);
  const scratch::Directory folder(memory ? "/dev/shm" : std::filesystem::temp_directory_path());
  const auto path = folder / "run.shelf";
  const std::int64_t size = kMiB;
  {
    Shelf shelf = Shelf::open(path);
    fill(shelf, 20, size);
    erase_even(shelf, 20);
    static_cast<void>(shelf.compact());
    const std::uint64_t content = slots_of(10, size, 2);
    CHECK(std::filesystem::file_size(path) <= content + content / 20 + kMiB);
    check_odd(shelf, 20, size);
  }
  const Shelf shelf = Shelf::open(path, {.mode = Mode::update});
  check_odd(shelf, 20, size);
}

TEST_CASE("it may be closed by another thread in the middle") {
  for (unsigned round = 0; round < 20; ++round) {
    const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
    Shelf shelf = kept.open();
    fill(shelf, 8, 40'000);
    erase_even(shelf, 8);
    std::atomic<bool> begun = false;
    std::thread compacts([&] {
      begun = true;
      for (;;) {
        const auto error = error_of([&] { shelf.compact(); });
        if (!error) continue;
        if (error->code() != Errc::closed) std::abort();
        return;
      }
    });
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    shelf.close();
    compacts.join();
    check_odd(kept.open(), 8, 40'000);
  }
}

TEST_CASE("it is refused where it may not be called") {
  const Bench bench;
  {
    Shelf shelf = bench.open();
    make(shelf, "a", 100).write(pattern(100, 1));
    shelf.persist();
  }
  Shelf reader = bench.open(Mode::read);
  CHECK(code_of([&] { reader.compact(); }) == Errc::read_only);
  reader.close();
  Shelf shelf = bench.open();
  {
    TensorRef a = shelf.find("a").value();
    const Assignment assignment = a.assign();
    CHECK(code_of([&] { shelf.compact(); }) == Errc::unsupported);
  }
  {
    const Transaction transaction = shelf.transaction();
    make(shelf, "b", 100);
    shelf.erase("a");
    CHECK((code_of([&] { shelf.compact(kShort); }) == Errc::transaction));
  }
  CHECK(code_of([&] { shelf.compact(-kShort); }) == Errc::bad_argument);
  CHECK(code_of([&] { shelf.compact(kShort * std::nan("")); }) == Errc::bad_argument);
  shelf.close();
  CHECK(code_of([&] { shelf.compact(); }) == Errc::closed);
}

TEST_CASE("compact() moves no slot of a version that is on its way") {
  const Kept kept({.keep = 0,
                   .in_flight = 2,
                   .mapped = GENERATE(true, false),
                   .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  fill(shelf, 4, 300'000);
  erase_even(shelf, 4);
  for (int i = 0; i < 2; ++i) shelf.persist();
  kept.doors->barrier.shut();
  shelf.find(nth(3))->write(pattern(300'000, 77));
  const auto pending = shelf.persist_async();
  kept.doors->barrier.await_someone();
  Waiter compacting([&] { shelf.compact(); });
  CHECK(compacting.waits());
  kept.doors->barrier.open();
  compacting.join();
  CHECK(shelf.verify().damage.empty());
  shelf.close();
  CHECK((value_of(kept.open(), nth(3)) == pattern(300'000, 77)));
}

TEST_CASE("compact() copies no value whose view keeps it where it is") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  fill(shelf, 2, 300'000);
  const Lease lease = shelf.find(nth(1))->lease_committed();
  REQUIRE(lease.in_place());
  erase_even(shelf, 2);
  for (int i = 0; i < 2; ++i) shelf.persist();
  CHECK(shelf.compact().bytes_copied == 0);
}
