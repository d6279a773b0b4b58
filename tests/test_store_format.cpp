// What makes a shelf of what is none, whole or cut off, and what tells the one from the other.
#include <functional>

#include "cached_disk.hpp"
#include "format/format.hpp"
#include "raw_pages.hpp"
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

TEST_CASE("pages of a level, at the edges of the root, of one directory and of one level") {
  constexpr std::uint64_t one = format::kDirectoryRefs;
  constexpr std::uint64_t most = format::kRootRefs * one;
  CHECK(format::leaves_through(0) == format::kRootRefs);
  CHECK(format::leaves_through(1) == most);
  CHECK(format::leaves_through(2) == format::kMaxLeaves);
  struct Row {
    std::uint64_t leaves, directories, above;
    unsigned levels;
  };
  const std::vector<Row> rows = {
      {0, 0, 0, 1},
      {1, 1, 1, 1},
      {format::kRootRefs, 1, 1, 1},
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
    format::Root root{};
    root.leaf_count = static_cast<std::uint32_t>(row.leaves);
    CHECK(format::root_levels(root) == row.levels);
    root.flags = format::kLeavesInRoot;
    CHECK(format::root_levels(root) == 0);
  }
}

namespace {

// The roots that were ever written, by their homes; both copies of each are one.
std::vector<format::Root> roots_of(const Bench& bench, unsigned slots) {
  std::vector<format::Root> roots;
  const auto head = format::read_superblock(raw_at(*bench.medium, 0), 0);
  for (unsigned home = 0; home < slots; ++home) {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const auto page = raw_at(*bench.medium, format::root_at(home, copy));
      if (format::root_word(page) == format::kUnusedHomeWord) continue;
      const format::Seeds seeds(head.superblock.value().shelf_id);
      roots.push_back(format::read_root(page, seeds, {home, copy, slots}).value());
    }
  }
  REQUIRE_FALSE(roots.empty());
  return roots;
}

bool names_leaves(const Bench& bench, const format::Root& root) {
  const format::Page page = page_at(*bench.medium, root.pages[0].at[0]);
  return format::page_head(page).kind != format::PageKind::directory;
}

}  // namespace

TEST_CASE("a shelf keeps the format with which it was made, whatever is done with it") {
  const std::uint32_t number = GENERATE(format::kOldestFormat, format::kFormatVersion);
  const bool in_root = number == format::kFormatVersion;
  CAPTURE(number);
  const Bench bench(64 * kMiB, true, 1, number);
  const auto check = [&] {
    for (const format::Root& root : roots_of(bench, 3)) {
      CAPTURE(format::word_version(root.word));
      CHECK(root.flags == (in_root ? format::kLeavesInRoot : 0));
      if (root.leaf_count > 0) CHECK(names_leaves(bench, root) == in_root);
    }
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const auto page = raw_at(*bench.medium, format::superblock_at(copy));
      CHECK(format::read_superblock(page, copy).superblock->format_version == number);
    }
  };
  check();
  {
    Shelf shelf = bench.open();
    for (unsigned version = 1; version <= 4; ++version) commit(shelf, version);
    check();
    shelf.rollback(3);
    check();
    shelf.prepare({}, "g");
  }
  {
    Shelf shelf = bench.open();
    shelf.resolve(Decision::commit);
    shelf.erase("w");
    shelf.persist();
    check();
  }
  // One copy of each page of the header goes, and comes back.
  for (const std::uint64_t at : {format::superblock_at(0), format::root_at(1, 0)}) {
    bench.medium->wait(bench.medium->write(at, Bytes(kPageBytes), 0));
  }
  const Shelf shelf = bench.open();
  CHECK(shelf.info().recovery.repaired_copies == 2);
  check();
}

TEST_CASE("a root names directories from the leaf on that it has no room for") {
  const Bench bench(64 * kMiB, true, 1);
  const auto newest = [&](std::uint64_t version) {
    for (const format::Root& root : roots_of(bench, 3)) {
      if (format::word_version(root.word) == version) return root;
    }
    throw std::logic_error("no such version");
  };
  const auto add = [](Shelf& shelf, unsigned count) {  // three of them fill a page
    for (unsigned i = 0; i < count; ++i) {
      std::string name = std::to_string(shelf.names().size());
      name.insert(0, 1000 - name.size(), '0');
      make(shelf, name, 8)
          .write(Bytes(8, std::byte{static_cast<std::uint8_t>(shelf.names().size())}));
    }
  };
  const auto check_values = [](const Shelf& shelf) {
    std::uint8_t number = 0;
    for (const std::string& name : shelf.names()) {
      CHECK((value(shelf.find(name).value()) == Bytes(8, std::byte{++number})));
    }
  };
  {
    Shelf shelf = bench.open();
    add(shelf, 3 * (format::kRootRefs - 2));  // and two pages of cells
    shelf.persist();
    REQUIRE(newest(1).leaf_count == format::kRootRefs);
    CHECK(newest(1).flags == format::kLeavesInRoot);
    add(shelf, 1);
    shelf.persist();
    REQUIRE(newest(2).leaf_count == format::kRootRefs + 1);
    CHECK(newest(2).flags == 0);
    CHECK_FALSE(names_leaves(bench, newest(2)));
    shelf.rollback(1);
    CHECK(newest(3).flags == format::kLeavesInRoot);
  }
  {
    Shelf shelf = bench.open();
    check_values(shelf);
    add(shelf, 4);
    shelf.persist();
    CHECK(newest(4).flags == 0);
  }
  const Shelf shelf = bench.open(Mode::read);
  CHECK(shelf.names().size() == 3 * (format::kRootRefs - 2) + 4);
  check_values(shelf);
}
