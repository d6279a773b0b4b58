// A reader that stays: refresh() and wait_for() beside a writer.
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "forgery.hpp"
#include "kept_versions.hpp"
#include "raw_pages.hpp"
#include "rot.hpp"
#include "scratch.hpp"
#include "store/io/head.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using namespace std::chrono_literals;

namespace {

// A writer and its reader in one file, which each maps for itself: two threads may use them.
struct Beside {
  scratch::Directory directory;
  std::filesystem::path path = directory / "beside.shelf";
  std::string tier = GENERATE(as<std::string>{}, "auto", "block");
  Shelf writer = open(Mode::append);
  Shelf reader = open(Mode::read);

  Shelf open(Mode mode) const {
    OpenOptions options;
    options.tier = tier;
    options.mode = mode;
    Shelf shelf = Shelf::open(path, options);
    if (mode == Mode::append) commit(shelf, 1);
    return shelf;
  }
};

}  // namespace

TEST_CASE("a reader goes on to what its writer has persisted, whatever came between") {
  const Kept kept(any_shape());
  Shelf writer = kept.open();
  make(writer, "w", kKeptBytes).write(pattern(kKeptBytes, 1));
  writer.persist(10);
  Shelf reader = kept.open(Mode::read);
  const TensorRef w = reader.find("w").value();
  CHECK_FALSE(reader.refresh());
  for (unsigned version = 2; version < 12; ++version) {
    writer.find("w")->write(pattern(kKeptBytes, version));
    writer.persist(10 * version);
    if (version % 3 != 0) continue;
    CHECK(reader.refresh());
    CHECK(reader.version() == version);
    CHECK(reader.step() == 10U * version);
    CHECK((value(w) == pattern(kKeptBytes, version)));
    CHECK_FALSE(reader.refresh());
    const auto versions = reader.versions();
    REQUIRE(versions.size() == 1 + std::min(kept.shape.keep, version));
    for (const VersionInfo& each : versions) {
      if (each.version == 0) continue;  // before there was anything
      CHECK((value_at(reader, each.version, "w") == pattern(kKeptBytes, each.version)));
    }
  }
  CHECK_FALSE(writer.refresh());  // nobody else writes there
  CHECK(writer.stats().commits == 11);
}

TEST_CASE("handles of a reader follow their tensors") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  make(writer, "stays", 3000).write(pattern(3000, 1));
  make(writer, "goes", 3000).write(pattern(3000, 2));
  make(writer, "changes", 3000).write(pattern(3000, 3));
  writer.persist();
  Shelf reader = kept.open(Mode::read);
  const TensorRef stays = reader.find("stays").value();
  const TensorRef goes = reader.find("goes").value();
  const TensorRef changes = reader.find("changes").value();
  const RetainedTensor old = reader.at(1).find("goes").value();
  writer.erase("goes");
  writer.replace("changes", DType::uint8, std::vector<std::int64_t>{5000}).write(pattern(5000, 4));
  writer.persist();
  for (int times = 0; times < 2; ++times) writer.persist();  // no version has "goes" any more
  make(writer, "new", 3000).write(pattern(3000, 5));         // in the cells that it had
  writer.persist();
  REQUIRE(reader.refresh());
  CHECK((value(stays) == pattern(3000, 1)));
  CHECK(code_of([&] { value(goes); }) == Errc::unknown_name);
  CHECK(code_of([&] { goes.lease(); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(changes); }) == Errc::unknown_name);
  CHECK((value(*reader.find("changes")) == pattern(5000, 4)));
  CHECK((value(*reader.find("new")) == pattern(3000, 5)));
  CHECK(reader.names() == std::vector<std::string>{"changes", "new", "stays"});
  std::vector<std::byte> bytes(3000);
  CHECK(code_of([&] { old.read(bytes); }) == Errc::stale);
  writer.rollback(4);
  REQUIRE(reader.refresh());
  CHECK_FALSE(reader.find("new"));
  CHECK((value(stays) == pattern(3000, 1)));
}

TEST_CASE("what a rollback brings back is there again for who has its handle") {
  const Kept kept({.keep = 3, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf writer = kept.open();
  make(writer, "w", 3000).write(pattern(3000, 1));
  writer.persist();
  Shelf reader = kept.open(Mode::read);
  const TensorRef w = reader.find("w").value();
  writer.erase("w");
  writer.persist();
  REQUIRE(reader.refresh());
  CHECK(code_of([&] { value(w); }) == Errc::unknown_name);
  writer.rollback(1);
  REQUIRE(reader.refresh());
  CHECK((value(w) == pattern(3000, 1)));
}

TEST_CASE("a reader follows where the medium grows, in a file") {
  Beside beside;
  Shelf& writer = beside.writer;
  Shelf& reader = beside.reader;
  make(writer, "large", 64 * kMiB).write(pattern(64 * kMiB, 2));
  writer.persist();
  REQUIRE(reader.refresh());
  CHECK((value(*reader.find("large")) == pattern(64 * kMiB, 2)));
  CHECK((value(*reader.find("w")) == pattern(5000, 1)));
  writer.close();
  beside.open(Mode::replace).close();
  CHECK(code_of([&] { reader.refresh(); }) == Errc::gone);
  CHECK(code_of([&] { reader.wait_for(9, 1h); }) == Errc::gone);
  CHECK((value(*reader.find("w")) == pattern(5000, 1)));
}

TEST_CASE("who waits for a version gets it when it is persisted, or hears that it did not come") {
  Beside beside;
  Shelf& writer = beside.writer;
  Shelf& reader = beside.reader;
  CHECK(reader.wait_for(1, 0s));
  CHECK_FALSE(reader.wait_for(2, 0s));
  CHECK_FALSE(reader.wait_for({}, 1ms));
  std::thread writes([&] {
    for (unsigned version = 2; version <= 4;
         ++version) {  // not commit(), which checks: two threads
      writer.find("w")->write(pattern(5000, version));
      writer.persist();
    }
  });
  CHECK(reader.wait_for(4));
  writes.join();
  CHECK(reader.version() == 4);
  CHECK((value(*reader.find("w")) == pattern(5000, 4)));
  writer.persist();
  CHECK(reader.wait_for());
  CHECK(reader.version() == 5);
  CHECK(code_of([&] { reader.wait_for(6, -1s); }) == Errc::bad_argument);
  CHECK(writer.wait_for(5));
  CHECK(code_of([&] { writer.wait_for(6); }) == Errc::unsupported);
}

TEST_CASE("a wait for a version can be given up, and ends where the shelf is closed") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  kept.open().persist();
  OpenOptions options = kept.options(Mode::read);
  std::atomic<int> calls = 0;
  options.while_waiting = [&] {
    if (++calls == 3) throw std::runtime_error("given up");
  };
  Shelf reader = kept.open(options);
  CHECK_THROWS_WITH(reader.wait_for(2), "given up");
  CHECK(reader.version() == 1);
  std::thread closes([&] {
    while (calls < 5) std::this_thread::yield();
    reader.close();
  });
  CHECK(code_of([&] { reader.wait_for(2); }) == Errc::closed);
  closes.join();
}

TEST_CASE("a reader stays where it is while a newer version cannot be opened") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  commit(writer, 1);
  Shelf reader = kept.open(Mode::read);
  commit(writer, 2);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_raw(*kept.medium, format::root_at(format::home_of(2, 3), copy), page_of(std::byte{0x5A}));
  }
  CHECK(code_of([&] { reader.refresh(); }) == Errc::corrupt);
  CHECK(reader.version() == 1);
  CHECK((value(*reader.find("w")) == pattern(5000, 1)));
}

TEST_CASE("of each page of a new version a reader needs one copy that is good, whichever") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  commit(writer, 1);
  Shelf reader = kept.open(Mode::read);
  commit(writer, 2);
  const format::Seeds seeds(read_head(*kept.medium).superblock.shelf_id);
  const format::Root root = scan_roots(*kept.medium, seeds, 3).candidates().front();
  const unsigned lost = GENERATE(0u, 1u, 2u);  // of the first page: one copy, or both
  CAPTURE(lost);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    if (copy == lost || lost == 2) {
      write_raw(*kept.medium, root.pages[0].at[copy], page_of(std::byte{0x5A}));
    }
  }
  if (lost == 2) {
    CHECK(code_of([&] { reader.refresh(); }) == Errc::corrupt);
    CHECK(reader.version() == 1);
    return;
  }
  CHECK(reader.refresh());
  CHECK(reader.version() == 2);
  CHECK((value(*reader.find("w")) == pattern(5000, 2)));
}

TEST_CASE("a reader that shows an older version goes on once the newer one was given up") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf writer = kept.open();
    commit(writer, 1);
    make(writer, "lost", 700).write(pattern(700, 2));
    writer.persist();
  }
  Shelf saw_it = kept.open(Mode::read);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_raw(*kept.medium, format::root_at(format::home_of(2, 3), copy), page_of(std::byte{0x5A}));
  }
  Shelf reader = kept.open(Mode::read);
  REQUIRE(reader.info().recovery.degraded);
  CHECK_FALSE(reader.refresh());
  Shelf writer = kept.open();  // gives it up
  REQUIRE(writer.version() == 1);
  make(writer, "new", 9000).write(pattern(9000, 3));  // with the number of the tensor that was lost
  writer.find("w")->write(pattern(5000, 3));
  writer.persist();
  for (Shelf* each : {&reader, &saw_it}) {
    static_cast<void>(each->refresh());
    CHECK(each->version() == 2);
    CHECK((value(*each->find("w")) == pattern(5000, 3)));
    CHECK((value(*each->find("new")) == pattern(9000, 3)));
    CHECK_FALSE(each->find("lost"));
  }
}

TEST_CASE("versions that come under a number that was given up are others, and all are offered") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf writer = kept.open();
    commit(writer, 1);
    writer.find("w")->write(pattern(5000, 2));
    make(writer, "lost", 700).write(pattern(700, 2));
    writer.persist();
  }
  Shelf reader = kept.open(Mode::read);
  const RetainedTensor old = reader.at(2).find("w").value();
  const VersionPin pin = reader.pin(2);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_raw(*kept.medium, format::root_at(2, copy), page_of(std::byte{0x5A}));
  }
  Shelf writer = kept.open();  // gives it up
  REQUIRE(writer.version() == 1);
  writer.find("w")->write(pattern(5000, 3));
  const bool with_new = GENERATE(true, false);
  if (with_new) make(writer, "new", 900).write(pattern(900, 3));  // under the number of "lost"
  writer.persist();
  if (with_new) writer.erase("new");
  writer.persist();
  REQUIRE(reader.refresh());
  CHECK(reader.versions().size() == kept.open(Mode::read).versions().size());
  CHECK((value_at(reader, 2, "w") == pattern(5000, 3)));
  std::vector<std::byte> bytes(5000);
  CHECK(code_of([&] { old.read(bytes); }) == Errc::unknown_name);  // of the version that is no more
}

TEST_CASE("a version that comes while a reader takes up the one before is not missed") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  commit(writer, 1);
  int left = 0;
  class Busy final : public SharedMedium {  // the writer drops the older version in each look
   public:
    Busy(std::shared_ptr<Medium> medium, std::function<void()> between)
        : SharedMedium(std::move(medium)), between_(std::move(between)) {}
    void read(std::uint64_t at, std::span<std::byte> bytes) override {
      const bool heap = at >= format::kHeapAt;
      if (heap && !std::exchange(in_heap_, heap)) between_();
      in_heap_ = heap;
      ForwardingMedium::read(at, bytes);
    }

   private:
    std::function<void()> between_;
    bool in_heap_ = false;
  };
  unsigned version = 1;
  const auto two_more = [&] {
    for (int times = 0; times < 2; ++times) commit(writer, ++version);
  };
  Shelf reader = Shelf::open(std::make_unique<Busy>(kept.medium,
                                                    [&] {
                                                      if (left == 0) return;
                                                      --left;
                                                      two_more();
                                                    }),
                             {.mode = Mode::read});
  left = 1;  // the look that shows it
  two_more();
  REQUIRE(reader.refresh());
  REQUIRE(left == 0);
  REQUIRE(reader.version() < version);  // what was flipped in the last look
  CHECK(reader.wait_for(version, 0s));
  CHECK((value(*reader.find("w")) == pattern(5000, version)));
}

TEST_CASE("what a call holds of a reader stays when it goes on") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  commit(writer, 1);
  Shelf reader = kept.open(Mode::read);
  {
    const VersionPin pin = reader.pin();
    for (int times = 0; times < 3; ++times) writer.persist();
    REQUIRE(reader.refresh());
    CHECK(reader.versions().front().version == 1);
    CHECK(reader.versions().size() == 3);
  }
  CHECK(reader.versions().front().version == 3);
}

TEST_CASE("a reader may hold more versions than there are slots, and let them go in any order") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  commit(writer, 1);
  Shelf reader = kept.open(Mode::read);
  std::deque<VersionPin> pins;
  for (unsigned version = 1; version <= 40; ++version) {
    if (version % 2 == 0) pins.push_back(reader.pin());
    writer.persist();
    REQUIRE(reader.refresh());
    CHECK(reader.versions().size() == pins.size() + 1);
  }
  SECTION("the last first") {
    while (!pins.empty()) {
      pins.pop_back();
      CHECK(reader.versions().size() == pins.size() + 1);
    }
  }
  SECTION("the first first") {
    while (!pins.empty()) {
      pins.pop_front();
      CHECK(reader.versions().size() == pins.size() + 1);
    }
  }
  CHECK(reader.versions().front().version == 41);
  CHECK((value(*reader.find("w")) == pattern(5000, 1)));
}

TEST_CASE("threads read and refresh one reader while its writer goes on", "[threads]") {
  const scratch::Directory
      directory;  // a file: in memory the writer's stores would race with the reader's loads
  OpenOptions options;
  options.tier = "block";
  options.keep = 1;
  Shelf writer = Shelf::open(directory / "followed.shelf", options);
  commit(writer, 1);
  options.mode = Mode::read;
  Shelf reader = Shelf::open(directory / "followed.shelf", options);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) {
        try {
          reader.refresh();
          const std::uint64_t version = reader.version();
          if (value_at(reader, version, "w") != pattern(5000, static_cast<unsigned>(version))) {
            FAIL("a mixture");
          }
        } catch (const Error& error) {
          if (error.code() != Errc::stale) throw;
        }
      }
    });
  }
  for (unsigned version = 2; version < 200; ++version) {
    commit(writer, version);
  }
  done = true;
  for (auto& thread : threads) thread.join();
  reader.refresh();
  CHECK(reader.version() == 199);
}

TEST_CASE("a reader in doubt about what it found tells damage as that once it has gone on") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf writer = kept.open();
    commit(writer, 1);
    commit(writer, 2);
  }
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_raw(*kept.medium, format::root_at(format::home_of(2, 3), copy), page_of(std::byte{0x5A}));
  }
  Shelf reader = kept.open(Mode::read);
  REQUIRE(reader.info().recovery.degraded);
  const Bytes value_now = pattern(5000, 3);
  {
    Shelf writer = kept.open();
    REQUIRE(writer.version() == 1);
    writer.find("w")->write(value_now);
    writer.persist();
  }
  REQUIRE(reader.refresh());
  for (const std::uint64_t at : places_of(*kept.medium, value_now)) flip(*kept.medium, at + 77);
  CHECK(code_of([&] { value(*reader.find("w")); }) == Errc::corrupt);
}
