// Which of a tensor's two slots, and which chunks of them, hold what: where an assignment, a lease
// or a read must not be taken in by what the other slot holds.
#include <cerrno>
#include <limits>

#include "cached_disk.hpp"
#include "format/format.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// Where these bytes begin on the disk, at a page.
std::uint64_t place_of(const CachedDisk& disk, std::span<const std::byte> bytes) {
  for (std::uint64_t at = 0; at + 64 <= disk.visible.size(); at += kPageBytes) {
    if (std::memcmp(disk.visible.data() + at, bytes.data(), 64) == 0) return at;
  }
  FAIL("the value is not on the disk");
  return 0;
}

struct Cached {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
  Cached() {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  Shelf open(Verify verify = Verify::on_load) const {
    return Shelf::open(std::make_unique<CachedMedium>(disk),
                       {.mode = Mode::update, .verify = verify, .placement = Placement::whole});
  }
};

}  // namespace

TEST_CASE("the last chunk of many is copied forward too") {
  constexpr std::uint64_t chunks = 65;  // one more than a word of bits
  const Bench bench(200 * kMiB, GENERATE(true, false));
  Shelf shelf = bench.open();
  TensorRef w = make(shelf, "w", chunks * kMiB);
  w.write(pattern(chunks * kMiB, 1));
  shelf.persist();
  auto expected = pattern(chunks * kMiB, 2);
  w.write(expected);
  shelf.persist();
  unsigned seed = 3;
  for (const std::uint64_t chunk : {chunks - 1, std::uint64_t{0}, std::uint64_t{1}}) {
    const auto part = pattern(kMiB, seed++);
    w.write(part, chunk * kMiB);
    std::copy(part.begin(), part.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(chunk * kMiB));
    REQUIRE((value(w) == expected));
    shelf.persist();
    REQUIRE((value(w, true) == expected));
  }
}

TEST_CASE("a lease of a tensor that an open found keeps its bytes though the tensor goes") {
  const Bench bench;
  const auto expected = pattern(300'000, 1);
  {
    Shelf shelf = bench.open();
    make(shelf, "w", expected.size()).write(expected);
    shelf.persist();
  }
  Shelf shelf = bench.open();
  std::optional<Lease> lease = shelf.find("w")->lease();
  shelf.erase("w");
  shelf.persist();
  shelf.persist();
  for (int i = 0; i < 6; ++i) {
    make(shelf, std::to_string(i).c_str(), expected.size()).write(pattern(expected.size(), 7));
  }
  shelf.persist();
  CHECK(std::equal(expected.begin(), expected.end(), lease->bytes().begin()));
  const std::uint64_t taken = shelf.free_bytes();
  lease.reset();
  shelf.persist();
  CHECK(shelf.free_bytes() > taken);
}

TEST_CASE("a lease keeps its bytes though its tensor goes and others need the room") {
  const Bench bench;
  Shelf shelf = bench.open();
  const std::int64_t size = 2 * kMiB;
  const unsigned commits = GENERATE(1u, 2u);  // the committed slot is A, and B
  CAPTURE(commits);
  TensorRef w = make(shelf, "w", size);
  for (unsigned commit = 1; commit <= commits; ++commit) {
    w.write(pattern(size, commit));
    shelf.persist();
  }
  const Lease lease = w.lease();
  REQUIRE(lease.in_place());
  const auto expected = pattern(size, commits);
  shelf.erase("w");
  shelf.persist();
  for (unsigned i = 0; i < 6; ++i) {  // both slots of three tensors
    if (i % 2 == 0) make(shelf, "n" + std::to_string(i / 2), size);
    shelf.find("n" + std::to_string(i / 2))->write(pattern(size, 10 + i));
    shelf.persist();
  }
  REQUIRE(same(expected, lease.bytes()));
}

TEST_CASE("what was created and erased before a commit leaves no trace in it") {
  const Bench bench(64 * kMiB, GENERATE(true, false));
  const std::int64_t size = 300 * 1024;
  {
    Shelf shelf = bench.open();
    make(shelf, "a", size);
    shelf.erase("a");
    TensorRef b = make(shelf, "b", size);  // where "a" was
    b.write(pattern(size, 1));
    shelf.persist();
    CHECK((value(b) == pattern(size, 1)));
    CHECK(shelf.verify().damage.empty());
  }
  const Shelf shelf = bench.open(Mode::update, Verify::on_open);
  CHECK(shelf.names() == std::vector<std::string>{"b"});
  CHECK((value(shelf.find("b").value()) == pattern(size, 1)));
}

TEST_CASE("the last chunk of a run cannot be read: nothing is committed without it") {
  const Cached cached;
  const auto first = pattern(4 * kMiB, 1);
  {
    Shelf shelf = cached.open();
    make(shelf, "w", 4 * kMiB).write(first);
    shelf.persist();
  }
  Shelf shelf = cached.open();
  TensorRef w = shelf.find("w").value();
  w.write(pattern(kMiB, 2));
  const std::uint64_t chunk = GENERATE(1u, 2u, 3u);
  CAPTURE(chunk);
  cached.disk->unreadable[place_of(*cached.disk, std::span(first).subspan(chunk * kMiB))] = EIO;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto error = error_of([&] { shelf.persist(); });
    REQUIRE(error);
    CHECK(error->code() == Errc::corrupt);
    CHECK(contains(error->what(), "chunk " + std::to_string(chunk) + " "));
    CHECK(shelf.version() == 1);
  }
  w.write(pattern(4 * kMiB, 3));
  CHECK(shelf.persist().version == 2);
  CHECK((value(w) == pattern(4 * kMiB, 3)));
  shelf.close();
  CHECK((value(cached.open(Verify::on_open).find("w").value()) == pattern(4 * kMiB, 3)));
}

TEST_CASE("a read of many chunks names the one that cannot be read") {
  const Cached cached;
  const auto bytes = pattern(5 * kMiB, 1);
  Shelf shelf = cached.open();
  TensorRef w = make(shelf, "w", 5 * kMiB);
  w.write(bytes);
  shelf.persist();
  const std::uint64_t chunk = GENERATE(0u, 3u, 4u);
  CAPTURE(chunk);
  cached.disk->unreadable[place_of(*cached.disk, std::span(bytes).subspan(chunk * kMiB))] = EIO;
  for (const bool committed : {false, true}) {
    const auto error = error_of([&] { static_cast<void>(value(w, committed)); });
    REQUIRE(error);
    CHECK(error->code() == Errc::corrupt);
    CHECK(contains(error->what(), "chunk " + std::to_string(chunk) + " "));
  }
}

// No memory, no such process: nothing is known of the bytes, least of all that they are damaged.
TEST_CASE("a read that fails for another reason than damage is no damage") {
  const Cached cached;
  const auto first = pattern(3 * kMiB, 1);
  {
    Shelf shelf = cached.open();
    make(shelf, "w", 3 * kMiB).write(first);
    shelf.persist();
  }
  Shelf shelf = cached.open();
  const auto at = place_of(*cached.disk, std::span(first).subspan(kMiB));
  cached.disk->unreadable[at] = ENOMEM;
  CHECK(code_of([&] { shelf.verify(); }) == Errc::io);
  TensorRef w = shelf.find("w").value();
  CHECK(code_of([&] { static_cast<void>(value(w)); }) == Errc::io);
  std::vector<std::byte> bytes(kMiB);
  for (const std::uint64_t size : {kMiB, kMiB / 2}) {  // one chunk, and a part of it
    const auto error = error_of([&] { w.read(std::span(bytes).first(size), kMiB); });
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == ENOMEM);
    CHECK_FALSE(contains(error->what(), "chunk"));
  }
  CHECK(code_of([&] { w.write(pattern(8, 2), kMiB + 5000); }) == Errc::io);
  CHECK_FALSE(w.info().dirty);
  shelf.close();
  CHECK(code_of([&] { cached.open(Verify::on_open); }) == Errc::io);
  cached.disk->unreadable.clear();
  CHECK(cached.open(Verify::on_open).verify().damage.empty());
}

TEST_CASE("a range whose end is beyond all numbers is refused") {
  const Bench bench(64 * kMiB, GENERATE(true, false));
  Shelf shelf = bench.open();
  TensorRef w = make(shelf, "w", 100);
  w.write(pattern(100, 1));
  shelf.persist();
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t offset : {most - 4, most - 8, most}) {
    std::vector<std::byte> bytes(10);
    CHECK(code_of([&] { w.write(pattern(10, 2), offset); }) == Errc::layout);
    CHECK(code_of([&] { w.read(bytes, offset); }) == Errc::layout);
    CHECK(code_of([&] { w.read_committed(bytes, offset); }) == Errc::layout);
    CHECK(bytes == std::vector<std::byte>(10));
  }
  CHECK(value(w) == pattern(100, 1));
  shelf.persist();
  CHECK(value(w) == pattern(100, 1));
}

TEST_CASE("a reader's lease is a copy: the writer knows nothing of it") {
  const Bench bench;
  const std::int64_t size = kMiB + 100;
  Shelf shelf = bench.open();
  TensorRef w = make(shelf, "w", size);
  w.write(pattern(size, 1));
  shelf.persist();
  const Shelf reader = bench.open(Mode::read);
  const bool committed = GENERATE(true, false);
  const TensorRef seen = reader.find("w").value();
  const Lease lease = committed ? seen.lease_committed() : seen.lease();
  CHECK_FALSE(lease.in_place());
  for (unsigned round = 2; round < 4; ++round) {
    w.write(pattern(size, round));
    shelf.persist();
  }
  const auto expected = pattern(size, 1);
  CHECK(same(expected, lease.bytes()));
}

TEST_CASE("a read over chunks that lie in either slot takes each from its own") {
  const Bench bench(64 * kMiB, GENERATE(true, false));
  const std::uint64_t size = 6 * kMiB + 500;
  Shelf shelf = bench.open();
  TensorRef w = make(shelf, "w", static_cast<std::int64_t>(size));
  w.write(pattern(size, 1));
  shelf.persist();
  auto expected = pattern(size, 2);
  w.write(expected);
  shelf.persist();
  for (const std::uint64_t chunk : {2, 3, 5}) {
    const auto part = pattern(kMiB, static_cast<unsigned>(10 + chunk));
    w.write(part, chunk * kMiB);
    std::copy(part.begin(), part.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(chunk * kMiB));
    CHECK((value(w) == expected));
  }
  CHECK((value(w, true) == pattern(size, 2)));
}

// The chunk records of some tensors, each a cell, and the edges of the pages that hold them.
TEST_CASE("chunk records that fill their pages to the last one are read again") {
  const unsigned count = GENERATE(as<unsigned>{}, format::kPageCells - 1, format::kPageCells,
                                  format::kPageCells + 1, 2 * format::kPageCells);
  CAPTURE(count);
  const Bench bench;
  {
    Shelf shelf = bench.open();
    for (unsigned i = 1; i < count; ++i) make(shelf, "t" + std::to_string(i), 0);
    make(shelf, "last", 100).write(pattern(100, 1));
    shelf.persist();
  }
  Shelf shelf = bench.open();
  CHECK(shelf.info().tensors == count);
  CHECK((value(shelf.find("last").value()) == pattern(100, 1)));
  make(shelf, "next", 100).write(pattern(100, 2));
  shelf.persist();
  shelf.close();
  shelf = bench.open();
  CHECK((value(shelf.find("last").value()) == pattern(100, 1)));
  CHECK((value(shelf.find("next").value()) == pattern(100, 2)));
}

TEST_CASE("a read writes what was asked for, and nothing beside it") {
  constexpr std::uint64_t size = 18 * kMiB + 500;  // more than is read at once
  constexpr std::uint64_t margin = 2 * kMiB;
  const Bench bench(64 * kMiB, GENERATE(true, false));
  const auto all = pattern(size, 1);
  Shelf shelf = bench.open();
  TensorRef w = make(shelf, "w", size);
  w.write(all);
  shelf.persist();
  struct Row {
    std::uint64_t offset, size_bytes;
  };
  const Row rows[] = {{0, 5 * kMiB / 2},  {0, 1},
                      {kMiB, kMiB + 1},   {kMiB, 2 * kMiB - 1},
                      {kMiB, kMiB},       {2 * kMiB - 1, kMiB + 2},
                      {0, 17 * kMiB + 5}, {0, size},
                      {size - 600, 600},  {16 * kMiB, size - 16 * kMiB},
                      {size, 0},          {5, 3 * kMiB}};
  for (const Row& row : rows) {
    for (const bool committed : {false, true}) {
      CAPTURE(row.offset, row.size_bytes, committed);
      std::vector<std::byte> room(margin + row.size_bytes + margin, std::byte{0xAA});
      const auto bytes = std::span(room).subspan(margin, row.size_bytes);
      committed ? w.read_committed(bytes, row.offset) : w.read(bytes, row.offset);
      CHECK(std::equal(bytes.begin(), bytes.end(),
                       all.begin() + static_cast<std::ptrdiff_t>(row.offset)));
      const std::vector<std::byte> untouched(margin, std::byte{0xAA});
      CHECK(std::equal(untouched.begin(), untouched.end(), room.begin()));
      CHECK(std::equal(untouched.begin(), untouched.end(), room.end() - margin));
    }
  }
}

// Pages are set aside for what a commit may write: with no create() to top the pool up.
TEST_CASE("every tensor written and some erased: the pages for it are there, round after round") {
  const Bench bench(200 * kMiB);
  Shelf shelf = bench.open();
  for (int i = 0; i < 3000; ++i) make(shelf, "t" + std::to_string(i), 64);
  shelf.persist();
  for (unsigned round = 0; round < 4; ++round) {
    CAPTURE(round);
    const auto names = shelf.names();
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (i % 20 == round) {
        shelf.erase(names[i]);
      } else {
        shelf.find(names[i])->write(pattern(64, round));
      }
    }
    REQUIRE(shelf.persist().version == round + 2);
  }
  shelf.close();
  CHECK(bench.open(Mode::read, Verify::on_open).info().version == 5);
}

namespace {

// Does something when it is next asked for a view of what is stored.
class ViewedMedium final : public SharedMedium {
 public:
  ViewedMedium(std::shared_ptr<Medium> medium, std::shared_ptr<std::function<void()>> once)
      : SharedMedium(std::move(medium)), once_(std::move(once)) {}
  std::span<const std::byte> view(const Extent& extent) override {
    if (const auto act = std::exchange(*once_, {})) act();
    return SharedMedium::view(extent);
  }

 private:
  std::shared_ptr<std::function<void()>> once_;
};

}  // namespace

// Which slot is free is asked twice: for the bytes that it may have already, and for where to
// write.
TEST_CASE("a lease that ends while a part is merged changes what slot is free, and no byte") {
  const std::shared_ptr<Medium> medium = make_memory_medium(0, 64 * kMiB);
  Shelf::format(*medium, {.keep = 0, .in_flight = 2});
  const auto once = std::make_shared<std::function<void()>>();
  Shelf shelf = Shelf::open(std::make_unique<ViewedMedium>(medium, once));
  TensorRef w = make(shelf, "w", 2 * kMiB);
  w.write(pattern(2 * kMiB, 1));
  shelf.persist();
  std::optional<Lease> lease = w.lease_committed();
  auto expected = pattern(2 * kMiB, 2);
  w.write(expected);
  shelf.persist();
  const auto put = [&](std::uint64_t at, unsigned seed) {
    const auto part = pattern(8, seed);
    w.write(part, at);
    std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const unsigned seed : {3U, 4U}) {
    put(2 * kMiB - 8, seed);
    shelf.persist();
  }
  *once = [&] { lease.reset(); };
  put(0, 5);
  REQUIRE_FALSE(lease);
  CHECK((value(w) == expected));
  shelf.persist();
  CHECK((value(w, true) == expected));
  CHECK(shelf.verify().damage.empty());
}
