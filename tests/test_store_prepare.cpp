// Commits in two halves: prepared, then committed or abandoned by whoever asked for it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "asleep.hpp"
#include "begun_shelf.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("what is prepared becomes a version when it is committed, and not before") {
  const Shape shape = any_shape();
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement));
  Begun begun(shape);
  Shelf& shelf = begun.shelf;
  CHECK_FALSE(shelf.prepared());
  begun.change();
  const Prepared made = shelf.prepare(20, "group 7");
  CHECK(made.version == 2);
  CHECK(made.step == 20);
  CHECK(made.id == "group 7");
  CHECK(made.data_bytes == 500 + 5000);
  CHECK(shelf.version() == 1);
  CHECK(shelf.step() == 10);
  CHECK(shelf.prepared()->id == "group 7");
  CHECK(begun.w.info().pending == 2);
  CHECK(begun.w.info().version == 1);
  CHECK((value(begun.w, true) == pattern(kBegunBytes, 1)));
  Shelf follows = begun.kept.open(Mode::read);
  {
    const Shelf reader = begun.kept.open(Mode::read);
    begun.check_first(reader);
    REQUIRE(reader.prepared());
    CHECK(reader.prepared()->id == "group 7");
    CHECK(reader.prepared()->version == 2);
    CHECK(reader.prepared()->step == 20);
    CHECK(reader.prepared()->data_bytes == 500 + 5000);
    CHECK_FALSE(reader.info().recovery.interrupted);
    CHECK_FALSE(reader.info().recovery.degraded);
  }
  const auto [found, commit] = shelf.resolve(Decision::commit);
  CHECK_FALSE(found);
  REQUIRE(commit);
  CHECK(commit->version == 2);
  CHECK(commit->step == 20);
  CHECK(commit->data_bytes == 500 + 5000);
  CHECK(commit->metadata_bytes > 0);
  CHECK_FALSE(shelf.prepared());
  CHECK(follows.prepared());
  CHECK(follows.refresh());
  CHECK_FALSE(follows.prepared());
  begun.check_second(shelf);
  CHECK(code_of([&] { shelf.resolve(Decision::commit); }) == Errc::bad_argument);
  CHECK(code_of([&] { shelf.resolve(Decision::abandon); }) == Errc::bad_argument);
  begun.w.write(pattern(8, 3));
  CHECK(shelf.persist(30).version == 3);
  CHECK(shelf.stats().commits == 3);
  begun.reopen();
  CHECK(shelf.version() == 3);
  CHECK_FALSE(shelf.prepared());
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("what is prepared can be read by its number, and stays so when it is committed") {
  const Shape shape = any_shape();
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement));
  Begun begun(shape);
  Shelf& shelf = begun.shelf;
  begun.change();
  const std::uint64_t number = shelf.prepare(20, "x").version;
  const RetainedVersion prepared = shelf.at(number);
  CHECK(prepared.info().step == 20);
  CHECK(prepared.names() == std::vector<std::string>{"made", "w"});
  CHECK((value_at(shelf, number, "w") == Begun::changed()));
  CHECK(shelf.diff(1, number).created == std::vector<std::string>{"made"});
  CHECK(shelf.diff(1, number).changed.size() == 1);
  CHECK(shelf.versions().back().version == 1);  // it is none of them
  CHECK(code_of([&] { shelf.pin(number); }) == Errc::stale);
  CHECK(code_of([&] { shelf.rollback(number); }) == Errc::unresolved);
  if (shape.keep + shape.in_flight > 1) begun.w.write(pattern(500, 3));  // behind it
  CHECK((value_at(shelf, number, "w") == Begun::changed()));
  shelf.resolve(Decision::commit);
  CHECK((value_at(shelf, number, "w") == Begun::changed()));
}

TEST_CASE("what was prepared and abandoned is read no more") {
  Begun begun(any_shape());
  begun.change();
  const RetainedVersion prepared = begun.shelf.at(begun.shelf.prepare(20, "x").version);
  begun.shelf.resolve(Decision::abandon);
  CHECK(code_of([&] { prepared.info(); }) == Errc::stale);
  CHECK(code_of([&] { begun.shelf.at(2); }) == Errc::stale);
}

TEST_CASE("what opening found prepared can be read before it is decided") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.change();
  begun.shelf.prepare(20, "x");
  begun.reopen();
  CHECK((value_at(begun.shelf, 2, "w") == Begun::changed()));
}

TEST_CASE("what is abandoned was never there") {
  const Shape shape = any_shape();
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement));
  Begun begun(shape);
  Shelf& shelf = begun.shelf;
  const std::uint64_t free = shelf.free_bytes();
  for (unsigned round = 0; round < 3; ++round) {
    begun.change();
    const TensorRef made = shelf.find("made").value();
    shelf.prepare(20, "x");
    const auto [found, commit] = shelf.resolve(Decision::abandon);
    CHECK_FALSE(found);
    CHECK_FALSE(commit);
    begun.check_first(shelf);
    CHECK_FALSE(shelf.prepared());
    CHECK(code_of([&] { value(made); }) == Errc::unknown_name);
    begun.check_first(begun.kept.open(Mode::read));
    CHECK_FALSE(begun.kept.open(Mode::read).prepared());
  }
  CHECK(shelf.free_bytes() + kMiB >= free);
  // The number comes again, and so may the slots: nothing of the abandoned one passes for it.
  auto expected = pattern(kBegunBytes, 1);
  const auto part = pattern(8, 9);
  begun.w.write(part, 0);
  std::copy(part.begin(), part.end(), expected.begin());
  CHECK(shelf.persist(30).version == 2);
  CHECK((value(begun.w) == expected));
  begun.w.write(part, 8);
  std::copy(part.begin(), part.end(), expected.begin() + 8);
  shelf.persist(31);
  begun.reopen();
  CHECK((value(begun.w) == expected));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("what is abandoned takes no value along that need not be copied again") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf& shelf = begun.shelf;
  auto expected = pattern(kBegunBytes, 2);
  begun.w.write(expected);
  shelf.persist(20);
  const auto change = [&](unsigned seed) {
    const auto part = pattern(100, seed);
    begun.w.write(part, kMiB);
    return part;
  };
  change(3);
  shelf.prepare(30);
  const std::uint64_t copied = shelf.stats().bytes_copied_forward;
  CHECK(copied == kBegunBytes - kMiB);  // the chunks that it was not assigned
  shelf.resolve(Decision::abandon);
  const auto part = change(4);
  shelf.persist(30);
  CHECK(shelf.stats().bytes_copied_forward == copied);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB);
  CHECK((value(begun.w, true) == expected));
  begun.reopen();
  CHECK((value(begun.w) == expected));
}

TEST_CASE("what was staged, erased and abandoned is not taken for a later value") {
  Begun begun({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  begun.w.write(pattern(kBegunBytes, 2));
  std::optional<Lease> lease = begun.w.lease();  // so that version 2 takes another slot
  begun.shelf.erase("w");
  begun.shelf.prepare(20);
  begun.shelf.resolve(Decision::abandon);
  begun.check_first(begun.shelf);
  auto expected = pattern(kBegunBytes, 3);
  begun.w.write(expected);
  begun.shelf.persist(20);
  lease.reset();
  for (unsigned version = 3; version <= 6; ++version) {
    const auto part = pattern(10, version);
    begun.w.write(part, kMiB);
    std::copy(part.begin(), part.end(), expected.begin() + kMiB);
    CHECK(begun.shelf.persist(version).version == version);
    CHECK((value(begun.w, true) == expected));
  }
  begun.reopen();
  CHECK((value(begun.w) == expected));
}

TEST_CASE("behind what is prepared one can assign, and not commit") {
  const bool mapped = GENERATE(true, false);
  const bool commit = GENERATE(true, false);
  CAPTURE(mapped, commit);
  const auto placement = mapped ? Placement::whole : Placement::by_chunk;
  Begun begun({.keep = 0, .in_flight = 1, .mapped = mapped, .placement = placement});
  Shelf& shelf = begun.shelf;
  TensorRef old = shelf.find("old").value();
  begun.w.write(pattern(kBegunBytes, 2));
  shelf.prepare(20);
  old.write(pattern(100, 3));  // which the attempt left as it is
  const auto error = error_of([&] { begun.w.write(pattern(8, 4)); });
  REQUIRE(error);
  CHECK(error->code() == Errc::unresolved);
  CHECK(contains(error->what(), "'w' has no slot left of its 2 "));
  CHECK(contains(error->what(), ": version 2 of "));
  CHECK(contains(error->remedy(), "resolve() it first"));
  make(shelf, "late", 400'000).write(pattern(400'000, 3));  // the medium grows
  CHECK(code_of([&] { shelf.persist(30); }) == Errc::unresolved);
  CHECK(code_of([&] { shelf.persist_async(30); }) == Errc::unresolved);
  CHECK(code_of([&] { shelf.prepare(30); }) == Errc::unresolved);
  CHECK(code_of([&] { shelf.rollback(1); }) == Errc::unresolved);
  const auto begun_behind = error_of([&] { return shelf.transaction(); });
  REQUIRE(begun_behind);
  CHECK(begun_behind->code() == Errc::uncommitted);
  CHECK(begun_behind->remedy().find("resolve()") != std::string::npos);  // persist() is refused
  CHECK((value(begun.w) == pattern(kBegunBytes, 2)));
  CHECK((value(old) == pattern(100, 3)));
  if (commit) {
    shelf.resolve(Decision::commit);
    CHECK((value(old, true) == pattern(100, 1)));
    begun.w.write(pattern(kBegunBytes, 5));
    CHECK(shelf.persist(30).version == 3);
    CHECK((value(old, true) == pattern(100, 3)));
    CHECK((value(begun.w, true) == pattern(kBegunBytes, 5)));
    CHECK((value(shelf.find("late").value()) == pattern(400'000, 3)));
    return;
  }
  shelf.resolve(Decision::abandon);
  CHECK((value(old) == pattern(100, 1)));
  CHECK(shelf.names() == std::vector<std::string>{"old", "w"});
  // Whoever assigned it does not know yet.
  CHECK(code_of([&] { shelf.persist(30); }) == Errc::abandoned);
  CHECK(code_of([&] { shelf.persist_async(30); }) == Errc::abandoned);
  CHECK(code_of([&] { shelf.prepare(30); }) == Errc::abandoned);
  CHECK(code_of([&] { old.write(pattern(100, 4)); }) == Errc::abandoned);
  CHECK(code_of([&] { make(shelf, "x", 8); }) == Errc::abandoned);
  CHECK(code_of([&] { shelf.erase("old"); }) == Errc::abandoned);
  CHECK(code_of([&] { return shelf.transaction(); }) == Errc::abandoned);
  CHECK(code_of([&] { shelf.rollback(1); }) == Errc::abandoned);
  shelf.discard();
  old.write(pattern(100, 4));
  CHECK(shelf.persist(30).version == 2);
  begun.reopen();
  CHECK((value(shelf.find("old").value()) == pattern(100, 4)));
}

TEST_CASE("a transaction behind what is abandoned ends with it") {
  Begun begun({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf& shelf = begun.shelf;
  begun.w.write(pattern(kBegunBytes, 2));
  shelf.prepare(20);
  Transaction transaction = shelf.transaction();
  begun.w.write(pattern(kBegunBytes, 3));  // there is a slot for it
  CHECK(code_of([&] { transaction.commit(30); }) == Errc::unresolved);
  SECTION("abandoned") {
    std::thread([&] { shelf.resolve(Decision::abandon); }).join();
    CHECK(code_of([&] { transaction.commit(30); }) == Errc::abandoned);
    CHECK(code_of([&] { begun.w.write(pattern(8, 3)); }) == Errc::abandoned);
    transaction.discard();
    begun.check_first(shelf);
    begun.w.write(pattern(8, 3));
    CHECK(shelf.persist(30).version == 2);
  }
  SECTION("committed") {
    std::thread([&] { shelf.resolve(Decision::commit); }).join();
    CHECK(transaction.commit(30).version == 3);
    CHECK((value(begun.w, true) == pattern(kBegunBytes, 3)));
  }
  begun.reopen();
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a commit took what its times say") {
  Begun begun(any_shape());
  begun.w.write(pattern(kBegunBytes, 2));
  Shelf& shelf = begun.shelf;
  shelf.prepare(20, "late");
  const double before = shelf.stats().commit_seconds;
  const Commit commit = shelf.resolve(Decision::commit).commit.value();
  CHECK(commit.times.sealing <= commit.times.flipped);
  CHECK(commit.times.flipped <= commit.times.durable);
  const std::chrono::duration<double> took = commit.times.durable - commit.times.sealing;
  CHECK(commit.seconds == took.count());
  CHECK(std::abs(shelf.stats().commit_seconds - before - took.count()) < 1e-9);
}

TEST_CASE("preparing waits for what is on its way, and others wait for it") {
  Begun begun({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf& shelf = begun.shelf;
  begun.w.write(pattern(kBegunBytes, 2));
  begun.kept.doors->barrier.shut();
  auto second = shelf.persist_async(20);
  begun.w.write(pattern(kBegunBytes, 3));
  Waiter preparing([&] { shelf.prepare(30, "late"); });
  CHECK(preparing.waits());
  Waiter persisting([&] { CHECK(code_of([&] { shelf.persist(40); }) == Errc::unresolved); });
  CHECK(persisting.waits());
  Waiter writing([&] { begun.w.write(pattern(kBegunBytes, 4)); });
  CHECK(writing.waits());  // for the slot of version 1, which goes with the flip of version 2
  CHECK_FALSE(shelf.prepared());
  begun.kept.doors->barrier.open();
  CHECK(second.get().version == 2);
  preparing.join();
  persisting.join();
  writing.join();
  CHECK(shelf.prepared()->version == 3);
  CHECK(shelf.resolve(Decision::commit).commit->version == 3);
  CHECK((value(begun.w, true) == pattern(kBegunBytes, 3)));
}

TEST_CASE("who waits for a slot of what comes to be prepared is told that it is") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  begun.w.write(pattern(kBegunBytes, 2));
  begun.kept.doors->barrier.shut();
  Waiter preparing([&] { begun.shelf.prepare(20); });
  begun.kept.doors->barrier.await_someone();
  Waiter writing(
      [&] { CHECK(code_of([&] { begun.w.write(pattern(8, 3)); }) == Errc::unresolved); });
  CHECK(writing.waits());
  begun.kept.doors->barrier.open();
  preparing.join();
  writing.join();
}

TEST_CASE("what was only erased, or only created, behind what is abandoned is told of too") {
  const bool erased = GENERATE(true, false);
  CAPTURE(erased);
  Begun begun({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  begun.w.write(pattern(8, 2));
  begun.shelf.prepare(20);
  if (erased) {
    begun.shelf.erase("old");
  } else {
    make(begun.shelf, "new", 0);
  }
  begun.shelf.resolve(Decision::abandon);
  begun.check_first(begun.shelf);
  CHECK(code_of([&] { begun.shelf.persist(30); }) == Errc::abandoned);
  begun.shelf.discard();
  CHECK(begun.shelf.persist(30).version == 2);
}

TEST_CASE("one who decides while it is being committed finds nothing to decide") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf& shelf = begun.shelf;
  begun.w.write(pattern(kBegunBytes, 2));
  shelf.prepare(20);
  begun.kept.doors->barrier.shut();
  Waiter committing([&] { CHECK(shelf.resolve(Decision::commit).commit->version == 2); });
  begun.kept.doors->barrier.await_someone();
  Waiter late(
      [&] { CHECK(code_of([&] { shelf.resolve(Decision::abandon); }) == Errc::bad_argument); });
  CHECK(late.waits());
  Waiter writing([&] { begun.w.write(pattern(kBegunBytes, 3)); });  // waits, as for any version
  CHECK(writing.waits());
  Waiter persisting([&] { CHECK(shelf.persist(30).version == 3); });
  CHECK(persisting.waits());
  begun.kept.doors->barrier.open();
  committing.join();
  late.join();
  writing.join();
  persisting.join();
  CHECK(shelf.version() == 3);
}

// What is known to be whole is noted by both, here of chunks in one slot.
TEST_CASE("what opening found is verified beside those who read") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  begun.w.write(pattern(8, 2), kMiB);
  begun.shelf.persist(15);
  begun.w.write(pattern(8, 3), kMiB);
  begun.shelf.prepare(20);
  begun.reopen();
  std::atomic<bool> read = false;
  std::atomic<bool> enough = false;
  std::thread reader([&] {
    std::vector<std::byte> bytes(100);
    while (!enough) {
      begun.w.read(bytes);
      read = true;
    }
    CHECK((bytes == pattern(100, 1)));
  });
  while (!read) std::this_thread::yield();
  CHECK(begun.shelf.resolve(Decision::commit).commit->version == 3);
  enough = true;
  reader.join();
}

TEST_CASE("what is refused of prepare() and resolve() says why") {
  Begun begun({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf& shelf = begun.shelf;
  CHECK(code_of([&] { shelf.prepare(1, std::string(257, 'x')); }) == Errc::bad_argument);
  CHECK(code_of([&] { shelf.prepare(~0ULL); }) == Errc::bad_argument);
  CHECK(code_of([&] { shelf.resolve(Decision::commit); }) == Errc::bad_argument);
  shelf.prepare(1, std::string(256, 'x'));
  CHECK(shelf.prepared()->id == std::string(256, 'x'));
  const Shelf reader = begun.kept.open(Mode::read);
  CHECK(reader.prepared()->id == std::string(256, 'x'));
  CHECK(code_of([&] { begun.kept.open(Mode::read).resolve(Decision::commit); }) == Errc::read_only);
  CHECK(code_of([&] { begun.kept.open(Mode::read).prepare(); }) == Errc::read_only);
  shelf.resolve(Decision::commit);
  {
    Transaction transaction = shelf.transaction();
    CHECK(code_of([&] { shelf.prepare(1); }) == Errc::transaction);
  }
  shelf.close();
  CHECK(code_of([&] { shelf.prepare(1); }) == Errc::closed);
  CHECK(code_of([&] { shelf.resolve(Decision::abandon); }) == Errc::closed);
  CHECK(code_of([&] { shelf.prepared(); }) == Errc::closed);
}

TEST_CASE("a value of which one chunk alone has no slot left waits, or is told why, as a whole") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 2 * kMiB);
  w.write(pattern(2 * kMiB, 1));
  shelf.persist(1);
  w.write(pattern(kMiB, 2), GENERATE(std::uint64_t{0}, kMiB));
  shelf.prepare(2);
  CHECK(code_of([&] { w.write(pattern(2 * kMiB, 3)); }) == Errc::unresolved);
  shelf.resolve(Decision::commit);
  w.write(pattern(2 * kMiB, 3));
  shelf.persist(3);
  CHECK((value(w, true) == pattern(2 * kMiB, 3)));
}

TEST_CASE("what follows a prepared attempt that was found has pages for as much as that has") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  make(shelf, "w", 100).write(pattern(100, 1));
  shelf.persist(1);
  for (int i = 0; i < 600; ++i) make(shelf, std::to_string(i), 8).write(pattern(8, 1));
  shelf.prepare(2);
  shelf.close();
  shelf = kept.open();
  shelf.resolve(Decision::commit);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 600; ++i) shelf.find(std::to_string(i))->write(pattern(8, 2));
    CHECK_NOTHROW(shelf.persist());
  }
}
