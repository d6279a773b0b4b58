// Memory that runs out: in every call, each allocation in turn is denied (of long loops,
// some). Nothing may be lost by it: either the shelf goes on, and shows and commits what it
// showed before or after the call; or it says that it can commit no more (I8), and opening it again
// gives an acknowledged version.
#include <chrono>
#include <map>
#include <new>
#include <optional>

#include "asleep.hpp"
#include "denied_memory.hpp"
#include "kept_versions.hpp"
#include "store_bench.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// In long loops one of so many is denied: a prime, and so no number of allocations of one page.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kStride = 61;  // ten times as slow
#else
constexpr std::int64_t kStride = 7;
#endif

using State = std::map<std::string, std::vector<std::byte>>;

State state_of(const Shelf& shelf, bool committed = false) {
  State state;
  for (const std::string& name : shelf.names()) {
    const TensorRef tensor = shelf.find(name).value();
    if (committed && tensor.info().version == 0) continue;
    state[name] = value(tensor, committed);
  }
  return state;
}

// Each chunk is as in the one or the other, and the tensors are those of one of them.
bool lies_between(const State& state, const State& before, const State& after) {
  const auto fits = [&](const State& layout) {
    if (state.size() != layout.size()) return false;
    for (const auto& tensor : state) {
      const std::string& name = tensor.first;
      const auto& bytes = tensor.second;
      const auto like = layout.find(name);
      if (like == layout.end() || like->second.size() != bytes.size()) return false;
      for (std::size_t at = 0; at < bytes.size(); at += kChunkBytes) {
        const std::size_t size = std::min<std::size_t>(kChunkBytes, bytes.size() - at);
        const auto same = [&](const State& other) {
          const auto there = other.find(name);
          return there != other.end() && there->second.size() == bytes.size() &&
                 std::memcmp(bytes.data() + at, there->second.data() + at, size) == 0;
        };
        if (!same(before) && !same(after)) return false;
      }
    }
    return true;
  };
  return fits(before) || fits(after);
}

struct Call {
  const char* name;
  std::function<void(Shelf&)> stage;  // what goes before it
  std::function<void(Shelf&)> make;
  bool commits = false;  // may leave the shelf unable to commit again
  bool reopens = false;  // between the two: nothing is known of the slots, no list has room
  bool loops = false;    // over hundreds of pages, each of which allocates the same
};

void populate(Shelf& shelf) {
  make(shelf, "a", kMiB + 5000).write(pattern(kMiB + 5000, 1));
  make(shelf, "b", 5000).write(pattern(5000, 2));
  make(shelf, "gone", 300'000).write(pattern(300'000, 3));
  shelf.persist(1);
  shelf.find("a")->write(pattern(1000, 4), kMiB - 500);
  shelf.find("b")->write(pattern(5000, 5));
  shelf.persist(2);
}

// Two records a page on 169 pages, and one page of cells: the next one needs a second directory.
void fill_records_pages(Shelf& shelf) {
  const std::vector<std::int64_t> shape(kMaxDims, 0);
  for (int i = 0; i < 338; ++i) {
    shelf.create(std::string(1000, 'x') + std::to_string(i), DType::uint8, shape);
  }
  shelf.persist(3);
}

void change_much(Shelf& shelf) {
  shelf.find("a")->write(pattern(5000, 6), kMiB);
  shelf.find("b")->write(pattern(100, 7), 700);
  shelf.erase("gone");
  make(shelf, "new", 70'000).write(pattern(70'000, 8));
  make(shelf, "zeros", kMiB + 1);
}

const std::vector<Call>& calls() {
  const auto nothing = [](Shelf&) {};
  static const std::vector<Call> table = {
      {"create", nothing, [](Shelf& shelf) { make(shelf, "new", 5000); }},
      {"create, growing", nothing, [](Shelf& shelf) { make(shelf, "new", 5 * kMiB); }},
      {"create, a new directory page", fill_records_pages,
       [](Shelf& shelf) {
         const std::vector<std::int64_t> shape(kMaxDims, 0);
         shelf.create(std::string(1000, 'y'), DType::uint8, shape);
       },
       false, false, true},
      {"create beside much that is staged", change_much,
       [](Shelf& shelf) { make(shelf, "newer", 400'000); }},
      {"replace", nothing,
       [](Shelf& shelf) { shelf.replace("a", DType::float32, std::vector<std::int64_t>{10'000}); }},
      {"replace what was never committed", change_much,
       [](Shelf& shelf) { shelf.replace("new", DType::uint8, std::vector<std::int64_t>{9000}); }},
      {"erase", nothing, [](Shelf& shelf) { shelf.erase("gone"); }},
      {"erase what was never committed", change_much, [](Shelf& shelf) { shelf.erase("new"); }},
      {"write", nothing, [](Shelf& shelf) { shelf.find("a")->write(pattern(kMiB + 5000, 9)); }},
      {"write a part", nothing,
       [](Shelf& shelf) { shelf.find("a")->write(pattern(kMiB / 2 + 3000, 9), kMiB / 2); }},
      {"read", change_much, [](Shelf& shelf) { state_of(shelf); }},
      {"lease", nothing, [](Shelf& shelf) { shelf.find("a")->lease(); }},
      {"verify", change_much, [](Shelf& shelf) { shelf.verify(); }},
      {"tell", nothing,
       [](Shelf& shelf) {
         shelf.info();
         shelf.stats();
         shelf.names();
       }},
      {"persist", change_much, [](Shelf& shelf) { shelf.persist(4); }, true},
      {"persist many pages", fill_records_pages,
       [](Shelf& shelf) {
         shelf.erase(std::string(1000, 'x') + "7");
         shelf.persist(4);
       },
       true, false, true},
      {"persist right after an open", nothing,
       [](Shelf& shelf) {
         shelf.find("a")->write(pattern(100, 9), kMiB - 50);
         shelf.persist(4);
       },
       true, true},
      {"persist_async", change_much, [](Shelf& shelf) { shelf.persist_async(4).get(); }, true},
  };
  return table;
}

// False where the shelf says that it can commit no more.
bool can_commit(Shelf& shelf) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      shelf.persist(5);
      return true;
    } catch (const std::bad_alloc&) {  // a background commit's, thrown by the next call
      REQUIRE(attempt == 0);
    } catch (const Error& error) {
      REQUIRE(error.code() == Errc::failed);
      return false;
    }
  }
  return false;
}

// New values for everything there is, one more tensor, commit, open again.
void use_fully(const Bench& bench) {
  State expected;
  {
    Shelf shelf = bench.open();
    make(shelf, "last", 200'000);
    unsigned seed = 100;
    for (const std::string& name : shelf.names()) {
      TensorRef tensor = shelf.find(name).value();
      expected[name] = pattern(tensor.info().size_bytes, ++seed);
      tensor.write(expected[name]);
    }
    shelf.persist(6);
  }
  const Shelf shelf = bench.open();
  REQUIRE((state_of(shelf) == expected));  // parenthesised: Catch would print megabytes
  REQUIRE(shelf.verify().damage.empty());
}

void close_quietly(Shelf& shelf) {
  try {
    shelf.close();
  } catch (const std::bad_alloc&) {  // what the commit in the background threw
  }
}

struct Scene {
  Bench bench;
  Shelf shelf;
  Scene(const Call& call, bool mapped) : bench(64 * kMiB, mapped), shelf(bench.open()) {
    populate(shelf);
    call.stage(shelf);
    if (!call.reopens) return;
    shelf.close();
    shelf = bench.open();
  }
};

void deny_each(const Call& call, bool mapped, Denial denial) {
  State before;
  State after;
  State acked;
  {
    Scene twin(call, mapped);
    before = state_of(twin.shelf);
    acked = state_of(twin.bench.open(Mode::read));
    call.make(twin.shelf);
    after = state_of(twin.shelf);
  }
  const auto next = [&](std::int64_t n) {
    return n + (call.loops && n >= 32 ? kStride : kSanitized ? 3 : 1);
  };
  unsigned denied = 0;
  std::int64_t nth = 0;
  for (bool met = true; met; nth = next(nth)) {
    CAPTURE(call.name, mapped, denial == Denial::once, nth);
    Scene scene(call, mapped);
    met = denying(nth, denial, [&] { call.make(scene.shelf); });
    denied += met;
    State shown = state_of(scene.shelf);
    REQUIRE(lies_between(shown, before, after));
    if (!can_commit(scene.shelf)) {
      REQUIRE(call.commits);
      for (const auto& [name, bytes] : state_of(scene.shelf, true)) {  // stays readable
        const auto is = [&, &tensor = name, &shown_bytes = bytes](const State& state) {
          const auto there = state.find(tensor);
          return there != state.end() && there->second == shown_bytes;
        };
        REQUIRE((is(acked) || is(after)));
      }
      close_quietly(scene.shelf);
      const State found = state_of(scene.bench.open());
      REQUIRE((found == acked || found == after));
    } else {
      scene.shelf.close();
      REQUIRE((state_of(scene.bench.open()) == shown));
    }
    if (mapped) use_fully(scene.bench);
  }
  const std::string name = call.name;
  REQUIRE((denied > 0 || name == "erase" || name == "verify"));
}

}  // namespace

TEST_CASE("memory that runs out within a call loses nothing") {
  const bool mapped = GENERATE(true, false);
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  for (const Call& call : calls()) {
    SECTION(call.name) { deny_each(call, mapped, denial); }
  }
}

TEST_CASE("memory that runs out while a shelf is opened leaves it as it was") {
  const Mode mode = GENERATE(Mode::update, Mode::read);
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  const Bench bench;
  State acked;
  {
    Shelf shelf = bench.open();
    populate(shelf);
    acked = state_of(shelf);
  }
  std::int64_t nth = 0;
  for (bool met = true; met; ++nth) {
    CAPTURE(mode == Mode::read, denial == Denial::once, nth);
    met = denying(nth, denial, [&] { bench.open(mode, Verify::on_open); });
    REQUIRE((state_of(bench.open(Mode::read)) == acked));
    REQUIRE(bench.open().info().version == 2);
  }
  REQUIRE(nth > 10);
  use_fully(bench);
}

namespace {

// Denies each allocation of a commit in turn, of a shelf as `stage` leaves it: an exception at
// worst, and the acknowledged version or the one in flight is found.
void deny_commit(const std::function<Shelf(const Bench&)>& stage,
                 const std::function<void()>& look) {
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  std::int64_t nth = 0;
  for (bool met = true; met; ++nth) {
    CAPTURE(denial == Denial::once, nth);
    const Bench bench;
    Shelf shelf = stage(bench);
    const State acked = state_of(bench.open(Mode::read));
    const State staged = state_of(shelf);
    met = denying(nth, denial, [&] { shelf.persist(9); });
    look();
    const bool committed = can_commit(shelf);
    shelf.close();
    const State found = state_of(bench.open(Mode::update, Verify::on_open));
    REQUIRE((found == staged || (!committed && found == acked)));
  }
  REQUIRE(nth > 1);
}

}  // namespace

TEST_CASE("memory that runs out when every page of the manifest changes, and one is new") {
  const std::vector<std::int64_t> shape(kMaxDims, 0);  // two such records fill a page
  const auto name = [](int i) { return std::string(1000, 'x') + std::to_string(i); };
  deny_commit(
      [&](const Bench& bench) {
        {
          Shelf shelf = bench.open();
          for (int i = 0; i < 16; ++i) shelf.create(name(i), DType::uint8, shape);
          shelf.persist(1);
        }
        Shelf shelf = bench.open();  // so that no list has room to spare
        shelf.create(name(16), DType::uint8, shape);
        for (int i = 0; i < 16; i += 2) shelf.erase(name(i));
        return shelf;
      },
      [] {});
}

TEST_CASE("memory that runs out in a commit never leaves it flipped and not told") {
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  std::int64_t nth = 0;
  for (bool met = true; met; ++nth) {
    CAPTURE(denial == Denial::once, nth);
    const Bench bench;
    Shelf shelf = bench.open();
    populate(shelf);
    change_much(shelf);
    met = denying(nth, denial, [&] { shelf.persist(4); });
    REQUIRE(shelf.version() == bench.open(Mode::read).version());
  }
  REQUIRE(nth > 1);
}

TEST_CASE("a transaction is dropped, also without memory") {
  const bool destroyed = GENERATE(true, false);
  const Bench bench;
  Shelf shelf = bench.open();
  populate(shelf);
  const State before = state_of(shelf);
  std::optional<Transaction> transaction = shelf.transaction();
  change_much(shelf);
  denying(0, Denial::from_then_on,
          [&] { destroyed ? transaction.reset() : transaction->discard(); });
  CHECK((state_of(shelf) == before));
  CHECK(shelf.persist(3).version == 3);  // no transaction is left that would refuse it
}

TEST_CASE("a transaction that cannot be dropped for want of memory is committed by nobody") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "a", 5000).write(pattern(5000, 1));
  make(shelf, "b", 5000);
  shelf.persist(1);
  std::optional<Transaction> transaction = shelf.transaction();
  shelf.find("a")->write(pattern(5000, 2));
  kept.doors->write.shut();
  Waiter writer([&] { shelf.find("b")->write(pattern(5000, 3)); });
  kept.doors->write.await_someone();
  Waiter closing([&] { shelf.has_uncommitted(); });  // it has the gate, and waits for who writes
  REQUIRE(closing.waits());
  REQUIRE(denying(0, Denial::once, [&] { transaction.reset(); }));
  kept.doors->write.open();
  writer.join();
  closing.join();
  CHECK(code_of([&] { shelf.persist(2); }) == Errc::failed);
  CHECK((value_at(kept.open(Mode::read), 1, "a") == pattern(5000, 1)));
}

TEST_CASE("memory that runs out when several leased tensors go at once") {
  std::vector<Lease> leases;
  deny_commit(
      [&](const Bench& bench) {
        leases.clear();
        Shelf shelf = bench.open();
        make(shelf, "stays", 5000).write(pattern(5000, 7));
        for (unsigned i = 0; i < 5; ++i) {
          make(shelf, "t" + std::to_string(i), 30'000).write(pattern(30'000, i));
        }
        shelf.persist(1);
        for (unsigned i = 0; i < 5; ++i) {
          leases.push_back(shelf.find("t" + std::to_string(i))->lease());
          shelf.erase("t" + std::to_string(i));
        }
        return shelf;
      },
      [&] {
        for (unsigned i = 0; i < 5; ++i) {
          const auto bytes = leases[i].bytes();
          const auto expected = pattern(30'000, i);
          REQUIRE(same(bytes, expected));
        }
      });
}

TEST_CASE("a pin that memory ran out for holds no version") {
  const Bench bench;
  Shelf shelf = bench.open();
  shelf.persist(1);
  bool met = true;
  std::int64_t nth = 0;
  for (; met; ++nth) {
    std::optional<VersionPin> pin;
    met = denying(nth, Denial::once, [&] { pin.emplace(shelf.pin()); });
    pin.reset();
    shelf.persist();
    REQUIRE(shelf.versions().size() == 1);
  }
  CHECK(nth > 2);
}

TEST_CASE("a refresh that memory ran out in finds the version the next time") {
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  const Bench bench;
  Shelf writer = bench.open();
  unsigned version = 1;
  commit(writer, version);
  Shelf reader = bench.open(Mode::read);
  bool met = true;
  for (std::int64_t nth = 0; met; ++nth) {
    CAPTURE(nth);
    commit(writer, ++version);
    met = denying(nth, denial, [&] { reader.refresh(); });
    REQUIRE(reader.wait_for(version, std::chrono::seconds(0)));
    REQUIRE((value(*reader.find("w")) == pattern(5000, version)));
  }
  CHECK(version > 10);
}
