// Shelves of which the newest version is lost: what is shown in its place, what the error says, and
// that what was given up stays so.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <vector>

#include <tensorshelf/repair.hpp>

#include "cached_disk.hpp"
#include "forgery.hpp"
#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using format::RawPage;
using format::root_at;

namespace {

void fill(Medium& medium, std::uint64_t at, std::byte with) {
  write_raw(medium, at, page_of(with));
}

std::shared_ptr<CachedDisk> disk_of(unsigned keep) {
  auto disk = std::make_shared<CachedDisk>();
  CachedMedium medium(disk);
  Shelf::format(medium, {.keep = keep});
  return disk;
}

Shelf open_disk(const std::shared_ptr<CachedDisk>& disk, Mode mode = Mode::update) {
  return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
}

}  // namespace

TEST_CASE("whatever lies in both copies of the newest home, that a version is lost is told") {
  enum class Harm { zeros, ones, garbage, no_word, unused, one_old_word };
  const auto harm = GENERATE(Harm::zeros, Harm::ones, Harm::garbage, Harm::no_word, Harm::unused,
                             Harm::one_old_word);
  const unsigned keep = GENERATE(0U, 1U);
  const unsigned slots = keep + 2;
  for (unsigned newest = 1; newest <= 2 * slots; ++newest) {
    if (harm == Harm::unused && newest < slots) continue;  // a home that was never used, or wiped
    CAPTURE(static_cast<int>(harm), keep, newest);
    const Kept kept({keep, 1, true, Placement::whole});
    std::array<RawPage, kCopies> older;  // as it lay there before
    {
      Shelf shelf = kept.open();
      for (unsigned version = 1; version <= newest; ++version) {
        for (unsigned copy = 0; copy < kCopies; ++copy) {
          older[copy] = raw_at(*kept.medium, root_at(version % slots, copy));
        }
        commit(shelf, version);
      }
    }
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const std::uint64_t at = root_at(newest % slots, copy);
      RawPage page = raw_at(*kept.medium, at);
      if (harm == Harm::ones) page.bytes.fill(std::byte{0xFF});
      if (harm == Harm::garbage) page.bytes.fill(std::byte{0x5A});
      if (harm == Harm::zeros || harm == Harm::unused) page = page_of({});
      if (harm == Harm::one_old_word) page.bytes[100] ^= std::byte{1};
      const std::uint64_t word = harm == Harm::unused ? format::kUnusedHomeWord
                                 : harm == Harm::one_old_word && copy == 1
                                     ? format::root_word(older[copy])
                                     : 0;
      if (harm >= Harm::no_word) std::memcpy(page.bytes.data(), &word, sizeof word);
      write_raw(*kept.medium, at, page);
    }
    // One word of a home that was never used explains it.
    const bool explained = harm == Harm::one_old_word && newest < slots;
    const std::vector<std::uint64_t> lost(explained ? 0 : 1, newest);
    const auto check = [&](const Shelf& shelf, bool degraded) {
      const Recovery recovery = shelf.info().recovery;
      CHECK(recovery.version == newest - 1);
      CHECK(recovery.degraded == degraded);
      if (degraded) {
        REQUIRE(recovery.notes.size() == 1);
        CHECK(contains(recovery.notes[0], "version " + std::to_string(newest - 1) +
                                              " was opened in place of a newer, damaged one"));
      }
      CHECK(recovery.lost == (degraded ? lost : std::vector<std::uint64_t>{}));
      if (newest > 1) CHECK((value(shelf.find("w").value()) == pattern(5000, newest - 1)));
      if (!explained) CHECK(shelf.versions().size() == 1);  // none is offered before a gap
    };
    check(kept.open(Mode::read), !explained);
    check(kept.open(), !explained);
    check(kept.open(Mode::read), false);  // what was given up is no doubt any more
    Shelf shelf = kept.open();
    check(shelf, false);
    commit(shelf, newest);
    shelf.close();
    CHECK((value(kept.open().find("w").value()) == pattern(5000, newest)));
  }
}

// Attempts over the lost version may have written to the slots of all before the one at hand.
TEST_CASE("no crash while a lost version is given up offers those before the gap") {
  const auto whole = disk_of(1);
  {
    Shelf shelf = open_disk(whole);
    for (unsigned version = 1; version <= 5; ++version) commit(shelf, version);
  }
  CachedMedium medium(whole);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    fill(medium, root_at(5 % 3, copy), std::byte{0x5A});
  }
  medium.barrier();
  bool dies = true;
  for (unsigned n = 0; dies; ++n) {
    for (unsigned landing = 0; landing < 16; ++landing) {  // which pages that were under way land
      CAPTURE(n, landing);
      const auto disk = std::make_shared<CachedDisk>(*whole);
      disk->dies = [at = disk->events + n](unsigned event) { return event == at; };
      dies = error_of([&] { open_disk(disk); }).has_value();
      disk->dies = {};
      std::vector<std::uint64_t> pages;  // of each sector that is dirty, in their order
      for (const auto& [sector, how] : disk->dirty) {
        pages.push_back(sector * CachedDisk::kSectorBytes / kPageBytes);
      }
      disk->fate_of_dirty = [&, next = 0U, page = 0U]() mutable {
        if (next > 0 && pages[next] != pages[next - 1]) ++page;
        ++next;
        return (landing >> page % 4 & 1) != 0 ? CachedDisk::Fate::landed
                                              : CachedDisk::Fate::missing;
      };
      disk->lose_power();
      for (const Mode mode : {Mode::read, Mode::update, Mode::update}) {
        const Shelf shelf = open_disk(disk, mode);
        CHECK(numbers(shelf) == std::vector<std::uint64_t>{4});
        CHECK((value(shelf.find("w").value()) == pattern(5000, 4)));
      }
    }
  }
}

TEST_CASE("an open that verifies says what is damaged, and whether an older version is whole") {
  enum class Older { whole, chunk, manifest, no_memory };
  const auto older = GENERATE(Older::whole, Older::chunk, Older::manifest, Older::no_memory);
  const Mode mode = GENERATE(Mode::read, Mode::update);
  CAPTURE(static_cast<int>(older), mode == Mode::read);
  const auto disk = disk_of(1);
  {
    Shelf shelf = open_disk(disk);
    commit(shelf, 1);
    commit(shelf, 2);
  }
  CachedMedium medium(disk);
  const auto spoil = [&](const std::vector<std::byte>& value) {
    const auto there = std::search(disk->visible.begin(), disk->visible.end(), value.begin(),
                                   value.begin() + kPageBytes);
    REQUIRE(there != disk->visible.end());
    there[100] ^= std::byte{1};
  };
  spoil(pattern(5000, 2));
  if (older == Older::chunk) spoil(pattern(5000, 1));
  Root root;
  std::memcpy(&root, disk->visible.data() + root_at(1, 0), sizeof root);
  for (const std::uint64_t at : root.pages[0].at) {
    if (older == Older::manifest) fill(medium, at, std::byte{0x5A});
    if (older == Older::no_memory) disk->unreadable[at] = ENOMEM;
  }
  const auto before = disk->visible;
  const auto error = error_of([&] {
    Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode, .verify = Verify::on_open});
  });
  REQUIRE(error);
  CHECK((disk->visible == before));
  if (older == Older::no_memory) {
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == ENOMEM);
    return;
  }
  CHECK(error->code() == Errc::corrupt);
  CHECK(std::string(error->what()) ==
        std::string("<cached>: chunk 0 of 'w' v2 slot B fails its checksum; ") +
            (older == Older::whole ? "version 1 is intact" : "no older version is whole"));
  CHECK(contains(error->remedy(), "assigning the damaged one heals it"));
  CHECK(contains(error->remedy(), "at(1) reads the older version") == (older == Older::whole));
  Shelf shelf = open_disk(disk);
  shelf.find("w")->write(pattern(5000, 3));
  shelf.persist(3);
  CHECK((value(shelf.find("w").value()) == pattern(5000, 3)));
}

// By an error that may pass: its slots must not be written meanwhile.
TEST_CASE("a newest version that cannot be read is passed over by readers alone, or given up") {
  const bool manifest = GENERATE(true, false);
  CAPTURE(manifest);
  const auto disk = disk_of(0);
  {
    Shelf shelf = open_disk(disk);
    commit(shelf, 1);
    commit(shelf, 2);
  }
  const auto before = disk->visible;
  Root root;
  std::memcpy(&root, disk->visible.data() + root_at(0, 0), sizeof root);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    disk->unreadable[manifest ? root.pages[0].at[copy] : root_at(0, copy)] = EIO;
  }
  const std::string place = "a read at " + std::to_string(disk->unreadable.begin()->first);
  const auto error = error_of([&] { open_disk(disk); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(error->os_error() == EIO);
  CHECK(contains(error->what(), "a version newer than 1 may be there and cannot be read"));
  CHECK(contains(error->what(), place + " failed: Input/output error"));
  CHECK(contains(error->remedy(), "open it again: the error may pass"));
  {
    const Shelf reader = open_disk(disk, Mode::read);
    const Recovery recovery = reader.info().recovery;
    CHECK(recovery.degraded);
    CHECK(recovery.lost == std::vector<std::uint64_t>{2});
    CHECK((value(reader.find("w").value()) == pattern(5000, 1)));
  }
  CHECK((disk->visible == before));
  const auto unreadable = disk->unreadable;
  SECTION("the error passes") {
    disk->unreadable = {};
    Shelf shelf = open_disk(disk);
    CHECK((value(shelf.find("w").value()) == pattern(5000, 2)));
  }
  SECTION("it is given up, and passes then") {
    const RepairReport report = repair(std::make_unique<CachedMedium>(disk));
    CHECK(report.repaired);
    CHECK(report.version == 1);
    CHECK(report.lost == std::vector<std::uint64_t>{2});
    disk->unreadable = {};
    Shelf shelf = open_disk(disk);
    CHECK_FALSE(shelf.info().recovery.degraded);
    CHECK((value(shelf.find("w").value()) == pattern(5000, 1)));
    commit(shelf, 2);
  }
}

TEST_CASE("one copy that cannot be read keeps no open from verifying every chunk") {
  const unsigned copy = GENERATE(0U, 1U);
  const Mode mode = GENERATE(Mode::read, Mode::update);
  const auto disk = disk_of(0);
  {
    Shelf shelf = open_disk(disk);
    commit(shelf, 1);
    commit(shelf, 2);
  }
  disk->unreadable = {{root_at(0, copy), EIO}};
  const OpenOptions options{.mode = mode, .verify = Verify::on_open};
  const Shelf shelf = Shelf::open(std::make_unique<CachedMedium>(disk), options);
  const Recovery recovery = shelf.info().recovery;
  CHECK(recovery.version == 2);
  CHECK_FALSE(recovery.degraded);
  CHECK(recovery.repaired_copies == (mode == Mode::update ? 1 : 0));
  REQUIRE_FALSE(recovery.notes.empty());
  CHECK(recovery.notes.back() ==
        "1 pages of metadata could not be read, and their other copies served; the first: a read "
        "at " +
            std::to_string(root_at(0, copy)) + " failed: Input/output error");
}

// The newest is version 2.
TEST_CASE("one copy that cannot be read is told, whichever version alone names its page") {
  const unsigned version = GENERATE(1U, 3U);  // that is retained, that is prepared
  const unsigned copy = GENERATE(0U, 1U);
  CAPTURE(version, copy);
  const auto disk = disk_of(1);
  {
    Shelf shelf = open_disk(disk);
    commit(shelf, 1);
    commit(shelf, 2);
    shelf.find("w")->write(pattern(5000, 3));
    if (version == 3) shelf.prepare(3);
  }
  CachedMedium medium(disk);
  const auto leaves_of = [&](unsigned number) {
    const auto root = format::load<format::Root>(raw_at(medium, root_at(number % 3, 0)));
    return std::vector<PageRef>(root.pages.begin(), root.pages.begin() + root.leaf_count);
  };
  const auto newest = leaves_of(2);
  std::vector<std::uint64_t> alone;
  for (const PageRef& leaf : leaves_of(version)) {
    if (std::count(newest.begin(), newest.end(), leaf) == 0) alone.push_back(leaf.at[copy]);
  }
  REQUIRE(alone.size() == 1);
  disk->unreadable = {{alone[0], EIO}};
  const Recovery recovery = open_disk(disk).info().recovery;
  CHECK(recovery.version == 2);
  CHECK(recovery.dropped.empty());
  CHECK(recovery.prepared.has_value() == (version == 3));
  CHECK(recovery.repaired_copies == 1);
  REQUIRE_FALSE(recovery.notes.empty());
  CHECK(recovery.notes.back() ==
        "1 pages of metadata could not be read, and their other copies served; the first: a read "
        "at " +
            std::to_string(alone[0]) + " failed: Input/output error");
}

TEST_CASE("a damaged copy of any page of the manifest costs nothing, and is written anew") {
  const bool directory = GENERATE(true, false);
  const Forgery forgery(0, Placement::whole, directory ? 2 : format::kFormatVersion);
  std::vector<PageRef> pages = forgery.leaves();
  if (directory) pages.push_back(forgery.root().pages[0]);
  REQUIRE(pages.size() == (directory ? 3 : 2));
  for (const PageRef& page : pages) {
    for (const unsigned copy : {0U, 1U, 0U}) {
      CAPTURE(page.at[copy], copy);
      fill(*forgery.bench.medium, page.at[copy], std::byte{0x5A});
      const Recovery seen = forgery.bench.open(Mode::read).info().recovery;
      REQUIRE(seen.notes.size() == 1);
      CHECK(contains(seen.notes[0], "One copy of metadata is damaged"));
      CHECK(seen.repaired_copies == 0);
      const Shelf shelf = forgery.bench.open();
      CHECK(shelf.version() == 2);
      CHECK_FALSE(shelf.info().recovery.degraded);
      CHECK(shelf.info().recovery.repaired_copies == 1);
      CHECK(shelf.info().recovery.notes.empty());
      CHECK((value(shelf.find("a").value()) == pattern(5000, 3)));
    }
  }
  CHECK(forgery.bench.open().info().recovery.repaired_copies == 0);
}

// A drive that lost a write tells nobody.
TEST_CASE("a copy of the newest root that is still the one before it is written anew") {
  const unsigned stale = GENERATE(0U, 1U);
  const Kept kept({0, 1, true, Placement::whole});
  {
    Shelf shelf = kept.open();
    commit(shelf, 1);
    const Page before = page_at(*kept.medium, root_at(1, stale));
    commit(shelf, 2);
    commit(shelf, 3);
    write_page(*kept.medium, root_at(1, stale), before);
  }
  for (const std::uint64_t repaired : {1U, 0U}) {
    const Shelf shelf = kept.open();
    CHECK(shelf.version() == 3);
    CHECK_FALSE(shelf.info().recovery.degraded);
    CHECK(shelf.info().recovery.repaired_copies == repaired);
  }
  fill(*kept.medium, root_at(1, 1 - stale), std::byte{0x5A});
  const Shelf shelf = kept.open();
  CHECK(shelf.version() == 3);
  CHECK_FALSE(shelf.info().recovery.degraded);
  CHECK((value(shelf.find("w").value()) == pattern(5000, 3)));
}

TEST_CASE("what cannot be read for want of memory is no damage, whatever page it is") {
  const Mode mode = GENERATE(Mode::read, Mode::update);
  const unsigned tensors = GENERATE(1U, 100U);  // on one page of records, or several side by side
  const auto disk = disk_of(1);
  {
    Shelf shelf = open_disk(disk);
    for (unsigned version = 1; version <= 2; ++version) {
      for (unsigned i = 0; i < tensors; ++i) {
        make(shelf, std::to_string(version) + " " + std::to_string(i), 0);
      }
      shelf.persist(version);
    }
  }
  const auto before = disk->visible;
  unsigned met = 0;
  for (std::uint64_t at = 0; at < before.size(); at += kPageBytes) {
    CAPTURE(mode == Mode::read, tensors, at);
    disk->unreadable = {{at, ENOMEM}};
    disk->refused = 0;
    const auto error = error_of([&] { open_disk(disk, mode); });
    if (disk->refused == 0) {
      REQUIRE_FALSE(error);
      disk->visible = before;
      continue;
    }
    ++met;
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == ENOMEM);
    CHECK((disk->visible == before));  // nothing is written over what may be whole
  }
  CHECK(met >= 2 * (1 + 1 + 3 + 4));  // superblock, mark, homes, leaves; twice
}

// So many pages that several threads read them, a run of them each.
TEST_CASE("damaged copies in a large manifest are found wherever they lie") {
  constexpr int kTensors = 20'000;
  const bool mapped = GENERATE(true, false);
  CAPTURE(mapped);
  const Bench bench(64 * kMiB, mapped);
  {
    Shelf shelf = bench.open();
    for (int i = 0; i < kTensors; ++i) make(shelf, fmt::format("tensor {}", i), 0);
    shelf.persist(1);
  }
  std::map<std::vector<std::byte>, std::vector<std::uint64_t>> leaves;  // places, by what is there
  for (std::uint64_t at = format::kHeapAt; at < bench.medium->size(); at += kPageBytes) {
    const RawPage page = raw_at(*bench.medium, at);
    const auto kind = static_cast<unsigned>(page.bytes[0]);
    if (kind == 2 || kind == 3) {
      leaves[{page.bytes.begin(), page.bytes.end()}].push_back(at);
    }
  }
  REQUIRE(leaves.size() > 512);  // three runs
  std::uint64_t damaged = 0;
  for (const auto& [bytes, places] : leaves) {
    REQUIRE(places.size() == kCopies);
    if (damaged < 200) fill(*bench.medium, places[damaged++ % kCopies], std::byte{0x5A});
  }
  for (const std::uint64_t repaired : {damaged, std::uint64_t{0}}) {
    const Shelf shelf = bench.open();
    CHECK(shelf.names().size() == kTensors);
    CHECK(shelf.info().recovery.repaired_copies == repaired);
  }
  for (const std::uint64_t at : leaves.rbegin()->second) fill(*bench.medium, at, std::byte{0x5A});
  const Shelf shelf = bench.open(Mode::read);
  CHECK(shelf.version() == 0);
  CHECK(shelf.info().recovery.lost == std::vector<std::uint64_t>{1});
}
