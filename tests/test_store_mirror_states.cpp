// Mirrors that are not as they should be: cut short, to be filled again, ahead of their medium by
// another attempt, or another shelf's.
#include <array>
#include <filesystem>

#include "format/format.hpp"
#include "mirrored_shelf.hpp"
#include "scratch.hpp"
#include "store/io/medium_headers.hpp"
#include "store/media_set/mirror_filling.hpp"
#include "store/media_set/older_first.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// Two versions of one value; the number of the newer.
std::uint64_t commit_twice(const Mirrored& mirrored) {
  Shelf shelf = mirrored.open();
  assign(shelf, "small", kSmall);
  shelf.persist(1);
  shelf.persist(2);
  return shelf.version();
}

}  // namespace

TEST_CASE("a mirror that was cut short serves nothing, and is no error") {
  const bool damaged = GENERATE(false, true);
  const std::uint64_t more = GENERATE(0U, format::kHeapAt / 4, format::kHeapAt / 4 * 3);
  CAPTURE(damaged, more);
  Mirrored mirrored({0});
  mirrored.has_second = false;
  std::uint64_t version = 0;
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", kSmall);
    shelf.persist(1);
    version = shelf.version();
  }
  if (damaged) flip(mirrored.first, format::root_at(format::home_of(version, 3), 1) + 100);
  mirrored.mirrors[0].medium->shrink(format::kMirrorAt + more);
  CHECK(mirrored.open().step() == 1U);
  CHECK((read(mirrored.alone(), "small") == kSmall));
}

TEST_CASE("a mirror that was cut short keeps nobody from what the first has") {
  const Mode mode = GENERATE(Mode::update, Mode::read);
  const bool both = GENERATE(false, true);
  const bool whole = GENERATE(true, false);
  CAPTURE(mode, both, whole);
  Mirrored mirrored({0});
  mirrored.has_second = false;
  const std::uint64_t version = commit_twice(mirrored);
  flip(mirrored.first, format::root_at(format::home_of(version, 3), 1) + 100);
  if (both) flip(mirrored.first, format::root_at(format::home_of(version, 3), 0) + 100);
  if (!whole) mirrored.mirrors[0].medium->shrink(format::kMirrorAt + format::kHeapAt / 4);
  const Shelf shelf = mirrored.open({.mode = mode});
  CHECK((read(shelf, "small") == kSmall));
  CHECK(shelf.version() == version - (both && !whole ? 1 : 0));
}

TEST_CASE("a mirror of which nobody knows that it was filled to its end gives no root") {
  const Mode mode = GENERATE(Mode::read, Mode::update);
  const auto stamp =
      GENERATE(as<std::optional<format::MirrorStamp>>{}, std::nullopt, format::MirrorStamp::filled,
               format::MirrorStamp::filling, format::MirrorStamp::refilling);
  CAPTURE(mode, stamp.has_value());
  Mirrored mirrored({0});
  mirrored.has_second = false;
  const std::uint64_t version = commit_and_damage_newest(mirrored);
  Medium& mirror = *mirrored.mirrors[0].medium;
  if (stamp) stamp_mirror(mirror, 0, read_medium_headers(mirror, 0).best()->medium_id, *stamp);
  for (unsigned copy = 0; !stamp && copy < format::kCopies; ++copy) {
    flip(mirrored.mirrors[0], format::medium_stamp_at(copy));
  }
  const Shelf shelf = mirrored.open({.mode = mode});
  const bool taken = stamp == format::MirrorStamp::filled;
  CHECK(shelf.version() == version - (taken ? 0 : 1));
  CHECK(shelf.info().recovery.degraded == !taken);
  CHECK((read(shelf, "small") == pattern(3000, taken ? 3 : 2)));
}

TEST_CASE("one that no version names yet, and that was cut short, keeps nobody from it either") {
  const std::uint64_t left = GENERATE(0U, format::kHeapAt / 4, format::kHeapAt / 4 * 3);
  const bool both = GENERATE(false, true);
  CAPTURE(left, both);
  Mirrored mirrored({});
  mirrored.has_second = false;
  const std::uint64_t version = commit_twice(mirrored);
  mirrored.mirrors[0] = {};
  mirrored.open();
  flip(mirrored.first, format::root_at(format::home_of(version, 3), 1) + 100);
  if (both) flip(mirrored.first, format::root_at(format::home_of(version, 3), 0) + 100);
  mirrored.mirrors[0].medium->shrink(format::kMirrorAt + left);
  {
    const Shelf shelf = mirrored.open();
    CHECK(shelf.version() == version - (both ? 1 : 0));
    CHECK((read(shelf, "small") == kSmall));
  }
  CHECK((read(mirrored.alone(), "small") == kSmall));
}

TEST_CASE("a mirror that is cut short while it is open is no error of its own") {
  const scratch::Directory scratch;
  const auto path = scratch / "run.shelf";
  const auto mirror = (scratch / "run.mirror").string();
  {
    Shelf shelf = Shelf::open(path, {.keep = 1, .mirrors = {{mirror, 0}}});
    assign(shelf, "small", kSmall);
    shelf.persist(1);
  }
  std::string all = scratch::contents(path);
  const std::string value(reinterpret_cast<const char*>(kSmall.data()), kSmall.size());
  const auto there = all.find(value);
  REQUIRE(there != std::string::npos);
  all[there + 5] ^= 1;
  scratch::put(path, all);
  const Shelf shelf = Shelf::open(path, {.mode = Mode::read});
  std::filesystem::resize_file(mirror, 2 * format::kMirrorAt);
  const auto found = shelf.verify();
  REQUIRE(found.damage.size() == 1);
  CHECK_FALSE(found.damage[0].healable);
}

TEST_CASE("a page of the manifest that lies behind the end of a mirror that was cut short") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", kSmall);
    shelf.persist(1);
  }
  Bytes all = mirrored.first.bytes();
  unsigned damaged = 0;
  for (std::uint64_t at = format::kHeapAt; at < all.size(); at += kPageBytes) {
    if (all[at] == std::byte{0} ||
        std::search(kSmall.begin(), kSmall.begin() + 64,
                    all.begin() + static_cast<std::ptrdiff_t>(at),
                    all.begin() + static_cast<std::ptrdiff_t>(at) + 64) != kSmall.begin() + 64)
      continue;
    all[at + 20] ^= std::byte{1};
    ++damaged;
  }
  REQUIRE(damaged > 0);
  mirrored.first.put(all);
  mirrored.mirrors[0].medium->shrink(format::kMirrorAt + format::kHeapAt);
  const Shelf shelf = mirrored.open({.mode = Mode::read});
  CHECK(shelf.info().recovery.degraded);
  CHECK(shelf.version() == 0);
}

TEST_CASE("a reader needs no mirror, whatever lies at its path") {
  const scratch::Directory scratch;
  const auto path = scratch / "run.shelf";
  const auto mirror = (scratch / "run.mirror").string();
  {
    Shelf shelf = Shelf::open(path, {.mirrors = {{mirror, 0}}});
    assign(shelf, "small", kSmall);
    shelf.persist(1);
  }
  std::filesystem::remove(mirror);
  std::filesystem::create_directory(mirror);
  const Shelf shelf = Shelf::open(path, {.mode = Mode::read});
  CHECK((read(shelf, "small") == kSmall));
}

TEST_CASE("room that a medium gave beyond what was asked is the mirror's, too") {
  struct Generous final : SharedMedium {
    using SharedMedium::SharedMedium;
    std::uint64_t reserve(std::uint64_t size_bytes) override {
      return SharedMedium::reserve((size_bytes + 8 * kMiB - 1) / (8 * kMiB) * 8 * kMiB);
    }
  };
  Mirrored mirrored({0});
  std::vector<MirrorMedium> with;
  with.push_back({0, mirrored.mirrors[0].opened()});
  Shelf shelf = Shelf::open(std::make_unique<Generous>(mirrored.first.medium, true), {},
                            std::move(with), {.mode = Mode::update});
  for (int i = 0; i < 6; ++i) assign(shelf, "t" + std::to_string(i), pattern(kMiB, i));
  shelf.persist(1);
  mirrored.has_second = false;
  const Shelf mirror = mirrored.alone();
  for (int i = 0; i < 6; ++i) CHECK((read(mirror, "t" + std::to_string(i)) == pattern(kMiB, i)));
}

TEST_CASE("rot is not copied to a mirror whose filling is begun again") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", kSmall);
    shelf.persist(1);
  }
  const Bytes older = mirrored.mirrors[0].bytes();
  { mirrored.open().persist(2); }
  mirrored.mirrors[0].put(older);
  mirrored.mirrors[0].faults->barrier = true;
  CHECK(code_of([&] { mirrored.open(); }) == Errc::io);
  mirrored.mirrors[0].faults->barrier = false;
  mirrored.first.rot(kSmall);
  { mirrored.open(); }
  CHECK((read(mirrored.alone(), "small") == kSmall));
}

TEST_CASE("a mirror that is to be filled, and is versions ahead, is not written over") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  const auto commit = [&](int stamp) {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", pattern(3000, stamp));
    shelf.persist(stamp);
  };
  commit(1);
  const Bytes older = mirrored.first.bytes();
  for (int stamp = 2; stamp < 5; ++stamp) commit(stamp);
  mirrored.first.put(older);
  Medium& medium = *mirrored.mirrors[0].medium;
  give_for_filling(medium, read_medium_headers(medium, 0).best()->medium_id);
  CHECK(code_of([&] { mirrored.open(); }) == Errc::medium_missing);
  CHECK(mirrored.alone().step() == 4U);
}

TEST_CASE("another attempt at the next version is no torn flip of the mirror's") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  Bytes older;
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", pattern(3000, 1));
    shelf.persist(1);
    assign(shelf, "small", pattern(3000, 2));
    shelf.prepare(2, "given up");
    older = mirrored.first.bytes();
    shelf.resolve(Decision::abandon);
    shelf.discard();
    assign(shelf, "small", pattern(3000, 3));
    shelf.persist(3);
  }
  mirrored.first.put(older);
  CHECK(code_of([&] { mirrored.open(); }) == Errc::medium_missing);
  CHECK(mirrored.alone().step() == 3U);
  CHECK((read(mirrored.alone(), "small") == pattern(3000, 3)));
}

TEST_CASE("a copy of a medium beside it is refused") {
  Mirrored mirrored({});
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", kSmall, kSecond);
    shelf.persist(1);
  }
  One copy;
  copy.medium->reserve(mirrored.second.medium->size());
  copy.put(mirrored.second.bytes());
  for (const bool copy_first : {false, true}) {
    std::vector<std::unique_ptr<Medium>> also;
    also.push_back(copy_first ? copy.opened() : mirrored.second.opened());
    also.push_back(copy_first ? mirrored.second.opened() : copy.opened());
    const auto error = error_of(
        [&] { Shelf::open(mirrored.first.opened(), std::move(also), {.mode = Mode::update}); });
    REQUIRE(error);
    CHECK(error->code() == Errc::medium_missing);
    CHECK(says(error->what(), "both medium 1"));
  }
}

TEST_CASE("a copied shelf leaves the media of the other alone") {
  const scratch::Directory scratch;
  std::filesystem::create_directory(scratch / "a");
  const auto path = scratch / "a" / "run.shelf";
  const auto mirror = (scratch / "elsewhere.mirror").string();
  {
    Shelf shelf = Shelf::open(path, {.mirrors = {{mirror, 0}}});
    assign(shelf, "small", kSmall);
    shelf.persist(1);
  }
  std::filesystem::copy_file(path, scratch / "copy.shelf");
  const std::string before = scratch::contents(mirror);
  CHECK(code_of([&] { Shelf::open(scratch / "copy.shelf", {.mode = Mode::update}); }) ==
        Errc::medium_missing);
  CHECK(scratch::contents(mirror) == before);
}

TEST_CASE("a mirror that did not help is not said to have helped") {
  const bool first_too = GENERATE(false, true);
  CAPTURE(first_too);
  Mirrored mirrored({0});
  mirrored.has_second = false;
  const std::uint64_t version = commit_and_damage_newest(mirrored);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    flip(mirrored.mirrors.at(0), format::kMirrorAt + format::incarnation_at(copy) + 8);
    if (first_too) flip(mirrored.first, format::incarnation_at(copy) + 8);
  }
  const Shelf shelf = mirrored.open({.mode = Mode::read});
  CHECK(shelf.version() == version - 1);
  const Recovery recovery = shelf.info().recovery;
  CHECK(recovery.degraded);
  for (const auto& note : recovery.notes) CHECK_FALSE(says(note, "from its mirror"));
}

TEST_CASE("a mirror that is to be filled serves no root") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  const std::uint64_t version = commit_and_damage_newest(mirrored);
  Medium& medium = *mirrored.mirrors[0].medium;
  give_for_filling(medium, read_medium_headers(medium, 0).best()->medium_id);
  const Shelf shelf = mirrored.open({.mode = Mode::read});
  CHECK(shelf.version() == version - 1);
  CHECK(shelf.info().recovery.degraded);
}

TEST_CASE("an older copy of a further medium's mirror is filled, though versions count alike") {
  Mirrored mirrored({1});
  const One& mirror = mirrored.mirrors.at(1);
  const auto commit = [&](int stamp) {
    Shelf shelf = mirrored.open();
    if (const auto prepared = shelf.prepared()) shelf.resolve(Decision::abandon);
    assign(shelf, "x", pattern(kMiB, stamp), kSecond);
    shelf.persist();
  };
  commit(1);
  Bytes older;
  SECTION("an attempt was abandoned") {
    {
      Shelf shelf = mirrored.open();
      assign(shelf, "x", pattern(kMiB, 2), kSecond);
      shelf.prepare();
    }
    older = mirror.bytes();
    commit(3);
  }
  SECTION("an attempt was abandoned, and the opening went on") {
    Shelf shelf = mirrored.open();
    if (GENERATE(false, true)) {  // as the second of those that wrote there in this opening
      assign(shelf, "x", pattern(kMiB, 5), kSecond);
      shelf.persist();
    }
    assign(shelf, "x", pattern(kMiB, 2), kSecond);
    shelf.prepare();
    older = mirror.bytes();
    shelf.resolve(Decision::abandon);
    assign(shelf, "x", pattern(kMiB, 3), kSecond);
    shelf.persist();
  }
  SECTION("the shelf was gone on from twice") {
    commit(1);
    const std::array before = {mirrored.first.bytes(), mirrored.second.bytes(), mirror.bytes()};
    commit(2);
    older = mirror.bytes();
    mirrored.first.put(before[0]);
    mirrored.second.put(before[1]);
    mirror.put(before[2]);
    commit(3);
  }
  const std::uint64_t newest = mirrored.open({.mode = Mode::read}).version();
  mirror.put(older);
  {
    const Shelf shelf = mirrored.open();
    CHECK(shelf.version() == newest);
    REQUIRE_FALSE(shelf.info().recovery.notes.empty());
    CHECK(says(shelf.info().recovery.notes[0], "its mirror lacked was copied"));
  }
  CHECK(mirrored.open().info().recovery.notes.empty());
  std::vector<MirrorMedium> with;
  with.push_back({1, mirror.opened()});
  const Shelf shelf =
      Shelf::open(mirrored.first.opened(), {}, std::move(with), {.mode = Mode::read});
  CHECK((read(shelf, "x") == pattern(kMiB, 3)));
}

TEST_CASE("opening verifies what the mirror has for a rotten chunk, and not that chunk") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "large", kLarge);
    shelf.persist();
  }
  mirrored.first.rot(Bytes(kLarge.begin(), kLarge.begin() + 100));
  const Shelf shelf = mirrored.open({.verify = Verify::on_open});
  CHECK((read(shelf, "large") == kLarge));
}

TEST_CASE(
    "a mirror that has no more of an older version than its medium is not told to have served") {
  Mirrored mirrored({0});
  mirrored.has_second = false;
  {
    Shelf shelf = mirrored.open({.keep = 1});
    for (unsigned version = 1; version < 4; ++version) {
      assign(shelf, "w", pattern(5000, version));
      shelf.persist();
    }
    REQUIRE(shelf.version() == 3);
  }
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const std::uint64_t at = format::root_at(format::home_of(2, 3), copy) + 100;
    flip(mirrored.first, at);
    flip(mirrored.mirrors.at(0), format::kMirrorAt + at);
  }
  const Shelf shelf = mirrored.open({.mode = Mode::read});
  CHECK(shelf.version() == 3);
  CHECK(shelf.versions().size() == 1);
  for (const std::string& note : shelf.info().recovery.notes) {
    CHECK_FALSE(says(note, "from its mirror"));
  }
}

// As a power loss leaves them that comes while an opening is written to both.
TEST_CASE("a mirror that lacks the last opening alone is no older copy") {
  const unsigned openings = GENERATE(1U, 2U);
  Mirrored mirrored({0});
  mirrored.has_second = false;
  {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", kSmall);
    shelf.persist();
  }
  const One& mirror = mirrored.mirrors.at(0);
  const Bytes before = mirror.bytes();
  for (unsigned i = 0; i < openings; ++i) mirrored.open().close();
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const std::uint64_t at = format::kMirrorAt + format::incarnation_at(copy);
    mirror.medium->wait(mirror.medium->write(at, std::span(before).subspan(at, kPageBytes), 0));
    for (unsigned home = 0; home < 3; ++home) {
      flip(mirrored.first, format::root_at(home, copy) + 100);
    }
  }
  CHECK(is_older(*mirror.medium, *mirrored.first.medium) == (openings == 2));
}
