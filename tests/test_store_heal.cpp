// Chunks that are damaged, and whose bytes another slot still has: restored by heal(), as a version
// of its own, and read from there where the shelf was opened so. What no slot has stays damage.
#include <algorithm>
#include <atomic>
#include <thread>

#include "denied_memory.hpp"
#include "kept_versions.hpp"
#include "rot.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = 3 * kMiB + 100;

// Two commits of one value: each slot of two has it.
struct Twice {
  Kept kept;
  Bytes value = pattern(kSize, 1);

  explicit Twice(const Shape& shape) : kept(shape) {
    Shelf shelf = kept.open();
    TensorRef w = make(shelf, "w", kSize);
    make(shelf, "other", 100).write(pattern(100, 9));
    for (std::uint64_t step : {1, 2}) {
      w.write(value);
      shelf.persist(step);
    }
  }
  std::span<const std::byte> chunk(std::uint64_t number) const {
    const auto bytes = std::span(value).subspan(number * kMiB);
    return bytes.first(std::min<std::size_t>(bytes.size(), kMiB));
  }
  // A bit of the chunk in the slot that the newest version names, or in the other one.
  void rot(const Shelf& shelf, std::uint64_t number, bool named = true) const {
    const std::size_t before = shelf.verify().damage.size();
    for (const std::uint64_t at : places_of(*kept.medium, chunk(number))) {
      flip(*kept.medium, at + 77);
      if ((shelf.verify().damage.size() > before) == named) return;
      flip(*kept.medium, at + 77);
    }
    FAIL("the value is not there");
  }
};

Shape shape_of_two() {
  const unsigned keep = GENERATE(0U, 1U);
  const bool mapped = GENERATE(true, false);
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  CAPTURE(keep, mapped, placement == Placement::whole);
  return {keep, 1, mapped, placement};
}

}  // namespace

TEST_CASE("a damaged chunk is restored from another slot, as a version of its own") {
  const Twice twice(shape_of_two());
  const std::uint64_t chunk = GENERATE(0, 1, 3);
  {
    Shelf shelf = twice.kept.open();
    twice.rot(shelf, chunk);
    const VerifyReport found = shelf.verify();
    REQUIRE(found.damage.size() == 1);
    CHECK(found.damage[0].healable);
    CHECK_FALSE(found.damage[0].healed);
    CHECK_FALSE(found.healed_as);
    const std::vector<std::uint64_t> older(twice.kept.shape.keep, 1);
    CHECK(found.damage[0].intact_in == older);
    Bytes rotten(found.damage[0].extent.size_bytes);
    twice.kept.medium->read(found.damage[0].extent.at, rotten);

    const VerifyReport report = shelf.heal();
    CHECK(report.version == 2);
    CHECK(report.healed_as == 3);
    REQUIRE(report.damage.size() == 1);
    CHECK(report.damage[0].tensor == "w");
    CHECK(report.damage[0].chunk == chunk);
    CHECK(report.damage[0].healed);
    CHECK(shelf.version() == 3);
    CHECK(shelf.step() == 2);
    CHECK_FALSE(shelf.has_uncommitted());
    CHECK((value(*shelf.find("w")) == twice.value));
    CHECK(shelf.verify().damage.empty());

    Bytes there(rotten.size());  // I3: older versions may name it
    twice.kept.medium->read(found.damage[0].extent.at, there);
    CHECK((there == rotten));
    if (twice.kept.shape.keep == 1) {
      CHECK(code_of([&] { value_at(shelf, 2, "w"); }) == Errc::corrupt);
      CHECK(shelf.diff(2, 3).changed.size() == 1);
    }
    CHECK_FALSE(shelf.heal().healed_as);
    const VerifyReport again = shelf.heal(report);
    CHECK_FALSE(again.healed_as);
    CHECK_FALSE(again.damage[0].healed);
    CHECK(shelf.version() == 3);
  }
  OpenOptions options = twice.kept.options();
  options.verify = Verify::on_open;
  const Shelf again = twice.kept.open(options);
  CHECK(again.version() == 3);
  CHECK((value(*again.find("w")) == twice.value));
}

TEST_CASE("what no slot has stays as it is, and is given no checksum") {
  const Twice twice(shape_of_two());
  Shelf shelf = twice.kept.open();
  twice.rot(shelf, 1);
  twice.rot(shelf, 1, false);
  const std::uint64_t commits = shelf.stats().commits;
  const VerifyReport report = shelf.heal();
  REQUIRE(report.damage.size() == 1);
  CHECK_FALSE(report.damage[0].healable);
  CHECK_FALSE(report.damage[0].healed);
  CHECK(report.damage[0].intact_in.empty());
  CHECK_FALSE(report.healed_as);
  CHECK(shelf.version() == 2);
  CHECK(shelf.stats().commits == commits);
  CHECK(code_of([&] { value(*shelf.find("w")); }) == Errc::corrupt);
  CHECK(shelf.verify().damage.size() == 1);
  shelf.find("w")->write(twice.value);
  shelf.persist();
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a tensor that is placed whole is healed whole or not at all, others chunk by chunk") {
  const Twice twice(shape_of_two());
  Shelf shelf = twice.kept.open();
  twice.rot(shelf, 0);
  twice.rot(shelf, 2);
  twice.rot(shelf, 2, false);
  const bool whole = twice.kept.shape.placement == Placement::whole;
  const VerifyReport report = shelf.heal();
  REQUIRE(report.damage.size() == 2);
  CHECK(report.damage[0].healable);
  CHECK(report.damage[0].healed == !whole);
  CHECK_FALSE(report.damage[1].healed);
  CHECK(report.healed_as.has_value() == !whole);
  CHECK(shelf.verify().damage.size() == (whole ? 2 : 1));
  CHECK(code_of([&] { value(*shelf.find("w")); }) == Errc::corrupt);
}

TEST_CASE("what is lost of a tensor that is placed whole keeps no other from being healed") {
  const Twice twice({0, 1, GENERATE(true, false), Placement::whole});
  Shelf shelf = twice.kept.open();
  TensorRef small = make(shelf, "small", 5000);
  for (unsigned round = 0; round < 2; ++round) {
    small.write(pattern(5000, 4));
    shelf.persist();
  }
  twice.rot(shelf, 0);
  twice.rot(shelf, 2);
  twice.rot(shelf, 2, false);
  for (const std::uint64_t at : places_of(*twice.kept.medium, pattern(5000, 4))) {
    flip(*twice.kept.medium, at + 9);
    if (shelf.verify().damage.size() == 3) break;
    flip(*twice.kept.medium, at + 9);
  }
  const VerifyReport report = shelf.heal();
  REQUIRE(report.damage.size() == 3);
  for (const Damage& damage : report.damage) {
    CAPTURE(damage.tensor, damage.chunk);
    CHECK(damage.healed == (damage.tensor == "small"));
  }
  CHECK(report.healed_as == 5);
  CHECK((value(*shelf.find("small")) == pattern(5000, 4)));
  CHECK(shelf.verify().damage.size() == 2);
}

TEST_CASE("several tensors are healed by one version, under the names that they have now") {
  const Kept kept({0, 1, GENERATE(true, false), GENERATE(Placement::whole, Placement::by_chunk)});
  Shelf shelf = kept.open();
  const char* const names[] = {"a", "b", "c"};
  for (unsigned i = 0; i < 3; ++i) make(shelf, names[i], 5000);
  for (unsigned round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < 3; ++i) shelf.find(names[i])->write(pattern(5000, i + 1));
    shelf.persist();
  }
  shelf.rename("c", "z");
  shelf.persist();
  std::vector<std::uint64_t> places;
  for (unsigned i = 0; i < 3; ++i) {
    const auto there = places_of(*kept.medium, pattern(5000, i + 1));
    REQUIRE(there.size() == 2);
    const std::size_t before = shelf.verify().damage.size();
    flip(*kept.medium, there[0] + 9);
    if (shelf.verify().damage.size() == before) {
      flip(*kept.medium, there[0] + 9);
      flip(*kept.medium, there[1] + 9);
    }
  }
  const VerifyReport report = shelf.heal();
  REQUIRE(report.damage.size() == 3);
  CHECK(report.damage[2].tensor == "z");
  for (const Damage& damage : report.damage) CHECK(damage.healed);
  CHECK(report.healed_as == 4);
  CHECK(shelf.verify().damage.empty());
  CHECK((value(*shelf.find("z")) == pattern(5000, 3)));
}

// The slot that a healed tensor goes to passes for having a chunk already, by its label.
TEST_CASE("what rotted in the other slot does not come in with what is healed") {
  const Kept kept({0, 1, GENERATE(true, false), Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kSize);
  Bytes expected = pattern(kSize, 1);
  w.write(expected);
  shelf.persist();
  const Bytes first = pattern(kMiB, 2);
  w.write(first);
  shelf.persist();  // both slots have the other chunks
  std::copy(first.begin(), first.end(), expected.begin());
  const auto rot = [&](std::uint64_t chunk, bool named) {
    const std::size_t before = shelf.verify().damage.size();
    for (const std::uint64_t at :
         places_of(*kept.medium, std::span(expected).subspan(chunk * kMiB))) {
      flip(*kept.medium, at + 5);
      if ((shelf.verify().damage.size() > before) == named) return;
      flip(*kept.medium, at + 5);
    }
    FAIL("the value is not there");
  };
  rot(1, true);
  rot(2, false);
  const VerifyReport report = shelf.heal();
  REQUIRE(report.damage.size() == 1);
  CHECK(report.damage[0].healed);
  CHECK(shelf.verify().damage.empty());
  CHECK((value(w) == expected));
}

TEST_CASE("the same value that is assigned to a healed chunk may be left out, and only then") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Twice twice({0, 1, GENERATE(true, false), placement});
  OpenOptions options = twice.kept.options();
  options.keep_unchanged = true;
  Shelf shelf = twice.kept.open(options);
  TensorRef w = *shelf.find("w");
  CHECK((value(w) == twice.value));  // all of it verified
  twice.rot(shelf, 1);
  CHECK(shelf.heal().healed_as == 3);
  w.write(twice.value);
  shelf.persist();
  CHECK(shelf.verify().damage.empty());
  CHECK((value(w) == twice.value));
}

TEST_CASE("healing is refused where a transaction and a rollback are") {
  const Twice twice({0, 1, GENERATE(true, false), GENERATE(Placement::whole, Placement::by_chunk)});
  Shelf shelf = twice.kept.open();
  twice.rot(shelf, 1);
  const auto code = [&] { return code_of([&] { shelf.heal(); }); };
  SECTION("read-only") {
    shelf.close();
    CHECK(code_of([&] { twice.kept.open(Mode::read).heal(); }) == Errc::read_only);
  }
  SECTION("uncommitted") {
    shelf.find("other")->write(pattern(100, 3));
    CHECK(code() == Errc::uncommitted);
    shelf.discard();
  }
  SECTION("a transaction") {
    const Transaction transaction = shelf.transaction();
    CHECK(code() == Errc::transaction);
  }
  SECTION("an assignment") {
    const Assignment assignment = shelf.find("other")->assign();
    CHECK(code() == Errc::unsupported);
  }
  SECTION("prepared") {
    shelf.prepare(7);
    CHECK(code() == Errc::unresolved);
    shelf.resolve(Decision::abandon);
  }
  SECTION("closed") {
    shelf.close();
    CHECK(code() == Errc::closed);
    return;
  }
  if (shelf.closed()) return;
  CHECK(shelf.version() == 2);
  CHECK(shelf.verify().damage.size() == 1);
}

TEST_CASE("a view of the slot that a tensor placed whole is healed in is told") {
  const Kept kept({0, 1, true, Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 2 * kMiB);
  const Bytes bytes = pattern(2 * kMiB, 1);
  w.write(bytes);
  shelf.persist();
  std::optional<Lease> lease = w.lease();
  w.write(bytes);
  shelf.persist();
  for (const std::uint64_t at : places_of(*kept.medium, bytes)) {
    flip(*kept.medium, at);
    if (!shelf.verify().damage.empty()) break;
    flip(*kept.medium, at);
  }
  CHECK(code_of([&] { shelf.heal(); }) == Errc::leased);
  CHECK_FALSE(shelf.has_uncommitted());
  lease.reset();
  CHECK(shelf.heal().healed_as == 3);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("what others assign and commit meanwhile is theirs") {
  const Twice twice({0, 1, GENERATE(true, false), GENERATE(Placement::whole, Placement::by_chunk)});
  Shelf shelf = twice.kept.open();
  TensorRef w = *shelf.find("w");
  TensorRef other = *shelf.find("other");
  twice.rot(shelf, 1);
  SECTION("assigned: nothing is committed with it") {
    CHECK(code_of([&] { shelf.heal(once([&] { other.write(pattern(100, 3)); })); }) ==
          Errc::uncommitted);
    CHECK(shelf.version() == 2);
    CHECK((value(other, true) == pattern(100, 9)));
    CHECK((value(other) == pattern(100, 3)));
  }
  SECTION("committed: another tensor") {
    const auto meanwhile = [&] {
      other.write(pattern(100, 3));
      shelf.persist(5);
    };
    CHECK(shelf.heal(once(meanwhile)).healed_as == 4);
    CHECK(shelf.step() == 5);
    CHECK((value(other, true) == pattern(100, 3)));
    CHECK((value(w) == twice.value));
  }
  SECTION("committed: the very chunk") {
    const Bytes chunk = pattern(kMiB, 5);
    const VerifyReport found = shelf.verify();
    w.write(chunk, kMiB);
    shelf.persist();
    const VerifyReport report = shelf.heal(found);
    CHECK_FALSE(report.healed_as);
    CHECK_FALSE(report.damage[0].healed);
    CHECK_FALSE(report.damage[0].healable);
    CHECK(shelf.version() == 3);
    Bytes expected = twice.value;
    std::copy(chunk.begin(), chunk.end(), expected.begin() + kMiB);
    CHECK((value(w) == expected));
  }
  SECTION("erased, or another of that name") {
    const VerifyReport found = shelf.verify();
    shelf.erase("w");
    shelf.persist();
    CHECK_FALSE(shelf.heal(found).healed_as);
    make(shelf, "w", 10).write(pattern(10, 1));
    shelf.persist();
    CHECK_FALSE(shelf.heal(found).healed_as);
  }
  SECTION("on its way") {
    other.write(pattern(100, 3));
    const auto commit = shelf.persist_async(5);
    CHECK(shelf.heal().healed_as == 4);
    CHECK(commit.get().version == 3);
    CHECK((value(w) == twice.value));
  }
  if (!shelf.has_uncommitted()) CHECK(shelf.verify().damage.empty());
}

TEST_CASE("transactions of others come before it or behind it", "[threads]") {
  const Twice twice({1, 2, GENERATE(true, false), GENERATE(Placement::whole, Placement::by_chunk)});
  Shelf shelf = twice.kept.open();
  twice.rot(shelf, 1);
  const VerifyReport found = shelf.verify();
  std::atomic<bool> ends = false;
  std::atomic<unsigned> made = 0;
  std::thread other([&] {
    while (!ends) {
      Transaction transaction = shelf.transaction();
      shelf.find("other")->write(pattern(100, ++made));
      transaction.commit();
    }
  });
  std::thread reader([&] {
    while (!ends) value(*shelf.find("other"));
  });
  while (made < 3) std::this_thread::yield();
  const VerifyReport report = shelf.heal(found);
  ends = true;
  other.join();
  reader.join();
  REQUIRE(report.healed_as);
  CHECK(report.damage[0].healed);
  CHECK((value(*shelf.find("w")) == twice.value));
  CHECK((value(*shelf.find("other")) == pattern(100, made)));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("what still holds in older versions is told, also where it is another value") {
  const Kept kept({2, 1, GENERATE(true, false), GENERATE(Placement::whole, Placement::by_chunk)});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 2 * kMiB);
  for (unsigned version = 1; version <= 3; ++version) {
    w.write(pattern(2 * kMiB, version));
    shelf.persist();
  }
  flip(*kept.medium, places_of(*kept.medium, pattern(2 * kMiB, 3)).at(0) + 3);
  REQUIRE(shelf.verify().damage.size() == 1);
  CHECK(shelf.verify().damage[0].intact_in == std::vector<std::uint64_t>{1, 2});
  CHECK_FALSE(shelf.verify().damage[0].healable);
  flip(*kept.medium, places_of(*kept.medium, pattern(2 * kMiB, 1)).at(0) + 3);
  CHECK(shelf.verify().damage[0].intact_in == std::vector<std::uint64_t>{2});
  CHECK(kept.open(Mode::read).verify().damage[0].intact_in == std::vector<std::uint64_t>{2});
}

TEST_CASE("damage is told as it is found, with nothing held") {
  const Twice twice(shape_of_two());
  Shelf shelf = twice.kept.open();
  twice.rot(shelf, 1);
  twice.rot(shelf, 2);
  std::vector<std::uint64_t> told;
  std::uint64_t read = 0;
  const auto tell = [&](const Damage& damage) {
    CHECK(read == 100 + damage.chunk * kMiB);  // the tensor before it, and the chunks
    CHECK(damage.healable);
    told.push_back(damage.chunk);
    shelf.find("other")->write(pattern(100, 4));
    shelf.persist();
  };
  const auto count = [&](std::uint64_t done, std::uint64_t) { read = done; };
  const VerifyReport found = shelf.verify(count, tell);
  CHECK(told == std::vector<std::uint64_t>{1, 2});
  CHECK(found.damage.size() == 2);
  CHECK(shelf.version() == 4);
  CHECK(code_of([&] { shelf.verify({}, [&](const Damage&) { shelf.close(); }); }) == Errc::closed);
}

TEST_CASE("memory that runs out while it heals leaves what was, or what is healed") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  std::int64_t nth = 0;
  for (bool met = true; met; nth += rounds(4) == 4 ? 1 : 7) {
    CAPTURE(placement == Placement::whole, denial == Denial::once, nth);
    const Twice twice({0, 1, true, placement});
    Shelf shelf = twice.kept.open();
    twice.rot(shelf, 1);
    std::optional<std::uint64_t> healed_as;
    met = denying(nth, denial, [&] { healed_as = shelf.heal().healed_as; });
    REQUIRE(shelf.version() >= healed_as.value_or(2));
    REQUIRE(shelf.verify().damage.size() == (shelf.version() == 2 ? 1 : 0));
    if (const auto failed = error_of([&] { shelf.heal(); })) {  // from describe on
      REQUIRE(failed->code() == Errc::failed);
      error_of([&] { shelf.close(); });
      shelf = twice.kept.open();
      shelf.heal();
    }
    REQUIRE(shelf.version() == 3);
    REQUIRE_FALSE(shelf.has_uncommitted());
    REQUIRE((value(*shelf.find("w")) == twice.value));
    REQUIRE(shelf.verify().damage.empty());
  }
  CHECK(nth > 10);
}

// ---- at reading ---------------------------------------------------------------------------------

TEST_CASE("a shelf that is opened to heal reads a damaged chunk from another slot") {
  const Twice twice(shape_of_two());
  OpenOptions options = twice.kept.options(GENERATE(Mode::read, Mode::update));
  if (options.mode == Mode::read) options.keep = options.in_flight = {};
  {
    const Shelf shelf = twice.kept.open();
    twice.rot(shelf, 1);
  }
  {
    const Shelf shelf = twice.kept.open(options);
    const auto error = error_of([&] { value(*shelf.find("w")); });
    REQUIRE(error);
    CHECK(error->code() == Errc::corrupt);
    CHECK(contains(error->remedy(), "verify(repair=True)"));
    CHECK(shelf.stats().chunks_healed == 0);
  }
  options.heal = true;
  const Shelf shelf = twice.kept.open(options);
  const TensorRef w = *shelf.find("w");
  const std::uint64_t written = shelf.stats().medium_writes;
  CHECK((value(w) == twice.value));
  CHECK(shelf.stats().chunks_healed == 1);
  CHECK((value(w, true) == twice.value));
  struct Row {
    std::uint64_t offset, size_bytes, healed;
  };
  for (const Row& row : {Row{kMiB, kMiB, 1}, Row{kMiB + 70, 20, 1}, Row{kMiB - 5, 10, 1},
                         Row{2 * kMiB - 5, 10, 1}, Row{0, kMiB, 0}, Row{2 * kMiB, 8, 0}}) {
    CAPTURE(row.offset, row.size_bytes);
    const std::uint64_t before = shelf.stats().chunks_healed;
    Bytes bytes(row.size_bytes);
    w.read(bytes, row.offset);
    CHECK(std::equal(bytes.begin(), bytes.end(),
                     twice.value.begin() + static_cast<std::ptrdiff_t>(row.offset)));
    CHECK(shelf.stats().chunks_healed == before + row.healed);
  }
  CHECK(shelf.stats().medium_writes == written);
  REQUIRE(shelf.verify().damage.size() == 1);
  const bool in_place = twice.kept.shape.mapped && options.mode == Mode::update &&
                        twice.kept.shape.placement == Placement::whole;
  if (in_place) {
    CHECK(code_of([&] { static_cast<void>(w.lease()); }) == Errc::corrupt);
  } else {
    CHECK(same(twice.value, w.lease().bytes()));
  }
}

TEST_CASE("a commit copies on what another slot has, of a shelf that is opened to heal") {
  const Twice twice({0, 1, GENERATE(true, false), Placement::whole});
  const auto [heal, rots_late] =
      GENERATE(table<bool, bool>({{true, false}, {true, true}, {false, false}}));
  CAPTURE(heal, rots_late);
  OpenOptions beside = twice.kept.options(Mode::read);
  beside.keep = beside.in_flight = {};
  if (!rots_late) twice.rot(twice.kept.open(beside), 1);
  OpenOptions options = twice.kept.options(Mode::update);
  options.heal = heal;
  Shelf shelf = twice.kept.open(options);
  TensorRef w = *shelf.find("w");
  if (rots_late) {  // behind a look, and the slot that is written next has the last sound copy
    CHECK((value(w) == twice.value));
    twice.rot(twice.kept.open(beside), 1);
  }
  const Bytes first = pattern(kMiB, 5);
  w.write(first);
  const auto error = error_of([&] { shelf.persist(3); });
  CHECK(error.has_value() == !heal);
  if (error) return;
  Bytes expected = twice.value;
  std::copy(first.begin(), first.end(), expected.begin());
  CHECK((value(w, true) == expected));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("what no slot has stays an error of a shelf that is opened to heal") {
  const Twice twice(shape_of_two());
  OpenOptions options = twice.kept.options();
  options.heal = true;
  const Shelf shelf = twice.kept.open(options);
  twice.rot(shelf, 1);
  twice.rot(shelf, 1, false);
  const auto error = error_of([&] { value(*shelf.find("w")); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK_FALSE(contains(error->remedy(), "repair=True"));
  CHECK(shelf.stats().chunks_healed == 0);
  CHECK((value(*shelf.find("other")) == pattern(100, 9)));
}
