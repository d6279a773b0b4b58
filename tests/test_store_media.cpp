// Shelves on several media: what lies where, one commit for all, and media that are not what they
// should be.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "format/layout.hpp"
#include "held_medium.hpp"
#include "kept_versions.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr unsigned kBoth[] = {0, 1};
constexpr unsigned kSecond[] = {1};

// Its barriers fail while that is said.
class Failing final : public SharedMedium {
 public:
  Failing(std::shared_ptr<Medium> medium, bool mapped, const bool& fails)
      : SharedMedium(std::move(medium), mapped), fails_(fails) {}
  void barrier() override {
    if (fails_) throw Error(Errc::io, "the barrier failed", "Open it again.", EIO);
    SharedMedium::barrier();
  }

 private:
  const bool& fails_;
};

struct Several {
  std::vector<std::shared_ptr<Medium>> media;
  std::vector<std::shared_ptr<Doors>> doors;
  std::vector<bool> mapped;

  explicit Several(std::vector<bool> which) : mapped(std::move(which)) {
    for (std::size_t i = 0; i < mapped.size(); ++i) {
      media.emplace_back(make_memory_medium(0, 256 * kMiB));
      doors.push_back(std::make_shared<Doors>());
    }
    Shelf::format(*media[0]);
  }
  Shelf open(OpenOptions options = {}) const {
    if (options.mode == Mode::append) options.mode = Mode::update;
    std::vector<std::unique_ptr<Medium>> also;
    for (std::size_t i = 1; i < media.size(); ++i) {
      also.push_back(std::make_unique<HeldMedium>(media[i], doors[i], mapped[i]));
    }
    return Shelf::open(std::make_unique<HeldMedium>(media[0], doors[0], mapped[0]), std::move(also),
                       options);
  }
};

TensorRef make_on(Shelf& shelf, std::string_view name, std::int64_t size,
                  std::span<const unsigned> media) {
  return shelf.create(name, DType::uint8, std::array{size}, media);
}

}  // namespace

TEST_CASE("tensors lie where they are told to, and one commit has them all") {
  const Several several({GENERATE(true, false), GENERATE(true, false)});
  {
    Shelf shelf = several.open();
    REQUIRE(shelf.info().media.size() == 2);
    make_on(shelf, "first", kKeptBytes, {}).write(pattern(kKeptBytes, 1));
    make_on(shelf, "second", kKeptBytes, kSecond).write(pattern(kKeptBytes, 2));
    make_on(shelf, "striped", 5 * kMiB + 7, kBoth).write(pattern(5 * kMiB + 7, 3));
    const std::uint64_t before = several.media[1]->size();
    CHECK(before > 8 * kMiB);
    shelf.persist(7);
  }
  Shelf shelf = several.open({.mode = GENERATE(Mode::update, Mode::read)});
  CHECK(shelf.step() == 7);
  CHECK((value(*shelf.find("first")) == pattern(kKeptBytes, 1)));
  CHECK((value(*shelf.find("second")) == pattern(kKeptBytes, 2)));
  CHECK((value(*shelf.find("striped")) == pattern(5 * kMiB + 7, 3)));
  CHECK(shelf.verify().damage.empty());
  const ShelfInfo info = shelf.info();
  REQUIRE(info.media.size() == 2);
  CHECK(info.media[1].number == 1);
  CHECK(info.capacity_bytes == info.media[0].capacity_bytes + info.media[1].capacity_bytes);
}

TEST_CASE("a shelf without its other medium is refused, and shown as far as it is whole") {
  Several several({true, true});
  {
    Shelf shelf = several.open();
    make_on(shelf, "first", 1000, {}).write(pattern(1000, 1));
    make_on(shelf, "second", 1000, kSecond).write(pattern(1000, 2));
    shelf.persist();
  }
  several.media.pop_back();
  for (const Mode mode : {Mode::update, Mode::read}) {
    const auto error = error_of([&] { several.open({.mode = mode}); });
    REQUIRE(error);
    CHECK(error->code() == Errc::medium_missing);
    CHECK(std::string(error->what()).find("medium 1") != std::string::npos);
  }
  const Shelf shelf = several.open({.mode = Mode::read, .salvage = true});
  CHECK((value(*shelf.find("first")) == pattern(1000, 1)));
  CHECK(code_of([&] { value(*shelf.find("second")); }) == Errc::corrupt);
  CHECK(shelf.verify().damage.size() == 1);
}

TEST_CASE(
    "who writes gives up no version because a medium of it is missing, and a reader shows the "
    "rest") {
  const std::array<std::shared_ptr<Medium>, 2> media = {make_memory_medium(0, 64 * kMiB),
                                                        make_memory_medium(0, 64 * kMiB)};
  Shelf::format(*media[0], {.keep = 2});
  const auto open = [&](Mode mode, bool both) {
    std::vector<std::unique_ptr<Medium>> also;
    if (both) also.push_back(std::make_unique<SharedMedium>(media[1]));
    return Shelf::open(std::make_unique<SharedMedium>(media[0]), std::move(also), {.mode = mode});
  };
  std::uint64_t version = 0;
  {
    Shelf shelf = open(Mode::update, true);
    make_on(shelf, "t", kKeptBytes, kSecond).write(pattern(kKeptBytes, 1));
    shelf.persist();
    shelf.remove_medium(1);
    shelf.persist();
    version = shelf.version();
  }
  {
    const Shelf reader = open(Mode::read, false);
    CHECK(reader.version() == version);
    CHECK((value(reader.find("t").value()) == pattern(kKeptBytes, 1)));
    CHECK(reader.versions().size() == 1);
  }
  CHECK(code_of([&] { open(Mode::update, false); }) == Errc::medium_missing);
  const Shelf shelf = open(Mode::update, true);
  CHECK(shelf.versions().size() > 1);
  CHECK((value_at(shelf, version - 1, "t") == pattern(kKeptBytes, 1)));
}

TEST_CASE("an older copy of a medium is refused, and one of another shelf") {
  Several several({true, true});
  const auto commit = [&](int stamp) {
    Shelf shelf = several.open();
    if (!shelf.find("w")) make_on(shelf, "w", 1000, kSecond);
    shelf.find("w")->write(pattern(1000, stamp));
    shelf.persist();
  };
  commit(1);
  std::vector<std::byte> older(several.media[1]->size());
  several.media[1]->read(0, older);
  commit(2);
  commit(3);
  std::vector<std::byte> newer(several.media[1]->size());
  several.media[1]->read(0, newer);
  const auto show = [&](std::span<const std::byte> bytes) {
    for (std::uint64_t at = 0; at < bytes.size(); at += kPageBytes) {
      several.media[1]->wait(several.media[1]->write(at, bytes.subspan(at, kPageBytes), 0));
    }
  };
  show(older);
  const auto error = error_of([&] { several.open(); });
  REQUIRE(error);
  CHECK(error->code() == Errc::medium_missing);
  CHECK(std::string(error->what()).find("older copy") != std::string::npos);
  show(newer);
  CHECK((value(*several.open().find("w")) == pattern(1000, 3)));
  Several other({true, true});
  other.open();
  std::swap(several.media[1], other.media[1]);
  const auto another = error_of([&] { several.open(); });
  REQUIRE(another);
  CHECK(another->code() == Errc::medium_missing);
  CHECK(std::string(another->what()).find("of the shelf") != std::string::npos);
}

TEST_CASE("a medium that no longer tells which version wrote to it is used, and that is said") {
  const Several several({true, true});
  {
    Shelf shelf = several.open();
    make_on(shelf, "w", 1000, kSecond).write(pattern(1000, 1));
    shelf.persist();
  }
  const auto notes = [](const Shelf& shelf) {
    std::string all;
    for (const std::string& note : shelf.info().recovery.notes) all += note + '\n';
    return all;
  };
  CHECK(notes(several.open()).empty());
  const std::vector<std::byte> lost(8, std::byte{0x5a});
  Medium& second = *several.media[1];
  for (const unsigned copy : {0U, 1U}) {
    second.wait(second.write(format::medium_stamp_at(copy), lost, 0));
  }
  {
    Shelf shelf = several.open();
    CHECK(notes(shelf).find("which version wrote to medium 1 last is lost") != std::string::npos);
    CHECK((value(*shelf.find("w")) == pattern(1000, 1)));
  }
  CHECK(notes(several.open()).empty());  // they were written anew
}

TEST_CASE("an attempt that came to nothing leaves a medium that can be used") {
  Several several({true, true});
  {
    Shelf shelf = several.open();
    make_on(shelf, "w", 1000, kSecond).write(pattern(1000, 1));
    several.doors[0]->barrier.shut();  // behind the other medium's
    Waiter commit([&] { shelf.persist(); });
    several.doors[0]->barrier.await_someone();
    std::vector<std::byte> before(several.media[0]->size());
    several.media[0]->read(0, before);
    several.doors[0]->barrier.open();
    commit.join();
    shelf.close();
    for (std::uint64_t at = 0; at < before.size(); at += kPageBytes) {
      several.media[0]->wait(several.media[0]->write(
          at, std::span<const std::byte>(before).subspan(at, kPageBytes), 0));
    }
  }
  Shelf shelf = several.open();
  CHECK(shelf.version() == 0);
  make_on(shelf, "w", 1000, kSecond).write(pattern(1000, 2));
  shelf.persist();
  shelf.close();
  CHECK((value(*several.open().find("w")) == pattern(1000, 2)));
}

TEST_CASE("media at paths are found where they were, or where they are said to be") {
  const scratch::Directory scratch;
  const auto path = scratch.path() / "run.shelf";
  const auto part = (scratch.path() / "run.part").string();
  {
    Shelf shelf = Shelf::open(path, {.also = {part}});
    CHECK(std::filesystem::exists(part));
    make_on(shelf, "w", kKeptBytes, kSecond).write(pattern(kKeptBytes, 1));
    shelf.persist();
  }
  CHECK((value(*Shelf::open(path).find("w")) == pattern(kKeptBytes, 1)));
  const auto moved = (scratch.path() / "moved.part").string();
  std::filesystem::rename(part, moved);
  const auto error = error_of([&] { Shelf::open(path); });
  REQUIRE(error);
  CHECK(error->code() == Errc::medium_missing);
  CHECK(std::string(error->what()).find(part) != std::string::npos);
  {
    Shelf shelf = Shelf::open(path, {.also = {moved}});
    CHECK((value(*shelf.find("w")) == pattern(kKeptBytes, 1)));
    const auto busy = error_of([&] { Shelf::open(moved); });
    REQUIRE(busy);
    shelf.persist();  // which has the path of now
  }
  CHECK((value(*Shelf::open(path).find("w")) == pattern(kKeptBytes, 1)));
  const auto alone = error_of([&] { Shelf::open(moved); });
  REQUIRE(alone);
  CHECK(alone->code() == Errc::not_a_shelf);
  CHECK(std::string(alone->what()).find("medium 1 of the shelf") != std::string::npos);
  const auto foreign = (scratch.path() / "text").string();
  std::ofstream(foreign) << std::string(8192, 'x');
  CHECK(code_of([&] { Shelf::open(path, {.also = {foreign}}); }) == Errc::not_a_shelf);
  Shelf anew = Shelf::open(path, {.mode = Mode::replace, .also = {moved}});
  CHECK(anew.info().media.size() == 2);
  CHECK(anew.names().empty());
}

TEST_CASE("large tensors lie in stripes over what is not mapped, small ones on the first") {
  const Several several({true, false, false});
  Shelf shelf = several.open();
  const std::uint64_t first = several.media[0]->size();
  make_on(shelf, "large", 8 * kMiB, {}).write(pattern(8 * kMiB, 1));
  CHECK(several.media[0]->size() < first + kMiB);  // its pages
  CHECK(several.media[1]->size() > 8 * kMiB);
  CHECK(several.media[2]->size() > 8 * kMiB);
  make_on(shelf, "small", 1000, {}).write(pattern(1000, 2));
  shelf.persist();
  CHECK((value(*shelf.find("large")) == pattern(8 * kMiB, 1)));
  const TensorRef resized = shelf.resize("large", 12 * kMiB);
  shelf.persist();
  auto expected = pattern(8 * kMiB, 1);
  expected.resize(12 * kMiB);
  CHECK((value(*shelf.find("large")) == expected));
  CHECK(several.media[0]->size() < first + kMiB);  // its pages
  CHECK(code_of([&] { make_on(shelf, "x", 10, std::array{5U}); }) == Errc::bad_argument);
  CHECK(code_of([&] { make_on(shelf, "x", 10, std::array{1U, 1U}); }) == Errc::bad_argument);
  Shelf chosen = [&] {
    shelf.close();
    return several.open({.place = [](std::string_view name, std::uint64_t) {
      return name == "here" ? std::vector<unsigned>{0} : std::vector<unsigned>{2};
    }});
  }();
  const std::uint64_t second = chosen.info().media[2].free_bytes;
  make_on(chosen, "there", 100, {});
  CHECK(chosen.info().media[2].free_bytes != second);
  chosen.persist();
  chosen.remove_medium(2);  // which the rule goes on to name
  make_on(chosen, "elsewhere", 100, {}).write(pattern(100, 5));
  chosen.persist();
  CHECK(chosen.find("elsewhere")->info().media != std::vector<unsigned>{2});
  CHECK(chosen.find("there")->info().media != std::vector<unsigned>{2});
}

TEST_CASE("a failure of one medium fails the attempt, and no committed version") {
  const Several several({false, false});
  bool fails = false;
  const auto open = [&] {
    std::vector<std::unique_ptr<Medium>> also;
    also.push_back(std::make_unique<Failing>(several.media[1], false, fails));
    return Shelf::open(std::make_unique<SharedMedium>(several.media[0], false), std::move(also),
                       {.mode = Mode::update});
  };
  Shelf shelf = open();
  make_on(shelf, "w", 1000, kSecond).write(pattern(1000, 1));
  shelf.persist();
  shelf.find("w")->write(pattern(1000, 2));
  fails = true;
  CHECK(code_of([&] { shelf.persist(); }) == Errc::io);
  fails = false;
  CHECK(code_of([&] { shelf.persist(); }) == Errc::failed);
  const Shelf again = open();
  CHECK(again.version() == 1);
  CHECK((value(*again.find("w")) == pattern(1000, 1)));
}

TEST_CASE("a shelf of an older format has one medium") {
  Several several({true, true});
  make_format_2(*several.media[0], 2);
  CHECK(code_of([&] { several.open(); }) == Errc::unsupported);
  several.media.pop_back();
  CHECK(several.open().info().media.size() == 1);
}

TEST_CASE("a medium that was deleted takes no commit") {
  const scratch::Directory scratch;
  const auto part = (scratch.path() / "run.part").string();
  Shelf shelf = Shelf::open(scratch.path() / "run.shelf", {.also = {part}});
  make_on(shelf, "w", 100, kSecond).write(pattern(100, 1));
  std::filesystem::remove(part);
  CHECK(code_of([&] { shelf.persist(); }) == Errc::gone);
  CHECK(shelf.version() == 0);
}

TEST_CASE("a medium that was deleted is told of soon where nothing is written to it") {
  const scratch::Directory scratch;
  const auto part = (scratch.path() / "run.part").string();
  Shelf shelf = Shelf::open(scratch.path() / "run.shelf", {.also = {part}});
  make_on(shelf, "w", 100, kSecond).write(pattern(100, 1));
  TensorRef small = make_on(shelf, "v", 100, std::array{0U});
  shelf.persist();
  std::filesystem::remove(part);
  std::optional<Error> error;
  for (unsigned i = 0; i < 1'000'000 && !error; ++i) {  // many times a millisecond's worth
    small.write(pattern(100, i));
    error = error_of([&] { shelf.persist(); });
  }
  REQUIRE(error.has_value());
  CHECK(error->code() == Errc::gone);
}

TEST_CASE("a header that a power loss left in part is as good as none, for its shelf alone") {
  Several several({true, true});
  several.open();
  const auto words = GENERATE(1U, 2U, 4U, 6U);
  std::vector<std::byte> page(kPageBytes);
  several.media[1]->read(0, page);
  const bool foreign = GENERATE(false, true);
  for (std::size_t at = 0; at < 64; ++at) {
    const bool landed = (words >> (at / 8 % 3) & 1U) != 0;
    if (!landed) page[at] = std::byte{0};
  }
  if (foreign) page[100] = std::byte{7};
  const std::vector<std::byte> blank(kPageBytes);
  several.media[1]->write(0, page, 0);
  several.media[1]->write(format::medium_header_at(1), blank, 0);
  if (foreign) {
    CHECK(code_of([&] { several.open(); }) == Errc::not_a_shelf);
  } else {
    CHECK(several.open().info().media.size() == 2);
  }
}

TEST_CASE("damage in a stripe on a medium that is not mapped is told") {
  const Several several({true, false});
  Shelf shelf = several.open();
  const std::array names = {"a", "b", "c", "d"};  // of some the first medium comes first
  for (const char* name : names) {
    make_on(shelf, name, 4 * kMiB, kBoth).write(pattern(4 * kMiB, 1));
  }
  shelf.persist();
  for (const char* name : names) {
    CHECK((value(*shelf.find(name)) == pattern(4 * kMiB, 1)));  // and looked at
  }
  std::vector<std::byte> page(kPageBytes, std::byte{0x55});
  std::uint64_t damaged = 0;
  for (std::uint64_t at = format::kMediumHeapAt; at < several.media[1]->size(); at += kMiB / 2) {
    several.media[1]->write(at, page, 0);
    ++damaged;
  }
  REQUIRE(damaged > 4);
  for (const char* name : names) {
    CHECK(code_of([&] { value(*shelf.find(name)); }) == Errc::corrupt);
  }
}

TEST_CASE("a tensor that is created beside the removal of its medium is in the next version") {
  const Several several({true, true});
  {
    Shelf shelf = several.open();
    make_on(shelf, "w", 1000, kSecond).write(pattern(1000, 1));
    shelf.persist();
    Assignment late = shelf.create_with("late", DType::uint8, std::array<std::int64_t, 1>{1000},
                                        kSecond);  // which has its place
    late.write(pattern(1000, 2));
    Waiter removal([&] { shelf.remove_medium(1); });
    late.done();
    removal.join();
    CHECK(shelf.find("late")->info().media == std::vector{0U});
    CHECK(shelf.info().media[1].retired);
    shelf.persist();
  }
  const Shelf shelf = several.open();
  CHECK((value(*shelf.find("w")) == pattern(1000, 1)));
  CHECK((value(*shelf.find("late")) == pattern(1000, 2)));
}

TEST_CASE("what is read while healing waits for a slot is not what is healed") {
  Several several({true, false});
  several.media[0] = std::shared_ptr<Medium>(make_memory_medium(0, 256 * kMiB));
  OpenOptions options{.mode = Mode::update, .in_flight = 2, .placement = Placement::whole};
  Shelf::format(*several.media[0], options);
  Shelf* reading = nullptr;
  std::atomic<int> reads = 0;
  options.while_waiting = [&] {
    if (reading == nullptr) return;
    std::vector<std::byte> part(100);
    reading->find("other")->read_committed(part, 10);  // by way of this thread's scratch
    ++reads;
  };
  Shelf shelf = several.open(options);
  const auto still = pattern(kMiB, 2);
  TensorRef w = make_on(shelf, "w", 2 * kMiB, {std::array{0U}});
  make_on(shelf, "other", kMiB, kSecond).write(pattern(kMiB, 9));
  w.write(pattern(kMiB, 1));
  w.write(still, kMiB);
  shelf.persist();  // slot A
  auto lease = std::make_unique<Lease>(w.lease_committed());
  w.write(pattern(kMiB, 3));
  shelf.persist();  // slot B
  auto pin = std::make_unique<VersionPin>(shelf.pin(2));
  w.write(pattern(kMiB, 4));
  shelf.persist();  // slot C
  {
    const Lease shown = w.lease_committed();
    const_cast<std::byte&>(shown.bytes()[kMiB + 5]) ^= std::byte{1};
  }
  const VerifyReport found = shelf.verify();
  REQUIRE(found.damage.size() == 1);
  reading = &shelf;
  VerifyReport healed;
  Waiter healing([&] { healed = shelf.heal(found); });
  while (reads == 0) std::this_thread::yield();
  pin.reset();
  healing.join();
  reading = nullptr;
  CHECK(healed.damage[0].healed);
  std::vector<std::byte> now(kMiB);
  w.read(now, kMiB);
  CHECK((now == still));
}

TEST_CASE("a striped tensor is found whole where opening verifies") {
  const Several several({false, false});
  const Bytes value_then = pattern(5 * kMiB + 7, 3);
  {
    Shelf shelf = several.open();
    make_on(shelf, "s", static_cast<std::int64_t>(value_then.size()), kBoth).write(value_then);
    shelf.persist();
  }
  const Shelf shelf = several.open({.mode = Mode::update, .verify = Verify::on_open});
  CHECK((value(*shelf.find("s")) == value_then));
}
