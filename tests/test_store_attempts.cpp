// Attempts: those on their way, those that wait for them, and those that come to nothing.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "asleep.hpp"
#include "cached_disk.hpp"
#include "format/layout.hpp"
#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// Of a value that lies on the medium.
void rot_first_page(Medium& medium, const std::vector<std::byte>& value) {
  std::vector<std::byte> page(kPageBytes);
  for (std::uint64_t at = 0;; at += kPageBytes) {
    REQUIRE(at < medium.size());
    medium.read(at, page);
    if (!std::equal(page.begin(), page.begin() + 64, value.begin())) continue;
    page[100] ^= std::byte{1};
    medium.wait(medium.write(at, page, 0));
    return;
  }
}

}  // namespace

TEST_CASE("what is discarded never was") {
  const Shape shape = any_shape();
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement));
  const Kept kept(shape);
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  TensorRef old = make(shelf, "old", 100);
  w.write(pattern(kKeptBytes, 1));
  old.write(pattern(100, 1));
  shelf.persist(1);
  const std::uint64_t free = shelf.free_bytes();
  for (unsigned round = 0; round < 3; ++round) {
    w.write(pattern(5000, 2 + round), kMiB - 100);
    shelf.erase("old");
    TensorRef made = make(shelf, "made", 5000);
    made.write(pattern(5000, 3));
    const Lease lease = made.lease();
    shelf.discard();
    CHECK(lease.bytes()[0] == pattern(5000, 3)[0]);
    CHECK(shelf.names() == std::vector<std::string>{"old", "w"});
    CHECK((value(w) == pattern(kKeptBytes, 1)));
    CHECK((value(old) == pattern(100, 1)));
    CHECK_FALSE(w.info().dirty);
    CHECK(code_of([&] { made.write(pattern(5000, 4)); }) == Errc::unknown_name);
  }
  CHECK(shelf.free_bytes() + kMiB >= free);  // pages may have been set aside, and nothing is lost
  auto expected = pattern(kKeptBytes, 1);
  const auto part = pattern(10, 9);  // where the discarded attempts wrote, and beside it
  w.write(part, 5);
  std::copy(part.begin(), part.end(), expected.begin() + 5);
  shelf.persist(2);
  CHECK((value(w) == expected));
  CHECK((value(kept.open(Mode::read).find("w").value()) == expected));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a transaction is one version, or none") {
  const Kept kept({.keep = 1, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 5000);
  CHECK(code_of([&] { return shelf.transaction(); }) == Errc::uncommitted);
  shelf.persist(0);
  {
    Transaction dropped = shelf.transaction();
    w.write(pattern(5000, 1));
    CHECK(code_of([&] { shelf.persist(1); }) == Errc::transaction);
    CHECK(code_of([&] { shelf.persist_async(1); }) == Errc::transaction);
    CHECK(code_of([&] { shelf.discard(); }) == Errc::transaction);
    CHECK(code_of([&] { shelf.rollback(1); }) == Errc::transaction);
    CHECK(code_of([&] { return shelf.transaction(); }) == Errc::transaction);
  }
  CHECK((value(w) == std::vector<std::byte>(5000)));
  CHECK(shelf.version() == 1);
  Transaction kept_one = shelf.transaction();
  w.write(pattern(5000, 2));
  Waiter other([&] { shelf.persist(7); });  // waits until it ends, and has nothing more to commit
  CHECK(other.waits());
  CHECK(kept_one.commit(2).version == 2);
  other.join();
  CHECK(shelf.version() == 3);
  CHECK((value_at(shelf, 2, "w") == pattern(5000, 2)));
  Transaction ended = shelf.transaction();
  ended.discard();
  CHECK(shelf.persist(8).version == 4);
}

TEST_CASE("a writer waits only for a version on its way that has the slot it needs") {
  const unsigned in_flight = GENERATE(1U, 2U);
  const bool mapped = GENERATE(true, false);
  CAPTURE(in_flight, mapped);
  const auto placement = mapped ? Placement::whole : Placement::by_chunk;
  const Kept kept({.keep = 0, .in_flight = in_flight, .mapped = mapped, .placement = placement});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 5000);
  TensorRef other = make(shelf, "other", 5000);
  w.write(pattern(5000, 1));
  other.write(pattern(5000, 1));
  shelf.persist(1);
  w.write(pattern(5000, 2));
  kept.doors->barrier.shut();
  auto second = shelf.persist_async(2);
  other.write(pattern(5000, 3));  // in either case
  Waiter writer([&] { w.write(pattern(5000, 3)); });
  const bool waits = writer.waits();
  CHECK((value(w, true) == pattern(5000, 1)));
  kept.doors->barrier.open();
  writer.join();
  CHECK(waits == (in_flight == 1));
  CHECK(second.get().version == 2);
  shelf.persist(3);
  CHECK((value(w, true) == pattern(5000, 3)));
  CHECK((value(other, true) == pattern(5000, 3)));
}

TEST_CASE("a chunk without a free slot is waited for, whatever else of its tensor was assigned") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 2 * kMiB);
  w.write(pattern(2 * kMiB, 1));
  shelf.persist(1);
  w.write(pattern(kMiB, 2), kMiB);
  kept.doors->barrier.shut();
  auto second = shelf.persist_async(2);
  w.write(pattern(kMiB, 3));
  Waiter writer([&] { w.write(pattern(kMiB, 4), kMiB); });
  CHECK(writer.waits());
  kept.doors->barrier.open();
  writer.join();
  shelf.persist(3);
  auto expected = pattern(kMiB, 3);
  const auto last = pattern(kMiB, 4);
  expected.insert(expected.end(), last.begin(), last.end());
  CHECK((value(w, true) == expected));
}

TEST_CASE("versions on their way become durable in order, each as it was closed") {
  const Shape shape = any_shape();
  if (shape.in_flight == 1) return;
  CAPTURE(shape.keep, shape.mapped, static_cast<int>(shape.placement));
  const Kept kept(shape);
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  w.write(pattern(kKeptBytes, 0));
  std::vector<std::shared_future<Commit>> commits;
  for (unsigned version = 1; version <= 8; ++version) {
    commits.push_back(shelf.persist_async(version));
    w.write(pattern(4000, version), version % 3 * 700 * 1024);
    if (version % 3 == 0) make(shelf, "t" + std::to_string(version), 300 * 1024);
  }
  shelf.close();
  for (unsigned version = 1; version <= 8; ++version) {
    CHECK(commits[version - 1].get().version == version);
  }
  Shelf again = kept.open();
  auto expected = pattern(kKeptBytes, 0);
  for (unsigned version = 1; version <= 7; ++version) {  // the eighth part was not committed
    const auto part = pattern(4000, version);
    std::copy(part.begin(), part.end(), expected.begin() + version % 3 * 700 * 1024);
  }
  CHECK((value(again.find("w").value()) == expected));
  CHECK(again.verify().damage.empty());
}

TEST_CASE("where a version on its way fails, those behind it fail for its reason") {
  const auto disk = std::make_shared<CachedDisk>();
  const OpenOptions options = {.mode = Mode::update, .keep = 0, .in_flight = 3};
  {
    CachedMedium medium(disk);
    Shelf::format(medium, options);
  }
  const auto open = [&] { return Shelf::open(std::make_unique<CachedMedium>(disk), options); };
  Shelf shelf = open();
  TensorRef w = make(shelf, "w", 5000);
  w.write(pattern(5000, 1));
  shelf.persist(1);
  Door door;
  door.shut();
  disk->barrier_fails = [&](unsigned) {
    door.pass();
    return true;
  };
  w.write(pattern(5000, 2));
  const auto second = shelf.persist_async(2);
  door.await_someone();
  w.write(pattern(5000, 3));
  const auto third = shelf.persist_async(3);
  w.write(pattern(5000, 4));
  std::optional<Error> fourth;
  const bool prepares = GENERATE(false, true);
  CAPTURE(prepares);
  Waiter persisting([&] {
    fourth = error_of([&] { prepares ? void(shelf.prepare(4)) : void(shelf.persist(4)); });
  });
  CHECK(persisting.waits());
  door.open();
  persisting.join();
  CHECK(code_of([&] { second.get(); }) == Errc::io);
  for (const auto& error : {error_of([&] { third.get(); }), fourth}) {
    REQUIRE(error);
    CHECK(error->code() == Errc::failed);
    CHECK(contains(error->what(), "can commit no more after a failure: the barrier failed"));
    CHECK(contains(error->remedy(), "version 1 is safe"));
  }
  CHECK(code_of([&] { w.write(pattern(10, 5)); }) == Errc::io);  // what the background met, once
  CHECK(code_of([&] { w.write(pattern(10, 5)); }) == Errc::failed);
  CHECK(shelf.version() == 1);
  CHECK_FALSE(shelf.prepared());
  CHECK((value(w, true) == pattern(5000, 1)));
  shelf.close();  // waits for nobody
  disk->barrier_fails = {};
  shelf = open();
  w = shelf.find("w").value();
  CHECK(shelf.version() == 1);
  CHECK((value(w) == pattern(5000, 1)));
  w.write(pattern(5000, 6));
  CHECK(shelf.persist(2).version == 2);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("threads that commit in the background do not wait for each other's turn for ever") {
  const Kept kept({.keep = 0, .in_flight = 3, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "w", 100);
  std::atomic<unsigned> failed = 0;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (unsigned i = 0; i < 200; ++i) {
        failed += shelf.persist_async(i).get().step != i;
        shelf.persist_async(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  shelf.close();
  CHECK(failed == 0);
  CHECK(kept.open().version() == 4 * 200 * 2);
}

TEST_CASE("a create that is refused says how much would do") {
  const std::uint64_t size = GENERATE(10, 5000, 200'000, 300'000, 5 * kMiB);
  const unsigned keep = GENERATE(0U, 2U);
  CAPTURE(size, keep);
  const auto committed = [&](std::uint64_t cap) {
    const std::shared_ptr<Medium> medium = make_memory_medium(0, cap);
    OpenOptions options;
    options.keep = keep;
    Shelf::format(*medium, options);
    Shelf shelf = Shelf::open(std::make_unique<SharedMedium>(medium));
    make(shelf, "w", size).write(pattern(size, 1));
    shelf.persist();
    shelf.find("w")->write(pattern(size, 2));
    CHECK(shelf.persist().version == 2);
  };
  const auto refused = error_of([&] { committed(format::kHeapAt); });
  REQUIRE(refused);
  REQUIRE(refused->code() == Errc::full);
  const std::string text = refused->what();
  const std::uint64_t asked = std::stoull(text.substr(text.rfind("full: ") + 6));
  committed(asked);
}

TEST_CASE("a create that finds no room leaves nothing to commit") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "w", 100);
  shelf.persist(1);
  CHECK(code_of([&] { make(shelf, "large", 300 * kMiB); }) == Errc::full);
  shelf.transaction().discard();
  shelf.persist(2);
  CHECK(shelf.rollback(1).version == 3);
}

TEST_CASE("a transaction that has ended is no more") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  Transaction transaction = shelf.transaction();
  transaction.commit(1);
  CHECK(code_of([&] { transaction.commit(2); }) == Errc::transaction);
  transaction.discard();
  CHECK(shelf.version() == 1);
}

TEST_CASE("a step that is no number is refused by a transaction, which goes on") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  Transaction transaction = shelf.transaction();
  make(shelf, "w", 100);
  CHECK(code_of([&] { transaction.commit(~0ULL); }) == Errc::bad_argument);
  CHECK(transaction.commit(2).step == 2U);
  CHECK(shelf.names() == std::vector<std::string>{"w"});
}

TEST_CASE("a transaction that was committed keeps no version from going") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "large", 8 * kMiB);
  shelf.persist(1);
  const std::uint64_t before = shelf.free_bytes();
  shelf.transaction().commit(2);
  shelf.erase("large");
  shelf.persist(3);
  CHECK(shelf.free_bytes() >= before + 16 * kMiB);
}

TEST_CASE("after a discard what was replaced is there, and its replacement is not") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef old = make(shelf, "w", 5000);
  old.write(pattern(5000, 1));
  shelf.persist(1);
  TensorRef fresh = shelf.replace("w", DType::uint8, std::vector<std::int64_t>{6000});
  shelf.discard();
  CHECK(code_of([&] { fresh.write(pattern(6000, 2)); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(fresh); }) == Errc::unknown_name);
  CHECK((value(old) == pattern(5000, 1)));
}

TEST_CASE("a tensor that was only made is gone with its attempt, and its handle says so") {
  const bool transaction = GENERATE(true, false);
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  CAPTURE(transaction, placement == Placement::whole);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  make(shelf, "first", 100);
  shelf.persist(1);
  std::optional<Transaction> begun;
  if (transaction) begun.emplace(shelf.transaction());
  TensorRef made = make(shelf, "made", 5000);
  if (GENERATE(true, false)) made.write(pattern(5000, 1));
  transaction ? begun->discard() : shelf.discard();
  CHECK(shelf.names() == std::vector<std::string>{"first"});
  CHECK(code_of([&] { made.write(pattern(5000, 2)); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(made); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(made, true); }) == Errc::unknown_name);
  TensorRef again = make(shelf, "made", 6000);
  again.write(pattern(6000, 3));
  CHECK(shelf.persist(2).data_bytes == 6000);
  CHECK(code_of([&] { value(made, true); }) == Errc::unknown_name);
  CHECK((value(kept.open(Mode::read).find("made").value()) == pattern(6000, 3)));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("what was staged, erased and discarded is not taken for a later value") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef t = make(shelf, "t", kKeptBytes);
  TensorRef u = make(shelf, "u", kKeptBytes);
  t.write(pattern(kKeptBytes, 1));
  u.write(pattern(kKeptBytes, 2));
  shelf.persist(1);
  t.write(pattern(kKeptBytes, 3));
  std::optional<Lease> lease = t.lease();  // so that the slot is not chosen again
  shelf.erase("t");
  const auto first = pattern(kKeptBytes, 2);
  rot_first_page(*kept.medium, first);
  u.write(pattern(10, 4), kMiB);
  CHECK(code_of([&] { shelf.persist(2); }) == Errc::corrupt);  // a freeze that fails
  shelf.discard();
  auto expected = pattern(kKeptBytes, 5);
  t.write(expected);
  shelf.persist(2);
  lease.reset();
  for (unsigned i = 0; i < 3; ++i) {
    const auto part = pattern(10, 6 + i);
    t.write(part, kMiB);
    std::copy(part.begin(), part.end(), expected.begin() + kMiB);
    shelf.persist(3 + i);
    CHECK((value(t, true) == expected));
  }
  shelf = kept.open();
  CHECK((value(shelf.find("t").value()) == expected));
}

TEST_CASE("a write that fails before it stages anything changes nothing") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 5000);
  const auto first = pattern(5000, 1);
  w.write(first);
  shelf.persist(1);
  rot_first_page(*kept.medium, first);
  CHECK(code_of([&] { w.write(pattern(10, 2), 4500); }) == Errc::corrupt);
  CHECK_FALSE(w.info().dirty);
  shelf.transaction().discard();
  CHECK(shelf.persist(2).version == 2);
}

TEST_CASE("a writer beside commits on their way is never told of leases that nobody has") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 8);
  std::atomic<bool> done = false;
  std::atomic<unsigned> refused = 0;
  std::vector<std::thread> writers;
  for (unsigned writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, bytes = pattern(8, writer)] {
      while (!done) refused += error_of([&] { w.write(bytes); }).has_value();
    });
  }
  for (unsigned version = 1; version <= 10000 && refused == 0; ++version) {
    shelf.persist_async(version);
  }
  done = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(refused == 0);
}
