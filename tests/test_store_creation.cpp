// A tensor that is created, or replaced, with its value: it is there whole or not at all, whatever
// attempts come and go meanwhile.
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "asleep.hpp"
#include "kept_versions.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSize = 2 * kMiB + 1000;

struct Rig {
  Bench bench = Bench(256 * kMiB, GENERATE(true, false));
  Shelf shelf = bench.open();
  TensorRef w = make(shelf, "w", 100);
  bool replaces = GENERATE(false, true);  // "x", which is there then, and has another value

  Rig() {
    if (replaces) make(shelf, "x", 50).write(pattern(50, 1));
    shelf.persist(1);
  }
  Assignment begin() {
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(kSize)};
    return replaces ? shelf.replace_with("x", DType::uint8, shape)
                    : shelf.create_with("x", DType::uint8, shape);
  }
  void assign_all(Assignment& value, unsigned seed) const {
    const auto bytes = pattern(kSize, seed);
    constexpr std::size_t kPiece = 700'001;  // ends where no chunk does
    for (std::size_t at = 0; at < kSize; at += kPiece) {
      value.write(std::span(bytes).subspan(at, std::min(kPiece, kSize - at)), at);
    }
  }
  // What was there before, and nothing else.
  void check_before() const {
    const auto x = shelf.find("x");
    REQUIRE(x.has_value() == replaces);
    if (x) CHECK(value(*x) == pattern(50, 1));
  }
  void check_there(const std::vector<std::byte>& bytes) const {
    const auto x = shelf.find("x");
    REQUIRE(x);
    CHECK((value(*x) == bytes));
  }
  void check_reopened(const std::vector<std::byte>& bytes) {
    shelf.close();
    shelf = bench.open(Mode::update, Verify::on_open);
    check_there(bytes);
  }
};

}  // namespace

TEST_CASE("a tensor appears with its value") {
  Rig rig;
  {
    Assignment creation = rig.begin();
    rig.assign_all(creation, 2);
    rig.check_before();
    creation.done();
    rig.check_there(pattern(kSize, 2));
    CHECK(code_of([&] { creation.write(pattern(8, 1)); }) == Errc::unsupported);
  }
  const Commit commit = rig.shelf.persist(2);
  CHECK(commit.data_bytes == kSize);
  CHECK(rig.shelf.find("x")->info().version == 2);
  rig.check_reopened(pattern(kSize, 2));
}

TEST_CASE("what was not written of it is zeros") {
  Rig rig;
  {
    Assignment creation = rig.begin();
    creation.write(pattern(1000, 2), kMiB + 7);
    creation.done();
  }
  std::vector<std::byte> expected(kSize);
  const auto part = pattern(1000, 2);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB + 7);
  rig.check_there(expected);
  rig.shelf.persist(2);
  rig.check_reopened(expected);
}

TEST_CASE("one that is let go leaves nothing behind") {
  Rig rig;
  std::optional<std::uint64_t> free_bytes;
  for (int round = 0; round < 3; ++round) {  // the shelf grows in the first
    {
      Assignment creation = rig.begin();
      rig.assign_all(creation, 2);
    }
    CHECK(rig.shelf.free_bytes() == free_bytes.value_or(rig.shelf.free_bytes()));
    free_bytes = rig.shelf.free_bytes();
  }
  rig.check_before();
  CHECK(rig.shelf.persist(2).data_bytes == 0);
  rig.check_before();
}

TEST_CASE("what ends an attempt in between passes it by") {
  struct Ending {
    const char* what;
    void (*on)(Rig& rig);
  };
  const Ending ending =
      GENERATE(Ending{"persist", [](Rig& rig) { rig.shelf.persist(2); }},
               Ending{"persist_async", [](Rig& rig) { rig.shelf.persist_async(2).get(); }},
               Ending{"discard", [](Rig& rig) { rig.shelf.discard(); }},
               Ending{"rollback", [](Rig& rig) { rig.shelf.rollback(1); }},
               Ending{"transaction", [](Rig& rig) { auto gone = rig.shelf.transaction(); }},
               Ending{"create", [](Rig& rig) { make(rig.shelf, "other", 100); }});
  CAPTURE(ending.what);
  Rig rig;
  std::optional<Waiter> other;
  {
    Assignment creation = rig.begin();
    rig.assign_all(creation, 2);
    other.emplace([&] { ending.on(rig); });
    CHECK(other->waits());  // at the gate, which it has taken: it comes before done() does
    creation.done();
  }
  other->join();
  const auto x = rig.shelf.find("x");
  if (x && x->info().dirty) {  // else a transaction, which it came into, dropped it
    rig.check_there(pattern(kSize, 2));
    const std::uint64_t version = rig.shelf.persist(3).version;
    CHECK(rig.shelf.find("x")->info().version == version);
    rig.shelf.find("x")->write(pattern(8, 9), 5);  // over what is labelled rightly
    rig.shelf.persist(4);
    auto expected = pattern(kSize, 2);
    const auto part = pattern(8, 9);
    std::copy(part.begin(), part.end(), expected.begin() + 5);
    rig.check_reopened(expected);
  }
}

TEST_CASE("of two threads that make one name, the slower is told so") {
  Rig rig;
  const auto make_x = [&] {
    const std::vector<std::int64_t> shape = {30};
    if (rig.replaces) {
      rig.shelf.erase("x");
    } else {
      rig.shelf.create("x", DType::uint8, shape);
    }
  };
  Assignment creation = rig.begin();
  rig.assign_all(creation, 2);
  Waiter other(make_x);
  CHECK(other.waits());
  const auto code = code_of([&] { creation.done(); });
  other.join();
  CHECK(code == (rig.replaces ? Errc::unknown_name : Errc::name_taken));
  CHECK(rig.shelf.names().size() == (rig.replaces ? 1 : 2));
  rig.shelf.persist(2);
}

TEST_CASE("within it, what would wait for it is refused") {
  Rig rig;
  Assignment creation = rig.begin();
  CHECK(code_of([&] { rig.shelf.persist(); }) == Errc::unsupported);
  CHECK(code_of([&] { make(rig.shelf, "y", 5); }) == Errc::unsupported);
  CHECK(code_of([&] { rig.begin(); }) == Errc::unsupported);
}

TEST_CASE("a commit has each new tensor with its value or not at all") {
  const Bench bench(64 * kMiB, GENERATE(true, false));
  Shelf shelf = bench.open();
  shelf.persist(0);
  std::atomic<bool> done = false;
  std::thread maker([&] {
    const std::vector<std::int64_t> shape = {5000};
    for (unsigned round = 0; round < 300; ++round) {
      const bool there = shelf.find("x").has_value();
      Assignment creation = there ? shelf.replace_with("x", DType::uint8, shape)
                                  : shelf.create_with("x", DType::uint8, shape);
      creation.write(std::vector(2500, std::byte{1}));
      creation.write(std::vector(2500, std::byte{1}), 2500);
      if (round % 5 != 0) creation.done();
    }
    done = true;
  });
  unsigned torn = 0;
  while (!done) {
    shelf.persist();
    const auto x = shelf.at(shelf.version()).find("x");
    if (!x) continue;
    std::vector<std::byte> bytes(5000);
    try {
      x->read(bytes);
    } catch (const Error& error) {
      if (error.code() != Errc::stale) throw;
    }
    torn += static_cast<unsigned>(std::count(bytes.begin(), bytes.end(), std::byte{0}) > 0);
  }
  maker.join();
  CHECK(torn == 0);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("an assignment that is done keeps no place of what it made") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  constexpr std::int64_t kBytes = 4 << 20;
  const std::array<std::int64_t, 1> shape = {kBytes};
  Assignment creation = shelf.create_with("x", DType::uint8, shape);
  creation.write(pattern(kBytes, 1));
  creation.done();
  CHECK(code_of([&] { creation.done(); }) == Errc::unsupported);
  shelf.persist();
  shelf.erase("x");
  shelf.persist();
  CHECK(shelf.free_bytes() >= 2 * kBytes);  // both slots
}

TEST_CASE("room that was reserved is there for what is created later") {
  const std::uint64_t most = 64 * kMiB;
  const Bench bench(most, GENERATE(true, false));
  std::uint64_t size = 0;
  {
    Shelf shelf = bench.open();
    const std::uint64_t before = bench.medium->size();
    shelf.reserve(10 * kMiB);
    size = bench.medium->size();
    CHECK(size >= before + 20 * kMiB);
    CHECK(shelf.free_bytes() >= 20 * kMiB);
    shelf.reserve(10 * kMiB);  // it is there
    CHECK(bench.medium->size() == size);
    shelf.persist();
  }
  Shelf shelf = bench.open();  // it lasts
  make(shelf, "large", 8 * kMiB).write(pattern(8 * kMiB, 1));
  for (int i = 0; i < 10; ++i) make(shelf, std::to_string(i), 100'000);
  shelf.persist();
  CHECK(bench.medium->size() == size);
  for (const std::uint64_t wanted : {most, ~std::uint64_t{0}}) {
    const auto error = error_of([&] { shelf.reserve(wanted); });
    REQUIRE(error);
    CHECK(error->code() == Errc::full);
    CHECK(contains(error->what(), "2 x "));
    CHECK(bench.medium->size() == size);
  }
  shelf.persist();
  CHECK(code_of([&] { bench.open(Mode::read).reserve(1); }) == Errc::read_only);
}
