// A version that is held while it is copied out, beside all that may happen meanwhile.
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "asleep.hpp"
#include "kept_versions.hpp"
#include "scratch.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSmall = 5000;

}  // namespace

TEST_CASE("a snapshot that begins keeps nobody from a slot that a commit frees") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  for (unsigned version = 1; version <= 2; ++version) commit(shelf, version);
  TensorRef w = shelf.find("w").value();
  w.write(pattern(kSmall, 3));
  kept.doors->barrier.shut();
  Waiter third([&] { shelf.persist(3); });
  kept.doors->barrier.await_someone();
  Waiter writer([&] { w.write(pattern(kSmall, 4)); });
  REQUIRE(writer.waits());  // for version 3, with which 1 goes
  Door middle;
  middle.shut();
  OpenOptions options;
  options.progress = once([&] { middle.pass(); });
  Waiter snapshot([&] { shelf.snapshot(directory / "copy.shelf", options); });  // of version 2
  middle.await_someone();
  kept.doors->barrier.open();
  third.join();
  writer.join();
  middle.open();
  snapshot.join();
  shelf.persist(4);
  CHECK((value(w) == pattern(kSmall, 4)));
}

TEST_CASE("a pin of an older version ends beside a decision") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  for (unsigned version = 1; version <= 100; ++version) {
    std::optional<VersionPin> pin(shelf.pin());
    commit(shelf, version);  // behind which the pin alone keeps the older one
    shelf.prepare(version, "x");
    std::thread other([&] { pin.reset(); });
    shelf.resolve(Decision::abandon);
    other.join();
    REQUIRE(shelf.versions().size() == 1);
  }
}

TEST_CASE("beside a version that is held there are never more than there are slots") {
  const Kept kept({.keep = 0, .in_flight = 4, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  std::optional<VersionPin> pin(shelf.pin());
  commit(shelf, 2);
  REQUIRE(shelf.versions().size() == 2);
  kept.doors->barrier.shut();
  std::atomic<unsigned> launched = 0;
  Waiter commits([&] {
    for (unsigned i = 0; i < 4; ++i) {
      make(shelf, std::to_string(i), 1).write(pattern(1, i));
      shelf.persist_async(10 + i);
      ++launched;
    }
  });
  while (launched < 3) std::this_thread::yield();
  CHECK(commits.waits());  // though four may be on their way
  CHECK(launched == 3);
  pin.reset();
  kept.doors->barrier.open();
  commits.join();
  CHECK(shelf.persist(20).version == 7);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{7});
  CHECK(shelf.names().size() == 5);
}

TEST_CASE("a version that is pinned stays, and who needs its slot waits") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  TensorRef w = shelf.find("w").value();
  std::optional<VersionPin> pin(shelf.pin());
  CHECK(pin->version() == 1);
  const RetainedVersion first = shelf.at(1);
  w.write(pattern(kSmall, 2));
  shelf.persist(2);
  Waiter writer([&] { w.write(pattern(kSmall, 3)); });
  REQUIRE(writer.waits());
  CHECK(first.info().version == 1);
  Waiter other([&] { pin.reset(); });  // which did not make it
  other.join();
  writer.join();
  CHECK(code_of([&] { first.info(); }) == Errc::stale);
  CHECK(code_of([&] { shelf.pin(1); }) == Errc::stale);
}

TEST_CASE("a pin leaves the thread that has it what it would refuse within a snapshot") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  const auto before = value_at(shelf, 1, "w");
  {
    const VersionPin pin = shelf.pin(1);
    commit(shelf, 2);
    CHECK(numbers(shelf) == std::vector<std::uint64_t>{1, 2});
    CHECK((value_at(shelf, 1, "w") == before));
  }
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{2});
}

namespace {

// A thread that is known waits at a door where it looks for a rival.
class Watched final : public SharedMedium {
 public:
  using SharedMedium::SharedMedium;
  void look(std::uint64_t at, std::span<std::byte> bytes) override {
    if (std::this_thread::get_id() == thread) door.pass();
    SharedMedium::look(at, bytes);
  }
  std::atomic<std::thread::id> thread;
  Door door;
};

}  // namespace

TEST_CASE("a rollback to a version that was held, and goes, is refused") {
  const std::shared_ptr<Medium> memory = make_memory_medium(0, 256 * kMiB);
  OpenOptions options;
  options.mode = Mode::update;
  options.in_flight = 2;
  Shelf::format(*memory, options);
  auto medium = std::make_unique<Watched>(memory);
  Watched& watched = *medium;
  const scratch::Directory directory;
  Shelf shelf = Shelf::open(std::move(medium), options);
  commit(shelf, 1);
  Door middle;
  middle.shut();
  options.progress = once([&] { middle.pass(); });
  Waiter snapshot([&] { shelf.snapshot(directory / "copy.shelf", options); });
  middle.await_someone();
  commit(shelf, 2);
  REQUIRE(numbers(shelf) == std::vector<std::uint64_t>{1, 2});
  watched.door.shut();
  std::optional<Error> refused;
  Waiter rollback([&] {
    watched.thread = std::this_thread::get_id();
    refused = error_of([&] { shelf.rollback(1); });
  });
  watched.door.await_someone();
  middle.open();
  snapshot.join();
  watched.door.open();
  rollback.join();
  REQUIRE(refused);
  CHECK(refused->code() == Errc::stale);
  commit(shelf, 3);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a transaction that is let go within a snapshot ends all commits") {
  const Kept kept({0, 1, true, Placement::whole});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  commit(shelf, 1);
  std::optional<Transaction> transaction = shelf.transaction();
  OpenOptions options;
  options.progress = once([&] { transaction.reset(); });
  shelf.snapshot(directory / "copy.shelf", options);
  CHECK(code_of([&] { shelf.persist(2); }) == Errc::failed);
  CHECK((value(*shelf.find("w")) == pattern(kSmall, 1)));
}
