// A version as a shelf of its own: whole, of one moment, and while its writer goes on.
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "asleep.hpp"
#include "kept_versions.hpp"
#include "refused_call.hpp"
#include "scratch.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSmall = 5000;

// Tensors of all kinds at version 1: of two chunks and a part, small, of zeros, of nothing.
void fill(Shelf& shelf, std::uint64_t seed) {
  make(shelf, "large", kKeptBytes).write(pattern(kKeptBytes, seed));
  shelf.create("small", DType::float32, std::vector<std::int64_t>{5, 250})
      .write(pattern(kSmall, seed + 1));
  make(shelf, "zeros", kKeptBytes);
  shelf.create("empty", DType::int16, std::vector<std::int64_t>{3, 0});
}

void check_filled(const Shelf& shelf, std::uint64_t seed) {
  REQUIRE(shelf.names() == std::vector<std::string>{"empty", "large", "small", "zeros"});
  CHECK((value(*shelf.find("large")) == pattern(kKeptBytes, seed)));
  CHECK((value(*shelf.find("small")) == pattern(kSmall, seed + 1)));
  CHECK((value(*shelf.find("zeros")) == Bytes(kKeptBytes)));
  const TensorInfo small = shelf.find("small")->info();
  CHECK(small.dtype == DType::float32);
  CHECK(small.shape == std::vector<std::int64_t>{5, 250});
  CHECK(shelf.find("empty")->info().dtype == DType::int16);
  CHECK(shelf.find("empty")->info().shape == std::vector<std::int64_t>{3, 0});
  CHECK(shelf.verify().damage.empty());
}

void flip_bit(Medium& medium, std::uint64_t at) {
  Bytes page(kPageBytes);
  const std::uint64_t page_at = at / kPageBytes * kPageBytes;
  medium.read(page_at, page);
  page[at - page_at] ^= std::byte{4};
  medium.wait(medium.write(page_at, page, 0));
}

}  // namespace

TEST_CASE("a snapshot is a version, and nothing that came after it") {
  const Shape shape = any_shape();
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement));
  const Kept kept(shape);
  const scratch::Directory directory(GENERATE(false, true) ? std::filesystem::path("/dev/shm")
                                                           : std::filesystem::current_path());
  Shelf shelf = kept.open();
  fill(shelf, 10);
  shelf.persist(70);
  shelf.find("large")->write(pattern(1000, 3), kMiB - 500);
  shelf.erase("small");
  make(shelf, "new", 3);
  OpenOptions options;
  options.keep = 2;
  options.in_flight = 3;
  std::uint64_t last = 0;
  std::uint64_t all = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    CHECK(done > last);
    last = done;
    all = total;
  };
  const Commit commit = shelf.snapshot(directory / "copy.shelf", options);
  CHECK(commit.version == 1);
  CHECK(commit.step == 70);
  // Zeros that no slot has are not written.
  const bool stored = shape.placement == Placement::whole;
  CHECK(commit.data_bytes == kKeptBytes + kSmall + (stored ? kKeptBytes : 0));
  CHECK(last == 2 * kKeptBytes + kSmall);
  CHECK(all == last);
  CHECK(scratch::entries(directory.path()) == 1);
  {
    const Shelf copy = Shelf::open(directory / "copy.shelf", {.mode = Mode::update});
    CHECK(copy.version() == 1);
    CHECK(copy.step() == 70);
    CHECK(copy.info().keep == 2);
    CHECK(copy.info().in_flight == 3);
    CHECK(copy.info().shelf_id != shelf.info().shelf_id);
    check_filled(copy, 10);
  }
  CHECK(shelf.version() == 1);
  CHECK(shelf.has_uncommitted());
  shelf.persist(71);
  CHECK(shelf.names() == std::vector<std::string>{"empty", "large", "new", "zeros"});
  if (shape.keep == 0) return;
  shelf.snapshot(directory / "older.shelf", {}, 1);  // with a tensor that was erased since
  check_filled(Shelf::open(directory / "older.shelf", {.mode = Mode::read}), 10);
}

TEST_CASE("a snapshot takes the place of nothing that comes while it is made") {
  const Kept kept({0, 1, false, Placement::by_chunk});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  fill(shelf, 10);
  shelf.persist(1);
  OpenOptions options;
  options.progress = once([&] { scratch::put(directory / "copy.shelf", "another's"); });
  const auto error = error_of([&] { shelf.snapshot(directory / "copy.shelf", options); });
  REQUIRE(error);
  CHECK(error->code() == Errc::exists);
  CHECK(scratch::contents(directory / "copy.shelf") == "another's");
  CHECK(scratch::entries(directory.path()) == 1);
}

TEST_CASE("what needs the slots of a version that is copied waits, and goes on after it") {
  const Shape shape = {GENERATE(0U, 1U), 1, GENERATE(true, false),
                       GENERATE(Placement::whole, Placement::by_chunk)};
  CAPTURE(shape.keep, shape.mapped, static_cast<int>(shape.placement));
  const Kept kept(shape);
  const scratch::Directory directory;
  const auto in_background = GENERATE(false, true);
  Shelf shelf = kept.open();
  fill(shelf, 10);
  shelf.persist(1);
  std::optional<Waiter> writer;
  OpenOptions options;
  std::atomic<std::uint64_t> reached = 1;
  options.progress = once([&] {
    writer.emplace([&] {
      for (std::uint64_t version = 2; version < 7; ++version) {
        shelf.find("large")->write(pattern(kKeptBytes, 100 + version));
        in_background ? shelf.persist_async(version).wait() : void(shelf.persist(version));
        reached = version;
      }
    });
    while (reached < 1 + shape.keep) std::this_thread::yield();
    CHECK(writer->waits());
    CHECK(reached <= 2 + shape.keep);
    CHECK((value_at(shelf, 1, "large") == pattern(kKeptBytes, 10)));
  });
  shelf.snapshot(directory / "copy.shelf", options);
  writer->join();
  CHECK(shelf.version() == 6);
  CHECK((value(*shelf.find("large")) == pattern(kKeptBytes, 106)));
  CHECK(shelf.versions().size() == 1 + shape.keep);
  CHECK(shelf.verify().damage.empty());
  check_filled(Shelf::open(directory / "copy.shelf", {.mode = Mode::read}), 10);
}

TEST_CASE("a rollback waits for what is copied as a commit does") {
  const Kept kept({1, 1, true, Placement::by_chunk});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  for (unsigned version = 1; version <= 2; ++version) commit(shelf, version);
  std::optional<Waiter> writer;
  OpenOptions options;
  options.progress = once([&] {
    shelf.find("w");  // looking waits for nothing
    writer.emplace([&] {
      shelf.rollback(1);  // version 3, and 1 is no longer kept
      shelf.rollback(2);
    });
    CHECK(writer->waits());
    CHECK(shelf.version() == 3);
  });
  shelf.snapshot(directory / "copy.shelf", options, 1);
  writer->join();
  CHECK(shelf.version() == 4);
  CHECK((value(*shelf.find("w")) == pattern(kSmall, 2)));
  const Shelf copy = Shelf::open(directory / "copy.shelf", {.mode = Mode::read});
  CHECK((value(*copy.find("w")) == pattern(kSmall, 1)));
}

TEST_CASE("two snapshots of one version, of which one ends first") {
  const Kept kept({0, 1, true, Placement::whole});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  commit(shelf, 1);
  OpenOptions options;
  std::optional<Waiter> writer;
  options.progress = once([&] {
    Waiter([&] { shelf.snapshot(directory / "inner.shelf"); }).join();
    writer.emplace([&] {
      commit(shelf, 2);
      commit(shelf, 3);
    });
    CHECK(writer->waits());  // for the outer one
    CHECK(shelf.version() == 2);
  });
  shelf.snapshot(directory / "outer.shelf", options);
  writer->join();
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{3});
  for (const char* name : {"inner.shelf", "outer.shelf"}) {
    const Shelf copy = Shelf::open(directory / name, {.mode = Mode::read});
    CHECK((value(*copy.find("w")) == pattern(kSmall, 1)));
  }
}

TEST_CASE("two threads that take snapshots of two shelves copy each its own") {
  const scratch::Directory directory(std::filesystem::current_path());
  // Without rings: liburing maps them unseen by ThreadSanitizer, one where another thread's was.
  const OpenOptions options = {.mode = Mode::read, .block = {.io_uring = false}};
  const auto snap = [&](const std::string& name, std::uint64_t seed) {
    const Kept kept({0, 1, false, Placement::whole});
    Shelf shelf = kept.open();
    make(shelf, "large", kKeptBytes).write(pattern(kKeptBytes, seed));
    shelf.persist();
    for (unsigned round = 0; round < rounds(12); ++round) {
      const auto path = directory / (name + std::to_string(round)).c_str();
      shelf.snapshot(path, options);
      const Shelf copy = Shelf::open(path, options);
      CHECK(same(value(*copy.find("large")), pattern(kKeptBytes, seed)));
    }
  };
  std::thread other([&] { snap("other", 1); });
  snap("one", 2);
  other.join();
}

TEST_CASE("from within a snapshot the shelf can be read, and not changed") {
  const Kept kept({0, 1, true, Placement::whole});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  commit(shelf, 1);
  OpenOptions options;
  options.progress = once([&] {
    CHECK((value(*shelf.find("w")) == pattern(kSmall, 1)));
    CHECK(shelf.verify().damage.empty());
    const std::function<void()> changes[] = {
        [&] { shelf.find("w")->write(pattern(kSmall, 2)); },
        [&] { shelf.persist(); },
        [&] { shelf.persist_async(); },
        [&] { make(shelf, "x", 1); },
        [&] { shelf.erase("w"); },
        [&] { shelf.discard(); },
        [&] { shelf.rollback(1); },
        [&] { shelf.prepare(); },
        [&] { return shelf.transaction(); },
        [&] { shelf.snapshot(directory / "inner.shelf"); },
        [&] { shelf.close(); },
    };
    for (const auto& change : changes) CHECK(code_of(change) == Errc::unsupported);
    throw std::runtime_error("enough");
  });
  CHECK_THROWS_AS(shelf.snapshot(directory / "copy.shelf", options), std::runtime_error);
  CHECK(scratch::entries(directory.path()) == 0);
  for (unsigned version = 2; version <= 4; ++version) commit(shelf, version);  // nothing is held
  const auto w = shelf.find("w").value().assign();
  CHECK(code_of([&] { shelf.snapshot(directory / "copy.shelf"); }) == Errc::unsupported);
}

TEST_CASE("closing waits for a snapshot, which ends at once") {
  const Kept kept({0, 1, false, Placement::by_chunk});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  commit(shelf, 1);
  std::optional<Waiter> closer;
  OpenOptions options;
  options.progress = once([&] {
    closer.emplace([&] { shelf.close(); });
    CHECK(closer->waits());
  });
  make(shelf, "x", kSmall);  // not reached
  shelf.persist(2);
  CHECK(code_of([&] { shelf.snapshot(directory / "copy.shelf", options); }) == Errc::closed);
  closer->join();
  CHECK(shelf.closed());
  CHECK(scratch::entries(directory.path()) == 0);
}

TEST_CASE("a snapshot of what is damaged is none, whatever the shelf was opened with") {
  const Kept kept({0, 1, GENERATE(true, false), Placement::by_chunk});
  const scratch::Directory directory;
  const Bytes bytes = pattern(4 * kMiB, 5);
  {
    Shelf shelf = kept.open();
    make(shelf, "w", 4 * kMiB).write(bytes);
    shelf.persist(1);
  }
  Bytes all(kept.medium->size());
  kept.medium->read(0, all);
  const auto third =
      std::search(all.begin(), all.end(), bytes.begin() + 2 * kMiB, bytes.begin() + 2 * kMiB + 64);
  REQUIRE(third != all.end());
  flip_bit(*kept.medium, static_cast<std::uint64_t>(third - all.begin()) + 4000);
  OpenOptions options = kept.options();
  options.verify = GENERATE(Verify::never, Verify::on_load);
  Shelf shelf = kept.open(options);
  const auto error = error_of([&] { shelf.snapshot(directory / "copy.shelf"); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(contains(error->what(), "chunk 2"));
  CHECK(scratch::entries(directory.path()) == 0);
  shelf.find("w")->write(bytes);
  shelf.persist(2);
  shelf.snapshot(directory / "copy.shelf");
  const Shelf copy = Shelf::open(directory / "copy.shelf", {.mode = Mode::read});
  CHECK((value(*copy.find("w")) == bytes));
}

TEST_CASE("a snapshot takes the place of nothing, and is refused where it cannot be") {
  const Kept kept({1, 1, true, Placement::whole});
  const scratch::Directory directory;
  Shelf shelf = kept.open();
  for (unsigned version = 1; version <= 4; ++version) commit(shelf, version);
  scratch::put(directory / "there", "text");
  CHECK(code_of([&] { shelf.snapshot(directory / "there"); }) == Errc::exists);
  CHECK(scratch::contents(directory / "there") == "text");
  CHECK(code_of([&] { shelf.snapshot(directory / "no/such/folder"); }) == Errc::not_found);
  CHECK(code_of([&] { shelf.snapshot(directory / "copy", {}, 2); }) == Errc::stale);
  CHECK(code_of([&] { shelf.snapshot(directory / "copy", {}, 5); }) == Errc::stale);
  OpenOptions options;
  options.keep = 15;
  CHECK(code_of([&] {
          options.in_flight = 1;
          shelf.snapshot(directory / "copy", options);
        }) == Errc::bad_argument);
  CHECK(scratch::entries(directory.path()) == 1);
  shelf.close();
  CHECK(code_of([&] { shelf.snapshot(directory / "copy"); }) == Errc::closed);
}

TEST_CASE("a snapshot whose version does not become durable has no name") {
  const scratch::Directory directory(std::filesystem::current_path());
  const auto path = directory / "copy.shelf";
  const std::string said = in_child([&]() -> std::string {
    const Kept kept({1, 1, true, Placement::whole});
    Shelf shelf = kept.open();
    commit(shelf, 1);
    if (!refuse_call(SYS_io_uring_setup, EPERM)) return "no seccomp";  // a drive by calls
    OpenOptions options;
    options.tier = "block";
    options.progress = once([] { refuse_call(SYS_fdatasync, EIO); });
    const auto error = error_of([&] { shelf.snapshot(path, options); });
    if (!error || error->code() != Errc::io) return "no such error";
    return std::filesystem::exists(path) ? "it has its name" : "";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  CHECK(said == "");
}

TEST_CASE("a reader takes snapshots too") {
  const Kept kept({0, 1, true, Placement::whole});
  const scratch::Directory directory;
  Shelf writer = kept.open();
  fill(writer, 10);
  writer.persist(1);
  const Shelf reader = kept.open(Mode::read);
  reader.snapshot(directory / "copy.shelf");
  check_filled(Shelf::open(directory / "copy.shelf", {.mode = Mode::read}), 10);
  for (unsigned seed = 20; seed < 24; ++seed) {
    writer.find("large")->write(pattern(kKeptBytes, seed));
    writer.persist(seed);
  }
  const auto error = error_of([&] { reader.snapshot(directory / "late.shelf", {}, 1); });
  REQUIRE(error);
  CHECK(error->code() == Errc::stale);
  CHECK(scratch::entries(directory.path()) == 1);
  CHECK(reader.snapshot(directory / "late.shelf").step == 23U);  // it goes on to the newest
}

TEST_CASE("a mapped file that is cut short while it is copied is an error of the snapshot") {
  const scratch::Directory memory("/dev/shm");
  const Placement placement = GENERATE(Placement::whole, Placement::by_chunk);
  for (const Verify verify : {Verify::never, Verify::on_load}) {
    const auto path = memory / "run.shelf";
    std::filesystem::remove(path);
    OpenOptions options;
    options.placement = placement;
    options.verify = verify;
    Shelf shelf = Shelf::open(path, options);
    REQUIRE(shelf.info().promises.mapped);
    make(shelf, "large", 8 * kMiB).write(pattern(8 * kMiB, 1));
    shelf.persist(1);
    options.progress = once([&] { std::filesystem::resize_file(path, kMiB); });
    const auto error = error_of([&] { shelf.snapshot(memory / "copy.shelf", options); });
    REQUIRE(error);
    CHECK((error->code() == Errc::corrupt || error->code() == Errc::truncated));
    CHECK_FALSE(std::filesystem::exists(memory / "copy.shelf"));
    CHECK(scratch::entries(memory.path()) == 1);
  }
}
