// What errors, reports and infos name: numbers and remedies in which planted mistakes survived all
// other tests. And a write that needs no other chunk's slot.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "fading_medium.hpp"
#include "format/format.hpp"
#include "kept_versions.hpp"
#include "rot.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a write that views keep from a slot says how many views there are") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  TensorRef w = shelf.find("w").value();
  const Lease first = w.lease_committed();
  commit(shelf, 2);
  const Lease second = w.lease_committed();
  const Lease again = w.lease_committed();
  const auto error = error_of([&] { w.write(pattern(5000, 3)); });
  REQUIRE(error);
  CHECK(error->code() == Errc::leased);
  CHECK(contains(error->what(), "3 live views"));
}

TEST_CASE("damage is told with the version that is shown, not the one that wrote the chunk") {
  const Kept kept({.keep = 0,
                   .in_flight = 1,
                   .mapped = GENERATE(true, false),
                   .placement = Placement::by_chunk});
  const Bytes value = pattern(kMiB, 7);
  {
    Shelf shelf = kept.open();
    make(shelf, "w", kMiB).write(value);
    shelf.persist();
    make(shelf, "other", 8).write(pattern(8, 1));
    shelf.persist();
  }
  for (const std::uint64_t at : places_of(*kept.medium, value)) flip(*kept.medium, at + 77);
  const Shelf shelf = kept.open();
  Bytes bytes(kMiB);
  const auto error = error_of([&] { shelf.find("w")->read(bytes); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(contains(error->what(), "of version 2 can be read"));
}

TEST_CASE("damage is told with the name that the tensor has in the version that is read") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  const Bytes value = pattern(kMiB, 7);
  {
    Shelf shelf = kept.open();
    make(shelf, "before", kMiB).write(value);
    shelf.persist();
    shelf.rename("before", "now");
    shelf.persist();
  }
  for (const std::uint64_t at : places_of(*kept.medium, value)) flip(*kept.medium, at + 77);
  const Shelf shelf = kept.open();
  Bytes bytes(kMiB);
  const auto newest = error_of([&] { shelf.find("now")->read(bytes); });
  REQUIRE(newest);
  CHECK(contains(newest->what(), "'now'"));
  const auto older = error_of([&] { shelf.at(1).find("before")->read(bytes); });
  REQUIRE(older);
  CHECK(contains(older->what(), "'before'"));
}

TEST_CASE("of versions that a thread holds itself the oldest is named, whose slot is needed") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  OpenOptions options = kept.options();
  options.pin_timeout = std::chrono::milliseconds(20);
  Shelf shelf = kept.open(options);
  commit(shelf, 1);
  commit(shelf, 2);
  const VersionPin second = shelf.pin(2);
  const VersionPin first = shelf.pin(1);
  commit(shelf, 3);
  const auto error = error_of([&] { shelf.find("w")->write(pattern(5000, 4)); });
  REQUIRE(error);
  CHECK(error->code() == Errc::pinned);
  CHECK(contains(error->what(), "version 1 of"));
}

TEST_CASE("of versions that can be read none is named that stays for a reader elsewhere alone") {
  const scratch::Directory directory;
  OpenOptions options;
  Shelf writer = Shelf::open(directory / "told.shelf", options);
  commit(writer, 1);
  options.mode = Mode::read;
  const Shelf reader = Shelf::open(directory / "told.shelf", options);
  const VersionPin pin = reader.pin(1);
  commit(writer, 2);
  const auto error = error_of([&] { writer.at(9); });
  REQUIRE(error);
  CHECK(error->code() == Errc::stale);
  CHECK(contains(error->what(), "there is version 2"));
}

TEST_CASE("damage names no version as intact that stays for a reader elsewhere alone") {
  const scratch::Directory directory;
  const auto path = directory / "told.shelf";
  OpenOptions options;
  Shelf writer = Shelf::open(path, options);
  commit(writer, 1);
  options.mode = Mode::read;
  const Shelf reader = Shelf::open(path, options);
  const VersionPin pin = reader.pin(1);
  commit(writer, 2);
  const Bytes newest = pattern(5000, 2);
  std::string file = scratch::contents(path);
  const std::string head(reinterpret_cast<const char*>(newest.data()), 64);
  const std::size_t at = file.find(head);
  REQUIRE(at != std::string::npos);
  {
    std::fstream stored(path, std::ios::binary | std::ios::in | std::ios::out);
    stored.seekp(static_cast<std::streamoff>(at));
    stored.put(static_cast<char>(file[at] ^ 1));
  }
  const auto damage = writer.verify().damage;
  REQUIRE(damage.size() == 1);
  CHECK(damage[0].intact_in.empty());
}

TEST_CASE("where there is no room, what was erased and not yet persisted is told of") {
  const std::shared_ptr<Medium> medium = make_memory_medium(0, 64 * kMiB);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::make_unique<SharedMedium>(medium, true), {.mode = Mode::update});
  make(shelf, "half", 16 * kMiB);  // with its slots
  shelf.persist();
  const auto add = [&] { make(shelf, "other", 16 * kMiB); };
  const auto full = error_of(add);
  REQUIRE(full);
  CHECK(full->code() == Errc::full);
  CHECK_FALSE(contains(full->remedy(), "persist() first"));
  shelf.erase("half");
  const auto until = error_of(add);
  REQUIRE(until);
  CHECK(until->code() == Errc::full);
  CHECK(contains(until->remedy(), "persist() first"));
}

namespace {
// One copy of the mark cannot be read, as of a bad sector.
struct BadMark final : SharedMedium {
  using SharedMedium::SharedMedium;
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    const std::uint64_t bad = format::mark_at(1);
    if (at <= bad && bad < at + bytes.size()) throw Error(Errc::io, "a bad sector", "x", EIO);
    SharedMedium::read(at, bytes);
  }
};
}  // namespace

TEST_CASE("a copy of the mark that cannot be read is told, and the other serves") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  {
    Shelf shelf = kept.open();
    commit(shelf, 1);
    shelf.find("w")->write(pattern(5000, 2));
    shelf.prepare(20, "id");
  }
  const Shelf shelf =
      Shelf::open(std::make_unique<BadMark>(kept.medium, false), {.mode = Mode::read});
  REQUIRE(shelf.prepared());
  const auto notes = shelf.info().recovery.notes;
  const auto told = std::ranges::any_of(notes, [](const std::string& note) {
    return contains(note, "1 pages of metadata could not be read") && contains(note, "bad sector");
  });
  CHECK(told);
}

TEST_CASE("what is found prepared has the step that it was given") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    commit(shelf, 1);
    shelf.find("w")->write(pattern(5000, 2));
    shelf.prepare(20, "id");
  }
  const Shelf shelf = kept.open();
  REQUIRE(shelf.prepared());
  CHECK(shelf.prepared()->step == 20);
}

TEST_CASE("who reads beside a writer does not tell of its attempt as one that was interrupted") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf crashed = kept.open();
  commit(crashed, 1);
  crashed.find("w")->write(pattern(5000, 2));
  crash_before_flip(kept, crashed);
  CHECK_FALSE(kept.open(Mode::read).info().recovery.interrupted);
  CHECK(kept.open().info().recovery.interrupted);
}

TEST_CASE("a tensor without bytes has the rows that it is given") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  shelf.create("none", DType::uint8, std::array{std::int64_t{2}, std::int64_t{0}});
  shelf.persist();
  CHECK(shelf.resize("none", 5).info().shape == std::vector<std::int64_t>{5, 0});
}

TEST_CASE("a write up to a chunk's end needs no slot of the next one") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  OpenOptions options = kept.options();
  options.pin_timeout = std::chrono::milliseconds(20);
  Shelf shelf = kept.open(options);
  TensorRef w = make(shelf, "w", 2 * kMiB);
  w.write(pattern(2 * kMiB, 1));
  shelf.persist();
  const VersionPin pin = shelf.pin();
  w.write(pattern(kMiB, 2), kMiB);  // of its second chunk both slots are named from here on
  shelf.persist();
  REQUIRE(code_of([&] { w.write(pattern(8, 3), kMiB); }) == Errc::pinned);
  w.write(pattern(kMiB, 3));
  Bytes now = pattern(kMiB, 3);
  const Bytes second = pattern(kMiB, 2);
  now.insert(now.end(), second.begin(), second.end());
  CHECK((value(w) == now));
}

// Poisoned memory, or a file that is shorter by now: it may be there another time.
TEST_CASE("a chunk that cannot be touched is told as that, and not as one that rotted") {
  const auto countdown = std::make_shared<unsigned>(0);
  const auto medium = std::make_shared<FadingMedium>(64 * kMiB, countdown);
  Shelf::format(*medium);
  {
    Shelf shelf = Shelf::open(std::make_unique<ForwardingMedium>(medium), {.mode = Mode::update});
    commit(shelf, 1);
  }
  *countdown = 1;
  const auto error = error_of([&] {
    Shelf::open(std::make_unique<ForwardingMedium>(medium),
                {.mode = Mode::update, .verify = Verify::on_open});
  });
  REQUIRE(error);
  CHECK(contains(error->what(), "cannot be read"));
}
