// Who opened the shelf before another did (I10): whatever began the attempt that it is at, its
// first change looks for a rival, and nothing is written where he may have his version.
#include <memory>
#include <optional>
#include <vector>

#include "cached_disk.hpp"
#include "format/format.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSize = 5000;

struct Step {
  const char* what;
  void (*take)(Shelf& shelf, TensorRef& w);  // after it an attempt is open that looked for no rival
};

const Step kSteps[] = {
    {"persist", [](Shelf& shelf, TensorRef&) { shelf.persist(2); }},
    {"persist_async", [](Shelf& shelf, TensorRef&) { shelf.persist_async(2).get(); }},
    {"discard", [](Shelf& shelf, TensorRef&) { shelf.discard(); }},
    {"a transaction",
     [](Shelf& shelf, TensorRef& w) {
       shelf.persist(2);
       Transaction transaction = shelf.transaction();
       w.write(pattern(kSize, 3));
       transaction.commit(3);
     }},
    {"a transaction discarded",
     [](Shelf& shelf, TensorRef& w) {
       shelf.persist(2);
       Transaction transaction = shelf.transaction();
       w.write(pattern(kSize, 3));
       transaction.discard();
     }},
    {"rollback",
     [](Shelf& shelf, TensorRef&) {
       shelf.persist(2);
       shelf.rollback(1);
     }},
    {"prepared and committed",
     [](Shelf& shelf, TensorRef&) {
       shelf.prepare(2);
       shelf.resolve(Decision::commit);
     }},
    {"prepared and abandoned",
     [](Shelf& shelf, TensorRef&) {
       shelf.prepare(2);
       shelf.resolve(Decision::abandon);
     }},
    {"abandoned behind what was let go",
     [](Shelf& shelf, TensorRef& w) {
       shelf.prepare(2);
       w.assign().write(pattern(kSize, 3));
       shelf.resolve(Decision::abandon);
     }},
    {"abandoned behind what was assigned",
     [](Shelf& shelf, TensorRef& w) {
       shelf.prepare(2);
       w.write(pattern(kSize, 3));
       shelf.resolve(Decision::abandon);
       shelf.discard();
     }},
};

struct Change {
  const char* what;
  void (*make)(Shelf& shelf, TensorRef& w);
};

const Change kChanges[] = {
    {"write", [](Shelf&, TensorRef& w) { w.write(pattern(10, 9)); }},
    {"assign", [](Shelf&, TensorRef& w) { w.assign().write(pattern(10, 9)); }},
    {"create", [](Shelf& shelf, TensorRef&) { make(shelf, "x", 100); }},
    {"replace",
     [](Shelf& shelf, TensorRef&) {
       shelf.replace("w", DType::uint8, std::vector<std::int64_t>{100});
     }},
};

}  // namespace

TEST_CASE("a shelf that another is moved to is closed, and lets its medium go") {
  const auto disk = std::make_shared<CachedDisk>();
  const auto other = std::make_shared<CachedDisk>();
  for (const auto& each : {disk, other}) {
    CachedMedium medium(each);
    Shelf::format(medium);
  }
  const auto open = [](const std::shared_ptr<CachedDisk>& each) {
    return Shelf::open(std::make_unique<CachedMedium>(each), {.mode = Mode::update});
  };
  Shelf shelf = open(disk);
  Shelf second = open(other);
  make(second, "w", kSize);
  shelf = std::move(second);
  CHECK(disk.use_count() == 1);
  Shelf& itself = shelf;
  shelf = std::move(itself);
  CHECK(shelf.names() == std::vector<std::string>{"w"});
  CHECK(shelf.persist(1).version == 1);
}

TEST_CASE("who mended a copy of the incarnation sees whoever opens after him") {
  const unsigned copy = GENERATE(0U, 1U);
  const auto disk = std::make_shared<CachedDisk>();
  {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  const auto open = [&] {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = Mode::update});
  };
  open().close();
  std::fill_n(disk->visible.begin() + static_cast<std::ptrdiff_t>(format::incarnation_at(copy)),
              kPageBytes, std::byte{0x5A});
  Shelf older = open();
  CHECK(older.info().recovery.repaired_copies == 1);
  Shelf newer = open();
  const unsigned events = disk->events;
  CHECK(code_of([&] { make(older, "w", kSize); }) == Errc::busy);
  CHECK(disk->events == events);
  make(newer, "w", kSize);
  CHECK(newer.persist(1).version == 1);
}

TEST_CASE("the first change of an attempt looks for a rival, whatever began the attempt") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const bool behind = GENERATE(false, true);  // of a change of the attempt before, which looked
  for (const Step& step : kSteps) {
    for (const Change& change : kChanges) {
      CAPTURE(step.what, change.what, behind, placement == Placement::whole);
      const auto disk = std::make_shared<CachedDisk>();
      const OpenOptions options = {
          .mode = Mode::update, .keep = 1, .in_flight = 2, .placement = placement};
      {
        CachedMedium medium(disk);
        Shelf::format(medium, options);
      }
      const auto open = [&] { return Shelf::open(std::make_unique<CachedMedium>(disk), options); };
      Shelf older = open();
      TensorRef w = make(older, "w", kSize);
      w.write(pattern(kSize, 1));
      older.persist(1);
      if (behind) w.write(pattern(kSize, 2));
      step.take(older, w);
      const std::uint64_t version = older.version();
      const auto committed = value(w, true);
      Shelf newer = open();  // nothing keeps him out
      const unsigned events = disk->events;
      for (int times = 0; times < 2; ++times) {
        const auto error = error_of([&] { change.make(older, w); });
        REQUIRE(error);
        CHECK(error->code() == Errc::busy);
      }
      CHECK(disk->events == events);  // nothing was written
      CHECK_FALSE(w.info().dirty);
      CHECK(older.names() == std::vector<std::string>{"w"});
      CHECK(value(newer.find("w").value()) == committed);
      newer.find("w")->write(pattern(kSize, 7));
      CHECK(newer.persist(7).version == version + 1);
      CHECK(newer.verify().damage.empty());
      const unsigned now = disk->events;
      CHECK(code_of([&] { older.persist(8); }) == Errc::busy);
      CHECK(disk->events == now);  // not even what a commit describes before its flip
      CHECK(code_of([&] { older.persist(8); }) == Errc::failed);
    }
  }
}

TEST_CASE("a mark of a rival is not written over: by a preparation, or by an abandonment") {
  const auto disk = std::make_shared<CachedDisk>();
  {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  const auto open = [&](Mode mode = Mode::update) {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
  };
  Shelf older = open();
  make(older, "w", kSize).write(pattern(kSize, 1));
  older.persist(1);
  older.find("w")->write(pattern(kSize, 2));
  std::optional<Shelf> newer;
  const auto begin = [&] {
    newer = open();
    if (newer->prepared()) newer->resolve(Decision::abandon);
    newer->find("w")->write(pattern(kSize, 3));
    newer->prepare(3, "newer");
  };
  const bool late = GENERATE(false, true);  // the rival comes when the older one has prepared
  if (late) {
    older.prepare(2, "older");
    begin();
    CHECK(code_of([&] { older.resolve(Decision::abandon); }) == Errc::busy);
  } else {
    disk->barrier_fails = [&](unsigned) {  // within the older one's first barrier
      disk->barrier_fails = {};
      begin();
      return false;
    };
    CHECK(code_of([&] { older.prepare(2, "older"); }) == Errc::busy);
  }
  REQUIRE(open(Mode::read).prepared());
  CHECK(open(Mode::read).prepared()->id == "newer");
  newer->resolve(Decision::commit);
  newer->close();
  CHECK((value(open().find("w").value()) == pattern(kSize, 3)));
}

TEST_CASE("a copy of the incarnation that cannot be read keeps nobody from committing") {
  class Blind final : public SharedMedium {
   public:
    Blind(std::shared_ptr<Medium> medium, int& refused)
        : SharedMedium(std::move(medium)), refused_(refused) {}
    void look(std::uint64_t at, std::span<std::byte> bytes) override {
      if (at == format::incarnation_at(0) || at == format::incarnation_at(1)) {
        ++refused_;
        throw Error(Errc::io, "the read failed", "Open it again.", EIO);
      }
      SharedMedium::look(at, bytes);
    }

   private:
    int& refused_;
  };
  const std::shared_ptr<Medium> medium = make_memory_medium(0, 64 * kMiB);
  Shelf::format(*medium);
  int refused = 0;
  Shelf shelf = Shelf::open(std::make_unique<Blind>(medium, refused), {.mode = Mode::update});
  make(shelf, "t", 3000).write(pattern(3000, 1));
  shelf.persist(1);
  CHECK(refused > 0);
  CHECK(shelf.step() == 1U);
}
