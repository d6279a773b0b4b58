// Bytes that change on the medium behind the store's back: no write, no copy forward and no lease
// turns them into good ones, and every read that looks says so.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>

#include "cached_disk.hpp"
#include "kept_versions.hpp"
#include "scratch.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::int64_t kSize = 4 * kMiB + 100;
constexpr std::uint64_t kChunks = 5;

// Flips a bit of the committed value, as the report of damage names its place.
void flip(Medium& medium, std::uint64_t at) {
  const std::uint64_t page_at = at / kPageBytes * kPageBytes;
  std::vector<std::byte> page(kPageBytes);
  medium.read(page_at, page);
  page[at - page_at] ^= std::byte{1};
  medium.write(page_at, page, 0);
  medium.wait({~0ULL >> 1, 0});
}

// Where the tensor's bytes lie on the medium: found by looking for them.
std::uint64_t place_of(Medium& medium, std::span<const std::byte> bytes) {
  std::vector<std::byte> page(kPageBytes);
  const std::uint64_t end = medium.size();
  for (std::uint64_t at = 0; at < end; at += kPageBytes) {
    medium.read(at, page);
    if (std::equal(page.begin(), page.begin() + 64, bytes.begin())) return at;
  }
  FAIL("the value is not on the medium");
  return 0;
}

struct Rot {
  bool mapped = GENERATE(true, false);
  unsigned commits = GENERATE(1u, 2u);  // the committed slot is A, and B
  Bench bench{64 * kMiB, mapped};
  std::vector<std::byte> first = pattern(kSize, 1);

  explicit Rot(Placement placement = Placement::whole) {
    bench.placement = placement;
    Shelf shelf = bench.open();
    TensorRef w = make(shelf, "w", kSize);
    if (commits == 2) {
      w.write(pattern(kSize, 8));
      shelf.persist(0);
    }
    w.write(first);
    make(shelf, "other", 100).write(pattern(100, 9));
    shelf.persist(1);
  }
  void flip_chunk(std::uint64_t chunk, std::uint64_t within = 5000) {
    const auto bytes = std::span(first).subspan(chunk * kMiB);
    flip(*bench.medium, place_of(*bench.medium, bytes) + std::min(within, bytes.size() - 1));
  }
};

}  // namespace

TEST_CASE("a partial write beside rot leaves it where it is, where nothing is copied forward") {
  Rot rot(Placement::by_chunk);
  Shelf shelf = rot.bench.open();
  TensorRef w = shelf.find("w").value();
  rot.flip_chunk(1);
  CHECK(code_of([&] { w.write(pattern(8, 2), kMiB + 100); }) == Errc::corrupt);
  w.write(pattern(8, 3), 100);
  shelf.persist(2);
  CHECK(shelf.stats().bytes_copied_forward == 0);
  REQUIRE(shelf.verify().damage.size() == 1);
  CHECK(shelf.verify().damage[0].chunk == 1);
}

TEST_CASE("a partial write does not make rot good") {
  Rot rot;
  const Verify verify = GENERATE(Verify::never, Verify::on_load);
  const bool read_before = GENERATE(true, false);
  Shelf shelf = rot.bench.open(Mode::update, verify);
  TensorRef w = shelf.find("w").value();
  if (read_before) CHECK(value(w) == rot.first);  // verified once
  rot.flip_chunk(1);
  CHECK(code_of([&] { w.write(pattern(8, 2), kMiB + 100); }) == Errc::corrupt);
  w.write(pattern(8, 3), 100);                                 // chunk 0 is whole
  CHECK(code_of([&] { shelf.persist(2); }) == Errc::corrupt);  // copied forward, or not at all
  const VerifyReport report = shelf.verify();
  REQUIRE(report.damage.size() == 1);
  CHECK(report.damage[0].chunk == 1);
  SECTION("twice") {  // a chunk whose copy forward failed stays missing
    CHECK(code_of([&] { shelf.persist(2); }) == Errc::corrupt);
    CHECK(code_of([&] { shelf.persist(2); }) == Errc::corrupt);
  }
  SECTION("healed by assigning the chunk") {
    w.write(pattern(kMiB, 4), kMiB);
    shelf.persist(2);
    CHECK(shelf.verify().damage.empty());
    CHECK(value(rot.bench.open(Mode::read, Verify::on_open).find("w").value()).size() == kSize);
  }
}

TEST_CASE("a part of a chunk that was staged is merged into what was staged, checked") {
  Rot rot;
  Shelf shelf = rot.bench.open(Mode::update, GENERATE(Verify::never, Verify::on_load));
  TensorRef w = shelf.find("w").value();
  const auto staged = pattern(kMiB, 7);
  w.write(staged, 2 * kMiB);
  flip(*rot.bench.medium, place_of(*rot.bench.medium, staged) + 77);
  CHECK(code_of([&] { w.write(pattern(8, 2), 2 * kMiB + 4000); }) == Errc::corrupt);
  w.write(staged, 2 * kMiB);
  shelf.persist(2);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("an assignment that meets rot at its end stages nothing") {
  Rot rot;
  Shelf shelf = rot.bench.open();
  TensorRef w = shelf.find("w").value();
  rot.flip_chunk(3);
  CHECK(code_of([&] { w.write(pattern(2 * kMiB, 5), kMiB + kMiB / 2); }) == Errc::corrupt);
  w.write(rot.first);  // heals it
  const auto before = value(w);
  flip(*rot.bench.medium, place_of(*rot.bench.medium, std::span(before).subspan(3 * kMiB)) + 9);
  CHECK(before == rot.first);
}

TEST_CASE("the same on real files") {
  const bool memory = GENERATE(true, false);
  const scratch::Directory folder(memory ? "/dev/shm" : std::filesystem::temp_directory_path());
  const auto path = folder / "run.shelf";
  const auto bytes = pattern(kSize, 1);
  Shelf shelf = Shelf::open(path);
  TensorRef w = make(shelf, "w", kSize);
  w.write(bytes);
  shelf.persist(1);
  CHECK(value(w) == bytes);
  {  // as dd would do it, behind our back
    const std::string file = scratch::contents(path);
    const std::string head(reinterpret_cast<const char*>(bytes.data() + kMiB), 64);
    const std::size_t at = file.find(head);
    REQUIRE(at != std::string::npos);
    const int fd = ::open(path.c_str(), O_WRONLY);
    const char flipped = static_cast<char>(file[at + 70] ^ 1);
    REQUIRE(::pwrite(fd, &flipped, 1, static_cast<off_t>(at + 70)) == 1);
    REQUIRE(::fsync(fd) == 0);
    ::close(fd);
  }
  CHECK(code_of([&] { w.write(pattern(8, 2), kMiB + 100); }) == Errc::corrupt);
  shelf.close();
  Shelf again = Shelf::open(path, {.verify = Verify::never});
  CHECK(code_of([&] { again.find("w")->write(pattern(8, 2), kMiB + 100); }) == Errc::corrupt);
  CHECK(again.verify().damage.size() == 1);
}

namespace {

// Its own bytes cannot be read where they are to be copied, as on memory that is poisoned.
class PoisonedMedium final : public SharedMedium {
 public:
  using SharedMedium::SharedMedium;
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    const auto all = view({0, size()});
    if (bytes.data() >= all.data() && bytes.data() < all.data() + all.size()) {
      throw Error(Errc::corrupt, "the memory below reports an error", "Check the device.", EIO);
    }
    return SharedMedium::write(at, bytes, seed);
  }
};

}  // namespace

TEST_CASE("a chunk that cannot be copied forward is told with the system's reason") {
  Bench bench;
  bench.placement = Placement::whole;
  {
    Shelf shelf = bench.open();
    make(shelf, "w", 2 * kMiB).write(pattern(2 * kMiB, 1));
    shelf.persist();
  }
  Shelf shelf = Shelf::open(std::make_unique<PoisonedMedium>(bench.medium));
  shelf.find("w")->write(pattern(kMiB, 2));
  const auto error = error_of([&] { shelf.persist(); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(error->os_error() == EIO);
  CHECK(contains(error->what(), "chunk 1 cannot be read"));
}

TEST_CASE("what comes from a drive is checked each time, however little is asked for") {
  Rot rot(GENERATE(Placement::whole, Placement::by_chunk));
  if (rot.mapped) return;  // and what is mapped once
  Shelf shelf = rot.bench.open();
  const TensorRef w = shelf.find("w").value();
  struct Row {
    const char* what;
    std::uint64_t offset, size_bytes;
  };
  const Row rows[] = {{"all chunks", 0, kSize},
                      {"one chunk", 3 * kMiB, kMiB},
                      {"a part of it", 3 * kMiB + 5, 8},
                      {"a part of two", 3 * kMiB - 5, 10},
                      {"the last chunk", 4 * kMiB, 100}};
  for (const Row& row : rows) {
    for (const bool committed : {false, true}) {
      CAPTURE(row.what, committed);
      std::vector<std::byte> bytes(row.size_bytes);
      const auto read = [&] {
        committed ? w.read_committed(bytes, row.offset) : w.read(bytes, row.offset);
      };
      const auto expected = std::span(rot.first).subspan(row.offset, row.size_bytes);
      const std::uint64_t chunk = (row.offset + row.size_bytes - 1) / kMiB;
      read();
      CHECK(std::equal(bytes.begin(), bytes.end(), expected.begin()));
      rot.flip_chunk(chunk);
      CHECK(code_of(read) == Errc::corrupt);
      rot.flip_chunk(chunk);  // and back
      read();
      CHECK(std::equal(bytes.begin(), bytes.end(), expected.begin()));
    }
  }
}

TEST_CASE("a bit that flips after the first read") {
  Rot rot;
  Shelf shelf = rot.bench.open();
  const TensorRef w = shelf.find("w").value();
  CHECK(value(w) == rot.first);
  rot.flip_chunk(3);
  if (!rot.mapped) {  // what comes from a drive is checked each time
    CHECK(code_of([&] { static_cast<void>(value(w)); }) == Errc::corrupt);
  }
  CHECK(shelf.verify().damage.size() == 1);
  // What verify() found is not read again without a look.
  CHECK(code_of([&] { static_cast<void>(value(w)); }) == Errc::corrupt);
  CHECK(code_of([&] { static_cast<void>(w.lease()); }) == Errc::corrupt);
}

TEST_CASE("who asks for no verification is given what is there, and told by verify() alone") {
  Rot rot;
  const Mode mode = GENERATE(Mode::read, Mode::update);
  CAPTURE(rot.mapped, mode == Mode::read);
  rot.flip_chunk(2);
  auto there = rot.first;
  there[2 * kMiB + 5000] ^= std::byte{1};
  const Shelf shelf = rot.bench.open(mode, Verify::never);
  const TensorRef w = shelf.find("w").value();
  CHECK((value(w) == there));
  std::vector<std::byte> part(100);
  w.read(part, 2 * kMiB + 4950);
  CHECK(std::equal(part.begin(), part.end(), there.begin() + 2 * kMiB + 4950));
  const Lease lease = w.lease();
  CHECK(same(there, lease.bytes()));
  const auto damage = shelf.verify().damage;
  REQUIRE(damage.size() == 1);
  CHECK(damage[0].chunk == 2);
  CHECK((value(w) == there));
}

TEST_CASE("a lease looks at each chunk") {
  Rot rot;
  const std::uint64_t chunk = GENERATE(range(std::uint64_t{0}, kChunks));
  rot.flip_chunk(chunk, chunk + 1 == kChunks ? 99 : kMiB - 1);
  Shelf shelf = rot.bench.open();
  const TensorRef w = shelf.find("w").value();
  const bool committed = GENERATE(true, false);
  const auto error =
      error_of([&] { static_cast<void>(committed ? w.lease_committed() : w.lease()); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(contains(error->what(), "chunk " + std::to_string(chunk) + " "));
  CHECK(value(shelf.find("other").value()) == pattern(100, 9));
}

TEST_CASE("rot in what was erased counts until the erasure is committed") {
  Rot rot;
  Shelf shelf = rot.bench.open();
  rot.flip_chunk(2);
  shelf.erase("w");
  const auto damage = shelf.verify().damage;
  REQUIRE(damage.size() == 1);
  CHECK(damage[0].tensor == "w");
  CHECK(damage[0].chunk == 2);
  shelf.persist(2);
  CHECK(shelf.verify().damage.empty());
}

// A copy forward that failed left other bytes where an older version's value had been. Version
// numbers come again with a rollback: what lies there must not pass for that value.
TEST_CASE("what a copy forward of rot left behind is not taken for what lay there before") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 2 * kMiB);
  const auto assign = [&](std::uint64_t chunk, unsigned seed) {
    w.write(pattern(kMiB, seed), chunk * kMiB);
  };
  assign(0, 1);
  assign(1, 2);
  shelf.persist(1);
  assign(0, 3);
  shelf.persist(2);
  assign(1, 4);
  shelf.persist(3);
  const std::uint64_t rotten = place_of(*kept.medium, pattern(kMiB, 4)) + 5;
  flip(*kept.medium, rotten);
  assign(0, 5);
  CHECK(code_of([&] { shelf.persist(4); }) == Errc::corrupt);
  shelf.discard();
  shelf.rollback(2);
  assign(0, 6);
  shelf.persist(5);
  Bytes expected = pattern(kMiB, 6);
  const Bytes second = pattern(kMiB, 2);
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK((value(w) == expected));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a free slot that cannot be read is no error of what is assigned") {
  const auto disk = std::make_shared<CachedDisk>();
  {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  Shelf shelf = Shelf::open(std::make_unique<CachedMedium>(disk),
                            {.mode = Mode::update, .placement = Placement::whole});
  TensorRef w = make(shelf, "w", 5000);
  for (const std::uint64_t seed : {1, 2}) {
    w.write(pattern(5000, seed));
    shelf.persist(seed);
  }
  const auto older = pattern(5000, 1);
  const auto at =
      std::search(disk->visible.begin(), disk->visible.end(), older.begin(), older.begin() + 64);
  REQUIRE(at != disk->visible.end());
  const auto page = static_cast<std::uint64_t>(at - disk->visible.begin()) / kPageBytes;
  disk->unreadable[page * kPageBytes] = EIO;
  w.write(pattern(10, 3), 20);
  shelf.persist(3);
  auto expected = pattern(5000, 2);
  std::ranges::copy(pattern(10, 3), expected.begin() + 20);
  CHECK((value(w) == expected));
}
