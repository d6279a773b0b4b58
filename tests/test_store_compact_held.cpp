// What compact() moves and cuts beside versions that are held, media that were removed, attempts on
// their way, and runs that did not come to their end.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "asleep.hpp"
#include "format/format.hpp"
#include "held_medium.hpp"
#include "kept_versions.hpp"
#include "scratch.hpp"
#include "thrown.hpp"
#include "tokens.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::chrono::duration<double> kShort(0.05);
constexpr unsigned kSecond[] = {1};
constexpr std::int64_t kSize = 300'000;

void idle(Shelf& shelf, int commits) {
  for (int i = 0; i < commits; ++i) shelf.persist();
}

// Versions v1 and v2 have "a" in places of their own. Both are held, and "a" is erased.
struct TwoHeld {
  Kept kept{{.keep = 0, .in_flight = 5, .mapped = true, .placement = Placement::whole}};
  Shelf shelf = kept.open();
  std::optional<VersionPin> first;
  std::optional<VersionPin> second;
  std::uint64_t v1 = 0;
  std::uint64_t v2 = 0;

  TwoHeld() {
    make(shelf, "gone", 8 * kSize).write(pattern(8 * kSize, 50));
    make(shelf, "a", kSize).write(pattern(kSize, 1));
    shelf.persist();
    shelf.erase("gone");
    idle(shelf, 8);
    v1 = shelf.version();
    first.emplace(shelf.pin());
    make(shelf, "front", 4 * kSize);
    idle(shelf, 2);
    REQUIRE(shelf.compact(kShort).bytes_moved > 0);
    shelf.find("a")->write(pattern(kSize, 2));
    shelf.persist();
    shelf.erase("front");
    v2 = shelf.persist().version;
    second.emplace(shelf.pin());
    idle(shelf, 3);
    REQUIRE(shelf.compact(kShort).bytes_moved > 0);
    shelf.erase("a");
    idle(shelf, 6);
  }
};

// A shelf without holes, and with room behind them that its roots state.
void add_tail(Shelf& shelf) {
  shelf.compact();
  shelf.reserve(4 * kMiB);
  idle(shelf, 20);
}

// The capacity that each home's root states, and its version.
std::vector<std::pair<std::uint64_t, std::uint64_t>> stated(Medium& medium, unsigned homes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  for (unsigned home = 0; home < homes; ++home) {
    format::Root root;
    medium.read(format::root_at(home, 0), std::as_writable_bytes(std::span(&root, 1)));
    all.emplace_back(format::word_version(root.word), root.capacity_bytes);
  }
  return all;
}

}  // namespace

TEST_CASE("a lease of the newer of two held versions keeps its own places") {
  TwoHeld held;
  const auto expected = pattern(kSize, 2);
  const Lease lease = held.shelf.at(held.v2).find("a")->lease();
  REQUIRE(lease.in_place());
  CHECK(std::ranges::equal(lease.bytes(), expected));
  held.second.reset();
  idle(held.shelf, 3);
  std::vector<std::unique_ptr<VersionPin>> pins;
  for (int round = 0; round < 5; ++round) {  // so that other slots are written, too
    for (int i = 0; i < 40; ++i) {
      const std::string name = "n" + std::to_string(i);
      if (!held.shelf.find(name)) make(held.shelf, name, kSize);
      held.shelf.find(name)->write(pattern(kSize, 90));
    }
    held.shelf.persist();
    pins.push_back(std::make_unique<VersionPin>(held.shelf.pin()));
  }
  CHECK(std::ranges::equal(lease.bytes(), expected));
}

TEST_CASE("after a rollback to one held version the other is as it was") {
  TwoHeld held;
  const auto check = [&] {
    CHECK((value_at(held.shelf, held.v1, "a") == pattern(kSize, 1)));
    CHECK((value_at(held.shelf, held.v2, "a") == pattern(kSize, 2)));
  };
  check();
  held.shelf.rollback(held.v1);
  check();
  held.shelf.find("a")->write(pattern(kSize, 3));
  held.shelf.persist();
  check();
}

TEST_CASE("a medium that was removed is not named again") {
  const std::array<std::shared_ptr<Medium>, 2> shared = {
      std::shared_ptr<Medium>(make_memory_medium(0, 256 * kMiB)),
      std::shared_ptr<Medium>(make_memory_medium(0, 256 * kMiB))};
  Shelf::format(*shared[0]);
  const auto open = [&](bool both) {
    std::vector<std::unique_ptr<Medium>> also;
    if (both) also.push_back(std::make_unique<SharedMedium>(shared[1], true));
    return Shelf::open(std::make_unique<SharedMedium>(shared[0], true), std::move(also),
                       {.mode = Mode::update});
  };
  {
    Shelf shelf = open(true);
    shelf.create("w", DType::uint8, std::array{std::int64_t{2 * kMiB}}, kSecond)
        .write(pattern(2 * kMiB, 1));
    shelf.persist();
    shelf.remove_medium(1);
    idle(shelf, 6);
    shelf.compact();
    idle(shelf, 6);
  }
  CHECK((value(open(false).find("w").value()) == pattern(2 * kMiB, 1)));
}

TEST_CASE("what one run could not cut a later one does") {
  const Kept kept({.keep = 0, .in_flight = 3, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "t", kMiB).write(pattern(kMiB, 1));
  shelf.persist();
  add_tail(shelf);
  const std::uint64_t before = kept.medium->size();
  SECTION("a version was held") {
    const bool reopens = GENERATE(true, false);
    {
      const VersionPin pin = shelf.pin();
      CHECK_FALSE(shelf.compact().files_cut);
    }
    if (reopens) shelf = kept.open();
  }
  SECTION("something was not committed, and is discarded") {
    shelf.find("t")->write(pattern(100, 3), 0);
    CHECK(code_of([&] { shelf.compact(kShort); }) == Errc::uncommitted);
    shelf.discard();
  }
  CHECK(kept.medium->size() == before);
  idle(shelf, 8);
  const CompactReport report = shelf.compact();
  CHECK(report.files_cut);
  CHECK(kept.medium->size() == report.bytes_after);
  CHECK((value(shelf.find("t").value()) == pattern(kMiB, 1)));
}

TEST_CASE("no root in any home reaches beyond what is there") {
  const Kept kept({.keep = 0, .in_flight = 4, .mapped = true, .placement = Placement::whole});
  Tokens barriers;
  std::atomic<int> looks = 0;  // of who waits for somebody to commit
  OpenOptions options = kept.options();
  options.while_waiting = [&] { ++looks; };
  Shelf shelf = Shelf::open(
      std::make_unique<CountedMedium>(kept.medium, barriers, CountedMedium::What::barriers),
      options);
  make(shelf, "t", kMiB).write(pattern(kMiB, 1));
  make(shelf, "u", 5000).write(pattern(5000, 1));
  shelf.persist();
  add_tail(shelf);
  const std::uint64_t v = shelf.version();
  barriers.set(0);
  for (unsigned i = 1; i <= 4; ++i) {  // four are on their way, frozen before the cut
    shelf.find("t")->write(pattern(kMiB, 10 + i));
    shelf.persist_async();
  }
  shelf.find("u")->write(pattern(5000, 2));  // and this is not committed
  const std::uint64_t free = shelf.info().free_bytes;
  std::thread compacts([&] { shelf.compact(); });
  while (shelf.info().free_bytes == free) std::this_thread::yield();  // until the end is cut off
  barriers.set(2);                                                    // the first is published
  while (shelf.version() < v + 1) std::this_thread::yield();
  for (const int seen = looks; looks < seen + 3;) std::this_thread::yield();  // and it knows
  barriers.let_all();
  while (shelf.version() < v + 4) std::this_thread::yield();
  shelf.persist();
  compacts.join();
  for (const auto& [version, capacity] : stated(*kept.medium, 6)) {
    CAPTURE(version - v);
    CHECK(capacity <= kept.medium->size());
  }
}

TEST_CASE("a tensor that is erased while it is looked at is not damaged") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Tokens reads;
  const auto open = [&] {
    return Shelf::open(
        std::make_unique<CountedMedium>(std::make_shared<SharedMedium>(kept.medium, false), reads,
                                        CountedMedium::What::reads),
        kept.options());
  };
  {
    Shelf shelf = open();
    make(shelf, "gone", 8 * kMiB).write(pattern(8 * kMiB, 9));
    make(shelf, "a", 2 * kMiB).write(pattern(2 * kMiB, 1));
    shelf.persist();
    shelf.erase("gone");
    idle(shelf, 4);
  }
  Shelf shelf = open();
  reads.set(0);
  CompactReport report;
  std::thread compacts([&] { report = shelf.compact(); });
  while (reads.waiting == 0) std::this_thread::yield();  // for chunk 0
  Waiter erases([&] { shelf.erase("a"); });
  REQUIRE(erases.waits());
  reads.set(1);  // chunk 0 is there, then the erase comes, and then chunk 1 is read
  erases.join();
  while (reads.waiting == 0) std::this_thread::yield();
  idle(shelf, 3);
  for (int stamp : {5, 6}) {
    for (int i = 0; i < 12; ++i) {
      const std::string name = "b" + std::to_string(i);
      if (!shelf.find(name)) make(shelf, name, 2 * kMiB);
      shelf.find(name)->write(pattern(2 * kMiB, stamp));
    }
    shelf.persist();
  }
  reads.let_all();
  compacts.join();
  CHECK(report.damaged.empty());
}

TEST_CASE("verify() of a reader that was overtaken, beside a file made shorter, says so") {
  const scratch::Directory folder(
      GENERATE(std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()));
  const auto path = folder / "run.shelf";
  Shelf shelf = Shelf::open(path);
  for (int i = 0; i < 8; ++i) {
    make(shelf, "t" + std::to_string(i), kMiB).write(pattern(kMiB, i));
  }
  shelf.persist();
  const Shelf reader = Shelf::open(path, {.mode = Mode::read});
  for (int i : {0, 1, 2, 4, 5, 6, 7}) shelf.erase("t" + std::to_string(i));
  shelf.persist();
  shelf.compact();
  CHECK(code_of([&] { value(reader.find("t7").value()); }) == Errc::stale);
  CHECK(code_of([&] { reader.verify(); }) == Errc::stale);
}

TEST_CASE("an assignment that is undone over what was carried leaves nothing uncommitted") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  make(shelf, "gone", 4 * kMiB);
  make(shelf, "a", kMiB).write(pattern(kMiB, 1));
  shelf.persist();
  shelf.erase("gone");
  idle(shelf, 3);
  {
    Transaction transaction = shelf.transaction();
    CHECK(code_of([&] { shelf.compact(kShort); }) == Errc::transaction);
    CHECK_FALSE(shelf.has_uncommitted());
    {
      TensorRef a = shelf.find("a").value();
      Assignment undone = a.assign();
      undone.write(pattern(64, 2), 8);
    }
    CHECK_FALSE(shelf.has_uncommitted());
    transaction.commit();
  }
  CHECK((value(shelf.find("a").value()) == pattern(kMiB, 1)));
  shelf.compact();
  CHECK((value(shelf.find("a").value()) == pattern(kMiB, 1)));
}

TEST_CASE("a slot that a version on its way has stays where it is") {
  const Kept kept({.keep = 0, .in_flight = 3, .mapped = true, .placement = Placement::whole});
  const auto doors = std::make_shared<Doors>();
  Shelf shelf = Shelf::open(std::make_unique<HeldMedium>(kept.medium, doors), kept.options());
  make(shelf, "gone", 8 * kSize).write(pattern(8 * kSize, 50));
  make(shelf, "a", kSize).write(pattern(kSize, 1));
  shelf.persist();
  shelf.erase("gone");
  idle(shelf, 5);
  shelf.find("a")->write(pattern(kSize, 2));
  doors->barrier.shut();
  auto pending = shelf.persist_async();
  doors->barrier.await_someone();
  CompactReport report;
  Waiter compacts([&] { report = shelf.compact(kShort); });
  CHECK(compacts.waits());  // for its turn, with all moved that may be
  doors->barrier.open();
  compacts.join();
  pending.wait();
  CHECK(report.bytes_moved > 0);
  CHECK((value(shelf.find("a").value()) == pattern(kSize, 2)));
  CHECK(shelf.verify().damage.empty());
}

namespace {

// Wherever these bytes lie, one of them is another one from now on. How often.
int rot_all(Medium& medium, const Bytes& bytes) {
  Bytes all(medium.size());
  medium.read(0, all);
  int found = 0;
  for (auto at = all.begin();; ++at, ++found) {
    at = std::search(at, all.end(), bytes.begin(), bytes.end());
    if (at == all.end()) return found;
    const auto place = static_cast<std::uint64_t>(at - all.begin()) / kPageBytes * kPageBytes;
    Bytes page(all.begin() + static_cast<std::ptrdiff_t>(place),
               all.begin() + static_cast<std::ptrdiff_t>(place + kPageBytes));
    page.back() ^= std::byte{1};
    medium.wait(medium.write(place, page, 0));
  }
}

}  // namespace

TEST_CASE("beside what rots while it is carried nothing that others assign is committed") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "beside", kSize).write(pattern(kSize, 1));
  make(shelf, "gone", 4 * kSize);
  make(shelf, "t", kSize).write(pattern(kSize, 2));
  shelf.persist();
  shelf.erase("gone");
  idle(shelf, 4);
  const std::uint64_t version = shelf.version();
  const Bytes all = pattern(kSize, 2);
  REQUIRE(rot_all(*kept.medium, Bytes(all.begin(), all.begin() + 64)) > 0);
  kept.doors->read.shut();
  std::optional<Error> refused;
  std::thread compaction([&] { refused = error_of([&] { shelf.compact(kShort); }); });
  kept.doors->read.await_someone();
  shelf.find("beside")->write(pattern(kSize, 3));  // by somebody who has more to assign
  kept.doors->read.open();
  compaction.join();
  REQUIRE(refused);
  CHECK(refused->code() == Errc::uncommitted);
  CHECK(shelf.has_uncommitted());
  CHECK((value_at(shelf, shelf.version(), "beside") == pattern(kSize, 1)));
  CHECK(shelf.version() == version);
}
