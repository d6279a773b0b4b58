// What makes a shelf of what is none, whole or cut off, and what tells the one from the other.
#include <functional>

#include "cached_disk.hpp"
#include "format/format.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using format::kCopies;

namespace {

std::shared_ptr<CachedDisk> formatted() {
  auto disk = std::make_shared<CachedDisk>();
  CachedMedium medium(disk);
  Shelf::format(medium);
  return disk;
}

Shelf open_disk(const std::shared_ptr<CachedDisk>& disk, Mode mode = Mode::update) {
  return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
}

}  // namespace

TEST_CASE("what is no shelf, or the beginning of one alone, is told from a damaged one") {
  const auto whole = formatted();
  {
    Shelf shelf = open_disk(whole);
    commit(shelf, 1);
  }
  struct Row {
    const char* what;
    std::function<void(std::vector<std::byte>&)> edit;
    Errc code;
    std::string says;
  };
  const auto cut = [](std::uint64_t size) { return [size](Bytes& bytes) { bytes.resize(size); }; };
  const auto fill = [](std::byte with) {
    return [with](Bytes& bytes) { bytes.assign(bytes.size(), with); };
  };
  const std::string headers = "the headers of a shelf take 256 KiB";
  const std::vector<Row> rows = {
      {"nothing", cut(0), Errc::not_a_shelf, "it is too short for a shelf header"},
      {"less than a page", cut(kPageBytes - 512), Errc::not_a_shelf, "it is too short"},
      {"zeros", fill(std::byte{0}), Errc::not_a_shelf, "there is no shelf header (all zero)"},
      {"others' bytes", fill(std::byte{0x5A}), Errc::not_a_shelf, "there is no shelf header"},
      {"one superblock", cut(kPageBytes), Errc::truncated, headers},
      {"one header", cut(format::kHeaderBytes), Errc::truncated, headers},
      {"both superblocks", cut(format::kHeaderBytes + kPageBytes), Errc::truncated, headers},
      {"headers but for a page", cut(format::kHeapAt - kPageBytes), Errc::truncated, headers},
      {"headers alone", cut(format::kHeapAt), Errc::truncated, "version 1 of the shelf spans"},
      {"all but a page", cut(whole->visible.size() - kPageBytes), Errc::truncated,
       "version 1 of the shelf spans"},
      {"no superblock",
       [](Bytes& bytes) {
         for (unsigned copy = 0; copy < kCopies; ++copy) {
           bytes[format::superblock_at(copy) + 100] ^= std::byte{1};
         }
       },
       Errc::corrupt, "both copies of the superblock are damaged"},
  };
  for (const Row& row : rows) {
    const Mode mode = GENERATE(Mode::read, Mode::update);
    CAPTURE(row.what, mode == Mode::read);
    const auto disk = std::make_shared<CachedDisk>(*whole);
    row.edit(disk->visible);
    disk->durable = disk->visible;
    const auto error = error_of([&] { open_disk(disk, mode); });
    REQUIRE(error);
    CHECK(error->code() == row.code);
    CAPTURE(error->what());
    CHECK(contains(error->what(), row.says));
    CHECK(contains(error->what(), "all zero") == contains(row.says, "all zero"));
    CHECK_FALSE(error->remedy().empty());
    CHECK((disk->visible == disk->durable));
  }
}

TEST_CASE("a header that cannot be read is a damaged shelf, and not none") {
  const bool other_zero = GENERATE(false, true);
  const auto disk = formatted();
  disk->unreadable = {{format::superblock_at(0), EIO}};
  if (other_zero) {
    std::fill_n(disk->visible.begin() + format::superblock_at(1), kPageBytes, std::byte{0});
  } else {
    disk->unreadable[format::superblock_at(1)] = EIO;
  }
  const auto error = error_of([&] { open_disk(disk, Mode::read); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(error->os_error() == EIO);
}

TEST_CASE("a shelf that was formatted is there, whole, after the power went") {
  const auto disk = formatted();
  disk->lose_power();
  const Shelf shelf = open_disk(disk);
  CHECK(shelf.version() == 0);
  CHECK(shelf.info().recovery.repaired_copies == 0);
  CHECK_FALSE(shelf.info().recovery.interrupted);
}

TEST_CASE("a first attempt of which one copy is torn is no lost version of a new shelf") {
  const unsigned copy = GENERATE(0U, 1U);
  const auto disk = formatted();
  std::fill_n(disk->visible.begin() + static_cast<std::ptrdiff_t>(format::root_at(1, copy)),
              kPageBytes, std::byte{0x5A});
  Shelf shelf = open_disk(disk);
  CHECK(shelf.version() == 0);
  CHECK_FALSE(shelf.info().recovery.degraded);
  CHECK(shelf.info().recovery.interrupted);
  commit(shelf, 1);
  CHECK_FALSE(open_disk(disk, Mode::read).info().recovery.degraded);
}

TEST_CASE("a shelf whose formatting failed at its last flush is whole in both copies once open") {
  const auto disk = std::make_shared<CachedDisk>();
  CachedMedium medium(disk);
  disk->barrier_fails = [](unsigned n) { return n == 2; };
  REQUIRE(code_of([&] { Shelf::format(medium); }) == Errc::io);
  open_disk(disk).close();
  disk->lose_power();
  const Shelf shelf = open_disk(disk);
  CHECK(shelf.version() == 0);
  CHECK(shelf.info().recovery.repaired_copies == 0);
}

// Old superblocks over new roots would be a damaged shelf, and one of them is no better.
TEST_CASE("a shelf that is cut off while another is made in its place is the old one or none") {
  const auto whole = formatted();
  {
    Shelf shelf = open_disk(whole);
    commit(shelf, 1);
    commit(shelf, 2);
  }
  CachedMedium(whole).barrier();
  unsigned seen[3] = {};
  bool dies = true;
  for (unsigned n = 0; dies; ++n) {
    const auto disk = std::make_shared<CachedDisk>(*whole);
    disk->dies = [at = disk->events + n](unsigned event) { return event == at; };
    CachedMedium medium(disk);
    dies = error_of([&] { Shelf::format(medium); }).has_value();
    for (const bool lands : {false, true}) {
      CAPTURE(n, lands);
      const auto after = std::make_shared<CachedDisk>(*disk);
      after->dies = {};
      if (lands) after->fate_of_dirty = [] { return CachedDisk::Fate::landed; };
      after->lose_power();
      std::uint64_t version = 0;
      const auto error = error_of([&] { version = open_disk(after).version(); });
      if (error) {
        CHECK(error->code() == Errc::not_a_shelf);
        ++seen[1];
      } else {
        CHECK((version == 2 || version == 0));
        ++seen[version];
      }
    }
  }
  CHECK((seen[0] > 0 && seen[1] > 0 && seen[2] > 0));
}

TEST_CASE("pages of a level, at the edges of one directory and of one level") {
  constexpr std::uint64_t one = format::kDirectoryRefs;
  constexpr std::uint64_t most = format::kRootRefs * one;
  struct Row {
    std::uint64_t leaves, directories, above;
    unsigned levels;
  };
  const std::vector<Row> rows = {
      {0, 0, 0, 1},
      {1, 1, 1, 1},
      {one, 1, 1, 1},
      {one + 1, 2, 1, 1},
      {2 * one, 2, 1, 1},
      {one * one, one, 1, 1 + (one * one > most)},
      {one * one + 1, one + 1, 2, 1 + (one * one + 1 > most)},
      {most, format::kRootRefs, 1, 1},
      {most + 1, format::kRootRefs + 1, 1, 2},
      {format::kMaxLeaves, most, format::kRootRefs, 2},
  };
  for (const Row& row : rows) {
    CAPTURE(row.leaves);
    CHECK(format::level_pages(row.leaves, 0) == row.leaves);
    CHECK(format::level_pages(row.leaves, 1) == row.directories);
    CHECK(format::level_pages(row.leaves, 2) == row.above);
    CHECK(format::root_levels(row.leaves) == row.levels);
  }
}
