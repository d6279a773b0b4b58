// Which roots an opening takes from a mirror: RootScan::take_lost(), over scans made by hand. (What
// media do to pages is the explorer's, crashtest/mirror_rot_plays.cpp.)
#include <array>
#include <cstdint>
#include <initializer_list>

#include "catch.hpp"
#include "format/format.hpp"
#include "mirrored_shelf.hpp"
#include "store/io/head.hpp"
#include "store/io/root_scan.hpp"

using namespace tensorshelf;

namespace {

constexpr unsigned kSlots = 3;

format::Root root_of(std::uint64_t version) {
  format::Root root{};
  root.word = format::tagged_word(version, 100 + version);
  root.floor = version - 1;
  root.keep = 1;
  root.in_flight = 1;
  return root;
}

void put(RootScan& scan, std::uint64_t version) {
  const unsigned home = format::home_of(version, kSlots);
  for (const unsigned copy : {0U, 1U}) {
    scan.roots[home][copy] = root_of(version);
    scan.words[home][copy] = root_of(version).word;
  }
}

// The versions 5 to 7, of which 6 and 7 are retained.
RootScan whole() {
  RootScan scan;
  scan.slot_count = kSlots;
  for (const std::uint64_t version : {5, 6, 7}) put(scan, version);
  return scan;
}

// Without those roots, in both copies, with such words in their place.
RootScan without(std::initializer_list<std::uint64_t> versions, std::uint64_t word = 0) {
  RootScan scan = whole();
  for (const std::uint64_t version : versions) {
    const unsigned home = format::home_of(version, kSlots);
    scan.roots[home] = {};
    scan.words[home].fill(word);
  }
  return scan;
}

std::uint64_t newest(const RootScan& scan) {
  return format::word_version(scan.candidates().front().word);
}

bool has(const RootScan& scan, std::uint64_t version) {
  const auto& home = scan.roots[format::home_of(version, kSlots)];
  return (home[0] && home[0]->word == root_of(version).word) ||
         (home[1] && home[1]->word == root_of(version).word);
}

// The copy shows that `version` is not there yet, by having been wiped for it.
void wipe(RootScan& scan, std::uint64_t version, unsigned copy) {
  const unsigned home = format::home_of(version, kSlots);
  scan.blank[home][copy] = true;
  scan.words[home][copy] = format::wiped_home_word(version, kSlots);
}

}  // namespace

TEST_CASE("all roots that are lost are taken, where one is left that both have") {
  for (const auto lost : {std::array{7, 7}, {6, 6}, {5, 5}, {6, 7}, {5, 7}, {5, 6}}) {
    RootScan scan = without({static_cast<unsigned>(lost[0]), static_cast<unsigned>(lost[1])});
    CHECK(scan.take_lost(whole()));
    CHECK(scan.has_mirrored());
    for (const std::uint64_t version : {5, 6, 7}) CHECK(has(scan, version));
    CHECK(newest(scan) == 7);
  }
  RootScan nothing_lost = whole();
  CHECK_FALSE(nothing_lost.take_lost(whole()));
  CHECK_FALSE(nothing_lost.has_mirrored());
  RootScan nothing_left = without({5, 6, 7});
  CHECK_FALSE(nothing_left.take_lost(whole()));
}

TEST_CASE("the copy that the mirror has is the one that is noted") {
  const unsigned home = format::home_of(7, kSlots);
  for (const unsigned copy : {0U, 1U}) {
    RootScan mirror = whole();
    mirror.roots[home][1 - copy].reset();
    RootScan scan = without({7});
    REQUIRE(scan.take_lost(mirror));
    CHECK(scan.mirrored[home][copy]);
    CHECK_FALSE(scan.mirrored[home][1 - copy]);
    CHECK(scan.roots[home][copy]);
    CHECK_FALSE(scan.roots[home][1 - copy]);
  }
}

TEST_CASE("of two attempts at a version that of the later incarnation is the newest") {
  for (const unsigned later : {0U, 1U}) {
    RootScan scan = whole();
    auto& copies = scan.roots[format::home_of(7, kSlots)];
    copies[later]->incarnation = 3;
    copies[1 - later]->incarnation = 2;
    CHECK(scan.candidates().front().incarnation == 3);
  }
}

TEST_CASE("none is taken from who went another way") {
  RootScan mirror = whole();
  mirror.roots[format::home_of(6, kSlots)][0]->incarnation = 9;
  mirror.roots[format::home_of(6, kSlots)][1]->incarnation = 9;
  RootScan scan = without({7});
  CHECK_FALSE(scan.take_lost(mirror));
  CHECK_FALSE(has(scan, 7));
}

TEST_CASE("none is taken that was made at another time than what is left says") {
  RootScan mirror = whole();
  for (auto& root : mirror.roots[format::home_of(7, kSlots)]) root->time_ns = 5;
  RootScan other = without({7}, root_of(7).word);
  CHECK_FALSE(other.take_lost(mirror));
  for (const unsigned copy : {0U, 1U}) {
    RootScan same = without({7}, root_of(7).word);
    same.times[format::home_of(7, kSlots)][copy] = 5;
    CHECK(same.take_lost(mirror));
  }
  // An attempt over an older one lies under that one's word, with a time of its own.
  RootScan attempted = without({5, 7});
  for (const unsigned copy : {0U, 1U}) {
    const unsigned home = format::home_of(5, kSlots);
    attempted.described[home][copy] = root_of(5 + kSlots);
    attempted.words[home][copy] = root_of(5).word;
    attempted.times[home][copy] = 9;
  }
  CHECK(attempted.take_lost(mirror));
  CHECK(newest(attempted) == 7);
  CHECK_FALSE(has(attempted, 5));
  RootScan untold = without({7});  // nothing of the pages is left
  CHECK(untold.take_lost(mirror));
}

TEST_CASE("a newer one is not taken where one copy shows that it was not flipped") {
  for (const unsigned copy : {0U, 1U}) {
    RootScan scan = without({7});
    scan.described[format::home_of(7, kSlots)][copy] = root_of(7);
    CHECK_FALSE(scan.take_lost(whole()));
    CHECK_FALSE(has(scan, 7));
    RootScan wiped = without({7});
    wipe(wiped, 7, copy);
    CHECK_FALSE(wiped.take_lost(whole()));
    CHECK_FALSE(has(wiped, 7));
  }
}

TEST_CASE("an older one is not taken where its home was given up") {
  for (const unsigned copy : {0U, 1U}) {
    RootScan retained = without({6});
    wipe(retained, 6 + kSlots, copy);
    CHECK_FALSE(retained.take_lost(whole()));
    RootScan older = without({5});
    wipe(older, 5 + kSlots, copy);
    CHECK_FALSE(older.take_lost(whole()));
  }
  // An attempt over it was begun, and is there in part: both words are those that lay there.
  RootScan begun = without({5}, root_of(5).word);
  CHECK_FALSE(begun.take_lost(whole()));
  RootScan rotten = without({6}, root_of(6).word);  // nobody wrote to a retained one's home
  CHECK(rotten.take_lost(whole()));
}

TEST_CASE("a second look keeps what is prepared") {
  testing::Mirrored mirrored({});
  mirrored.has_second = false;
  std::uint64_t newest = 0;
  {
    Shelf shelf = mirrored.open();
    testing::assign(shelf, "x", testing::pattern(100, 1));
    newest = shelf.persist().version;
    testing::assign(shelf, "x", testing::pattern(100, 2));
    shelf.prepare(2, "job");
  }
  Medium& medium = *mirrored.first.medium;
  const ShelfHead head = read_head(medium);
  const format::Seeds seeds(head.superblock.shelf_id);
  const unsigned slot_count = head.superblock.slot_count;
  RootScan scan = scan_roots(medium, seeds, slot_count);
  REQUIRE(scan.prepared(newest));
  CHECK_FALSE(scan_again(medium, seeds, scan));
  medium.store_word(format::root_at(format::home_of(newest + 2, slot_count), 1), 12345);
  CHECK(scan_again(medium, seeds, scan));
  CHECK(scan.prepared(newest));
}
