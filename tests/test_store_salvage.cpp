// Shelves that no plain open takes: what is whole of them is shown on request, what is not says so,
// and a repair that is asked for makes them writable again, whatever cuts it off.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include <tensorshelf/repair.hpp>

#include "cached_disk.hpp"
#include "format/format.hpp"
#include "raw_pages.hpp"
#include "store/io/root_scan.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using format::kCopies;
using format::Page;
using format::PageRef;

namespace {

constexpr std::int64_t kBytes = 5000;

Bytes value_of(const std::string& name, unsigned step) {
  return pattern(kBytes, 100 * step + static_cast<unsigned>(name[0]));
}

enum class Harm { home, incarnation, both, leaf };

// A shelf at version 3: a was written in each, b in the first two, c in the first. What the harm
// leaves is `version` with one damaged tensor, or none.
struct Broken {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
  format::Seeds seeds{format::ShelfId{}};
  std::uint64_t last_incarnation = 0;
  std::uint64_t version = 3;
  std::string damaged;
  std::vector<std::uint64_t> lost;

  Broken(const Broken& other) : Broken(other, std::make_shared<CachedDisk>(*other.disk)) {}
  explicit Broken(Harm harm, bool unreadable = false) {
    write_versions();
    seeds = format::Seeds(superblock().shelf_id);
    if (harm == Harm::incarnation || harm == Harm::both) {
      for (unsigned copy = 0; copy < kCopies; ++copy) spoil(format::incarnation_at(copy));
    }
    if (harm == Harm::home || harm == Harm::both) {
      rot("b", 2);
      for (unsigned copy = 0; copy < kCopies; ++copy) spoil(format::root_at(0, copy));
      damaged = "b";
      lost = {4};
    }
    if (harm == Harm::leaf) {
      for (const PageRef& ref : leaves_of_newest_alone()) {
        for (std::uint64_t at : ref.at) unreadable ? refuse(at) : spoil(at);
      }
      version = 2;
      damaged = "a";
      lost = {3};
    }
    disk->durable = disk->visible;
  }

  std::unique_ptr<Medium> medium() const { return std::make_unique<CachedMedium>(disk); }
  Shelf open(Mode mode = Mode::update, bool salvage = false) const {
    return Shelf::open(medium(), {.mode = mode, .salvage = salvage});
  }
  RepairReport mend() const { return repair(medium()); }
  Page page_at(std::uint64_t at) const {
    CachedMedium there(disk);
    return testing::page_at(there, at);
  }
  format::Superblock superblock() const {
    return format::read_superblock(raw(page_at(0)), 0).superblock.value();
  }

  // Every tensor has the value of that version or says that it is damaged; and which do.
  void check(const Shelf& shelf) const {
    REQUIRE(shelf.info().version == version);
    REQUIRE(shelf.info().step == version);
    REQUIRE(shelf.names() == std::vector<std::string>{"a", "b", "c"});
    const std::vector<unsigned> steps = {version == 3 ? 3U : 2U, 2U, 1U};
    for (unsigned i = 0; i < 3; ++i) {
      const std::string name = shelf.names()[i];
      CAPTURE(name);
      Bytes bytes(kBytes, std::byte{0xAA});
      const auto error = error_of([&] { shelf.find(name)->read(bytes); });
      REQUIRE(error.has_value() == (name == damaged));
      if (error) REQUIRE(error->code() == Errc::corrupt);
      if (!error) REQUIRE((bytes == value_of(name, steps[i])));
    }
  }

  // Written to, read, opened, and with all damage healed.
  void check_use() const {
    {
      Shelf shelf = open();
      REQUIRE_FALSE(shelf.info().recovery.degraded);
      REQUIRE(shelf.info().incarnation > last_incarnation);
      check(shelf);
      for (const char* name : {"a", "b"}) shelf.find(name)->write(value_of(name, 9));
      REQUIRE(shelf.persist(9).version == version + 1);
      REQUIRE(shelf.verify().damage.empty());
    }
    disk->lose_power();
    Shelf shelf = open();
    REQUIRE(shelf.info().version == version + 1);
    REQUIRE_FALSE(shelf.info().recovery.degraded);
    REQUIRE((value(*shelf.find("a")) == value_of("a", 9)));
    REQUIRE((value(*shelf.find("b")) == value_of("b", 9)));
    REQUIRE((value(*shelf.find("c")) == value_of("c", 1)));
  }

 private:
  Broken(const Broken& other, std::shared_ptr<CachedDisk> copy)
      : disk(std::move(copy)),
        seeds(other.seeds),
        last_incarnation(other.last_incarnation),
        version(other.version),
        damaged(other.damaged),
        lost(other.lost) {}

  void write_versions() {
    CachedMedium medium(disk);
    Shelf::format(medium);
    {
      Shelf shelf = open();
      for (const char* name : {"a", "b", "c"}) make(shelf, name, kBytes).write(value_of(name, 1));
      shelf.persist(1);
      for (const char* name : {"a", "b"}) shelf.find(name)->write(value_of(name, 2));
      shelf.persist(2);
      shelf.find("a")->write(value_of("a", 3));
      shelf.persist(3);
      shelf.find("a")->write(value_of("a", 4));  // and dropped: version 2 is not whole any more
    }
    for (int i = 0; i < 3; ++i) last_incarnation = open().info().incarnation;
  }
  void spoil(std::uint64_t at) const {
    const Bytes garbage = pattern(kPageBytes, static_cast<unsigned>(at));
    std::copy(garbage.begin(), garbage.end(),
              disk->visible.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void refuse(std::uint64_t at) const { disk->unreadable[at] = EIO; }
  void rot(const std::string& name, unsigned step) const {
    const Bytes bytes = value_of(name, step);
    const auto there =
        std::search(disk->visible.begin(), disk->visible.end(), bytes.begin(), bytes.begin() + 64);
    REQUIRE(there != disk->visible.end());
    there[1000] ^= std::byte{4};
  }
  std::vector<PageRef> leaves(const format::Root& root) const {
    return {root.pages.begin(), root.pages.begin() + root.leaf_count};
  }
  std::vector<PageRef> leaves_of_newest_alone() const {
    CachedMedium medium(disk);
    const auto roots = scan_roots(medium, seeds, format::kMinSlots).candidates();
    auto newest = leaves(roots.at(0));
    const auto older = leaves(roots.at(1));
    std::erase_if(newest, [&](const PageRef& ref) {
      return std::find(older.begin(), older.end(), ref) != older.end();
    });
    REQUIRE_FALSE(newest.empty());
    return newest;
  }
};

Harm any_harm() { return GENERATE(Harm::home, Harm::incarnation, Harm::both, Harm::leaf); }

}  // namespace

TEST_CASE("what no open takes is refused with the way to what is whole") {
  const Harm harm = any_harm();
  const Broken broken(harm);
  const auto error = error_of([&] { broken.open(); });
  REQUIRE(error);
  REQUIRE(error->code() == Errc::corrupt);
  CAPTURE(error->remedy());
  REQUIRE(contains(error->remedy(), "mode=\"r\""));
  REQUIRE(contains(error->remedy(), "salvage=True") == (harm != Harm::incarnation));
  REQUIRE(contains(error->remedy(), "repair()"));
  if (harm != Harm::incarnation)
    REQUIRE(code_of([&] { broken.open(Mode::read); }) == Errc::corrupt);
}

TEST_CASE("salvage shows what is whole, tensor by tensor, and writes nothing") {
  const Harm harm = any_harm();
  const Broken broken(harm);
  const Bytes before = broken.disk->visible;
  {
    const Shelf shelf = broken.open(Mode::read, true);
    broken.check(shelf);
    const Recovery recovery = shelf.info().recovery;
    REQUIRE(recovery.salvaged == (harm != Harm::incarnation));
    REQUIRE(recovery.degraded == recovery.salvaged);
    REQUIRE(recovery.lost == broken.lost);
    REQUIRE(recovery.notes.empty() != recovery.salvaged);
    if (recovery.salvaged) {
      REQUIRE(contains(recovery.notes.front(), fmt::format("version {} may", broken.lost[0])));
    }
    std::set<std::string> damaged;
    for (const Damage& damage : shelf.verify().damage) damaged.insert(damage.tensor);
    REQUIRE(damaged == (broken.damaged.empty() ? std::set<std::string>{}
                                               : std::set<std::string>{broken.damaged}));
    broken.check(shelf);
  }
  REQUIRE((broken.disk->visible == before));
}

TEST_CASE("salvage of a shelf that opens is opening it") {
  const Bench bench;
  {
    Shelf shelf = bench.open();
    make(shelf, "w", 100).write(pattern(100, 1));
    shelf.persist(1);
  }
  OpenOptions options{.mode = Mode::read, .salvage = true};
  const Shelf shelf = Shelf::open(std::make_unique<SharedMedium>(bench.medium), options);
  REQUIRE_FALSE(shelf.info().recovery.salvaged);
  REQUIRE(shelf.info().recovery.notes.empty());
  REQUIRE((value(*shelf.find("w")) == pattern(100, 1)));
}

TEST_CASE("salvage is for reading, with checks") {
  const Bench bench;
  const auto refused = [&](const OpenOptions& options) {
    return code_of([&] { Shelf::open(std::make_unique<SharedMedium>(bench.medium), options); });
  };
  for (const Mode mode : {Mode::update, Mode::append, Mode::replace, Mode::create}) {
    REQUIRE(refused({.mode = mode, .salvage = true}) == Errc::bad_argument);
  }
  for (const Verify verify : {Verify::never, Verify::on_open}) {
    REQUIRE(refused({.mode = Mode::read, .verify = verify, .salvage = true}) == Errc::bad_argument);
  }
}

TEST_CASE("where no manifest is whole there is nothing to salvage, and nothing is written") {
  Broken broken(Harm::leaf);
  for (unsigned home = 0; home < 2; ++home) {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      const auto at =
          broken.disk->visible.begin() + static_cast<std::ptrdiff_t>(format::root_at(home, copy));
      if (home == 0) std::fill_n(at, kPageBytes, std::byte{0x5A});
    }
  }
  const Bytes before = broken.disk->visible;
  for (const auto& call : {std::function<void()>([&] { broken.open(Mode::read, true); }),
                           std::function<void()>([&] { broken.open(); }),
                           std::function<void()>([&] { broken.mend(); })}) {
    const auto error = error_of(call);
    REQUIRE(error);
    REQUIRE(error->code() == Errc::corrupt);
    REQUIRE(error->remedy() ==
            "Restore the file from a copy. A mirror of it may have what is lost: give it by "
            "mirror=.");
  }
  REQUIRE((broken.disk->visible == before));
}

TEST_CASE("a reader of what was salvaged is stale once a writer has repaired it and gone on") {
  const Broken broken(Harm::leaf);
  const Shelf reader = broken.open(Mode::read, true);
  broken.check(reader);  // damage is damage as long as nobody writes
  broken.mend();
  Shelf writer = broken.open();
  for (unsigned step = 10; step < 13; ++step) {
    for (const char* name : {"a", "b"}) writer.find(name)->write(value_of(name, step));
    writer.persist(step);
  }
  Bytes bytes(kBytes);
  REQUIRE(code_of([&] { reader.find("b")->read(bytes); }) == Errc::stale);
}

TEST_CASE("repair makes a shelf writable, and says what it gave up") {
  const Harm harm = any_harm();
  const Broken broken(harm);
  const RepairReport report = broken.mend();
  broken.disk->lose_power();
  REQUIRE(report.repaired);
  REQUIRE(report.version == broken.version);
  REQUIRE(report.step == broken.version);
  REQUIRE(report.lost == broken.lost);
  // The bad copies of the incarnation are counted; what is given up is not made anew.
  const bool counted = harm == Harm::incarnation || harm == Harm::both;
  REQUIRE(report.notes.size() == 2 + broken.lost.size() + counted);
  REQUIRE(contains(report.notes[0], "Opening it failed: "));
  REQUIRE(contains(report.notes[1], fmt::format("Version {} is the newest", broken.version)));
  if (!broken.lost.empty()) {
    REQUIRE(contains(report.notes[2], fmt::format("Version {} may have been", broken.lost[0])));
  }
  if (counted) REQUIRE(report.notes.back() == "2 copies of metadata were written anew.");
  REQUIRE(report.damage.size() == (broken.damaged.empty() ? 0 : 1));
  if (!report.damage.empty()) REQUIRE(report.damage[0].tensor == broken.damaged);

  const Bytes before = broken.disk->visible;
  const RepairReport again = broken.mend();
  REQUIRE_FALSE(again.repaired);
  REQUIRE(again.version == broken.version);
  REQUIRE(again.lost.empty());
  REQUIRE(again.notes == std::vector<std::string>{"It opens as it is: nothing was written."});
  REQUIRE(again.damage.size() == report.damage.size());
  REQUIRE((broken.disk->visible == before));
  REQUIRE_FALSE(broken.open().info().recovery.interrupted);
  broken.check_use();
}

TEST_CASE("repair of a shelf that this release may only read is refused, and writes nothing") {
  const Broken broken(any_harm());
  auto superblock = broken.superblock();
  superblock.ro_compat_features = 1;
  CachedMedium medium(broken.disk);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::superblock_at(copy), format::encode_superblock(superblock, copy));
  }
  const Bytes before = broken.disk->visible;
  REQUIRE(code_of([&] { broken.mend(); }) == Errc::read_only);
  REQUIRE((broken.disk->visible == before));
  broken.check(broken.open(Mode::read, true));  // and shows what is whole, as ever
}

TEST_CASE("repair of what is no shelf is refused, and writes nothing") {
  const auto disk = std::make_shared<CachedDisk>();
  disk->visible.resize(kMiB);
  const Bytes before = disk->visible;
  REQUIRE(code_of([&] { repair(std::make_unique<CachedMedium>(disk)); }) == Errc::not_a_shelf);
  REQUIRE((disk->visible == before));
}

TEST_CASE("repair gives nothing up for a read that failed for want of memory") {
  const Broken broken(Harm::leaf, true);
  broken.disk->unreadable.clear();  // it is whole
  const Bytes before = broken.disk->visible;
  bool met = true;
  for (unsigned n = 0; met; ++n) {
    CAPTURE(n);
    met = false;
    broken.disk->on_read = [&, reads = 0U](std::uint64_t) mutable {
      if (reads++ != n) return true;
      met = true;
      throw Error(Errc::io, "no memory", "Free some memory, and try again.", ENOMEM);
    };
    const auto error = error_of([&] { broken.mend(); });
    REQUIRE(error.has_value() == met);
    if (error) REQUIRE(error->os_error() == ENOMEM);
    REQUIRE((broken.disk->visible == before));
  }
}

TEST_CASE("repair of version 1 and of version 0") {
  const bool committed = GENERATE(false, true);
  Bench bench;
  if (committed) {
    Shelf shelf = bench.open();
    make(shelf, "w", 100).write(pattern(100, 1));
    shelf.persist(1);
    const auto all = bench.medium->view({0, bench.medium->size()});
    const auto bytes = pattern(100, 1);
    const auto there = std::search(all.begin(), all.end(), bytes.begin(), bytes.end());
    write_page(*bench.medium, round_up(there - all.begin(), kPageBytes), Page{});
  }
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto garbage = page_of(std::byte{0x5A});
    write_raw(*bench.medium, format::incarnation_at(copy), garbage);
    write_raw(*bench.medium, format::root_at(committed ? 0 : 1, copy), garbage);
  }
  REQUIRE(code_of([&] { bench.open(); }) == Errc::corrupt);
  REQUIRE(repair(std::make_unique<SharedMedium>(bench.medium)).repaired);
  Shelf shelf = bench.open();
  REQUIRE(shelf.info().version == (committed ? 1 : 0));
  REQUIRE_FALSE(shelf.info().recovery.degraded);
  shelf.persist(7);
  shelf.close();
  REQUIRE(bench.open().info().step == 7U);
}

// Sectors that could not be read are readable again: what was given up must not come back, over
// slots that belong to others now.
TEST_CASE("a version that was given up does not come back when its damage heals") {
  const Broken broken(Harm::leaf, true);
  REQUIRE(broken.mend().version == 2);
  broken.disk->unreadable.clear();
  REQUIRE(broken.open(Mode::read).info().version == 2);
  broken.check_use();
}

// Two that hold no common lock: the number of the first is in no root.
TEST_CASE("repair gives out a number above that of a writer whose record is lost") {
  Broken broken(Harm::leaf);
  broken.disk->unreadable.clear();
  broken.mend();
  Shelf older = broken.open();
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    std::fill_n(
        broken.disk->visible.begin() + static_cast<std::ptrdiff_t>(format::incarnation_at(copy)),
        kPageBytes, std::byte{0x5A});
  }
  REQUIRE(broken.mend().repaired);
  REQUIRE(code_of([&] { older.find("b")->write(value_of("b", 9)); }) == Errc::busy);
  REQUIRE(code_of([&] { older.persist(9); }) == Errc::busy);
}

// The repair dies at any event, or one of its barriers fails and leaves its pages visible; then the
// power goes. What can be salvaged stays so, and a second repair ends it.
TEST_CASE("a repair that is cut off leaves the shelf as it was, or repaired") {
  const auto seed = Catch::rngSeed();
  const unsigned chance = GENERATE(range(0u, 12u));  // 0: nothing lands without a barrier
  const Harm harm = any_harm();
  CAPTURE(seed, chance, static_cast<int>(harm));
  const Broken whole(harm);
  for (const bool fails : {false, true}) {
    bool cut = true;
    for (unsigned n = 0; cut; ++n) {
      CAPTURE(fails, n);
      const Broken broken(whole);
      CachedDisk& disk = *broken.disk;
      std::mt19937_64 random(seed + chance + 100 * n);
      if (chance != 0) {
        disk.fate_of_dirty = [&] { return static_cast<CachedDisk::Fate>(random() % 3); };
      }
      cut = false;
      if (fails) {
        disk.barrier_fails = [&, at = disk.barriers + n](unsigned i) {
          cut = cut || i == at;
          return i == at;
        };
      } else {
        disk.dies = [&, at = disk.events + n](unsigned i) {
          cut = cut || i == at;
          return i == at;
        };
      }
      const auto error = error_of([&] { broken.mend(); });
      REQUIRE(error.has_value() == cut);
      disk.dies = {};
      disk.barrier_fails = {};
      // The next one may find a shelf that opens, by what is in a cache, and use it as it is.
      if (fails && random() % 2 == 0 && !error_of([&] { broken.open(); })) {
        disk.lose_power();
        broken.check(broken.open(Mode::read));
      }
      disk.lose_power();
      broken.check(broken.open(Mode::read, true));
      if (!cut) broken.check(broken.open(Mode::read));
      if (!error_of([&] { broken.open(Mode::read); })) broken.check(broken.open(Mode::read));
      broken.mend();
      disk.lose_power();
      broken.check_use();
    }
  }
}
