// Versions beside the newest: those that stay, those that come back, and those that are lost.
#include "asleep.hpp"
#include "kept_versions.hpp"
#include "store/io/root_scan.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("as many versions stay as are kept, each as it was, also after opening again") {
  const Shape shape = any_shape();
  CAPTURE(shape.keep, shape.in_flight, shape.mapped, static_cast<int>(shape.placement));
  const Kept kept(shape);
  std::vector<std::vector<std::byte>> values(1);
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  auto expected = pattern(kKeptBytes, 0);
  w.write(expected);
  for (unsigned version = 1; version <= 9; ++version) {
    if (version % 3 == 0) {  // a part, across the edge of two chunks
      const auto part = pattern(3000, version);
      w.write(part, kMiB - 1500);
      std::copy(part.begin(), part.end(), expected.begin() + kMiB - 1500);
    } else {
      expected = pattern(kKeptBytes, version);
      w.write(expected);
    }
    REQUIRE(shelf.persist(version * 10).version == version);
    values.push_back(expected);
    if (version == 5) {
      shelf = kept.open();
      w = shelf.find("w").value();
    }
    const auto there = numbers(shelf);
    const unsigned oldest = std::max(version, shape.keep) - shape.keep;
    REQUIRE(there.front() == oldest);
    REQUIRE(there.back() == version);
    REQUIRE(there.size() == version - oldest + 1);
    for (const VersionInfo& info : shelf.versions()) {
      if (info.version == 0) continue;
      REQUIRE(info.step == info.version * 10);
      REQUIRE((value_at(shelf, info.version, "w") == values[info.version]));
    }
    if (oldest > 0) REQUIRE(code_of([&] { shelf.at(oldest - 1); }) == Errc::stale);
    REQUIRE(code_of([&] { shelf.at(version + 1); }) == Errc::stale);
  }
  CHECK(shelf.verify().damage.empty());
  CHECK((value(w) == values[9]));
}

TEST_CASE("another split of the same sum is taken up, another sum refused") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    TensorRef w = make(shelf, "w", 5000);
    for (unsigned version = 1; version <= 5; ++version) {
      w.write(pattern(5000, version));
      shelf.persist(version);
    }
  }
  OpenOptions options;
  options.mode = Mode::update;
  const std::pair<unsigned, unsigned> refused[] = {{2, 2},  {0, 1},  {3, 0},
                                                   {16, 1}, {0, 16}, {~0U, 4}};
  for (const auto& [keep, in_flight] : refused) {
    CAPTURE(keep, in_flight);
    options.keep = keep;
    options.in_flight = in_flight;
    const auto error = error_of([&] { kept.open(options); });
    REQUIRE(error);
    CHECK(error->code() == Errc::bad_argument);
    CHECK(contains(error->remedy(), "snapshot() makes one with the keep"));
  }
  options.keep = 0;
  options.in_flight = {};  // what is left of the sum: 3
  Shelf shelf = kept.open(options);
  CHECK(shelf.info().in_flight == 3);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{3, 4, 5});  // until the next commit
  TensorRef w = shelf.find("w").value();
  w.write(pattern(5000, 6));
  CHECK((value_at(shelf, 3, "w") == pattern(5000, 3)));
  shelf.persist(6);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{6});
  shelf = kept.open(OpenOptions{.mode = Mode::update});
  CHECK(shelf.info().keep == 0);
  CHECK(shelf.info().in_flight == 3);
  options.keep = {};  // what is left of the sum
  options.in_flight = 2;
  CHECK(kept.open(options).info().keep == 1);
}

TEST_CASE("a shelf that would have too many slots is not made") {
  const std::shared_ptr<Medium> medium = make_memory_medium(0, 64 * kMiB);
  OpenOptions options;
  const std::pair<unsigned, unsigned> refused[] = {{0, 0}, {15, 1}, {0, 16}, {~0U, 2}};
  for (const auto& [keep, in_flight] : refused) {
    CAPTURE(keep, in_flight);
    options.keep = keep;
    options.in_flight = in_flight;
    CHECK(code_of([&] { Shelf::format(*medium, options); }) == Errc::bad_argument);
  }
  const std::pair<unsigned, unsigned> made[] = {{0, 15}, {14, 1}, {12, 3}};
  for (const auto& [keep, in_flight] : made) {
    options.keep = keep;
    options.in_flight = in_flight;
    Shelf::format(*medium, options);
    const Shelf shelf = Shelf::open(std::make_unique<SharedMedium>(medium));
    CHECK(shelf.info().keep == keep);
    CHECK(shelf.info().in_flight == in_flight);
  }
  Shelf shelf = Shelf::open(std::make_unique<SharedMedium>(medium));
  TensorRef w = make(shelf, "w", 100);
  for (unsigned version = 1; version <= 40; ++version) {
    w.write(pattern(100, version));
    shelf.persist(version);
  }
  REQUIRE(shelf.versions().size() == 13);
  for (const VersionInfo& info : shelf.versions()) {
    CHECK(
        (value_at(shelf, info.version, "w") == pattern(100, static_cast<unsigned>(info.version))));
  }
}

TEST_CASE("a reader reads the version that it opened until the floor has passed it") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  w.write(pattern(kKeptBytes, 1));
  shelf.persist(1);
  w.write(pattern(kKeptBytes, 2));
  shelf.persist(2);
  const Shelf reader = kept.open(OpenOptions{.mode = Mode::read});
  for (unsigned version = 3; version <= 4; ++version) {
    w.write(pattern(kKeptBytes, version));
    shelf.persist(version);
    CHECK((value(reader.find("w").value()) == pattern(kKeptBytes, 2)));
  }
  w.write(pattern(kKeptBytes, 5));  // into the slot of version 1, which the reader opened too
  CHECK(code_of([&] { value_at(reader, 1, "w"); }) == Errc::stale);
  CHECK((value(reader.find("w").value()) == pattern(kKeptBytes, 2)));
  shelf.persist(5);
  w.write(pattern(kKeptBytes, 6));
  CHECK(code_of([&] { value(reader.find("w").value()); }) == Errc::stale);
}

TEST_CASE("of a version that the floor has passed a reader has what nobody wrote over") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  make(shelf, "w", 5000).write(pattern(5000, 1));
  TensorRef other = make(shelf, "other", 5000);
  shelf.persist(1);
  const Shelf reader = kept.open(Mode::read);
  const RetainedTensor w = reader.at(1).find("w").value();
  CHECK_FALSE(reader.at(1).find("none"));
  const auto value = [&] {
    const Lease lease = w.lease();
    Bytes read(5000);
    w.read(read);
    CHECK(std::ranges::equal(lease.bytes(), read));
    return read;
  };
  for (unsigned version = 2; version <= 4; ++version) {
    CHECK((value() == pattern(5000, 1)));
    other.write(pattern(5000, version));
    shelf.persist(version);
  }
  for (unsigned version = 5; version <= 7; ++version) {  // until each slot has another
    shelf.find("w")->write(pattern(5000, version));
    shelf.persist(version);
  }
  CHECK(code_of([&] { static_cast<void>(w.lease()); }) == Errc::stale);
  CHECK(code_of([&] { value(); }) == Errc::stale);
}

TEST_CASE("a tensor is of the version that wrote its newest chunk") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  w.write(pattern(kKeptBytes, 1));
  shelf.persist(1);
  unsigned version = 1;
  for (const std::uint64_t chunk : {0, 2, 1}) {
    w.write(pattern(10, 1), chunk * kMiB);
    shelf.persist(++version);
    CHECK(w.info().version == version);
  }
}

TEST_CASE("a damaged copy of any version that stays is written anew, and nothing is lost") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    TensorRef w = make(shelf, "w", 5000);
    for (unsigned version = 1; version <= 6; ++version) {
      w.write(pattern(5000, version));
      shelf.persist(version);
    }
  }
  const auto check = [&](const Shelf& shelf) {
    REQUIRE(numbers(shelf) == std::vector<std::uint64_t>{4, 5, 6});
    for (unsigned version = 4; version <= 6; ++version) {
      CHECK((value_at(shelf, version, "w") == pattern(5000, version)));
    }
  };
  for (const unsigned home : {0U, 1U, 2U}) {  // of versions 4, 5 and 6: K is 4
    for (const unsigned copy : {0U, 1U, 0U}) {
      CAPTURE(home, copy);
      const auto garbage = pattern(kPageBytes, home);
      kept.medium->wait(kept.medium->write(format::root_at(home, copy), garbage, 0));
      check(kept.open(Mode::read));
      const Shelf healed = kept.open();
      CHECK(healed.info().recovery.repaired_copies == 1);
      CHECK_FALSE(healed.info().recovery.degraded);
      check(healed);
    }
  }
  CHECK(kept.open().info().recovery.repaired_copies == 0);
}

TEST_CASE("where a version that stayed is lost, those after it stay") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    TensorRef w = make(shelf, "w", 5000);
    for (unsigned version = 1; version <= 6; ++version) {
      w.write(pattern(5000, version));
      shelf.persist(version);
    }
  }
  for (const unsigned copy : {0U, 1U}) {
    write_page(*kept.medium, format::root_at(1, copy), format::Page{});  // of version 5
  }
  CHECK(numbers(kept.open(Mode::read)) == std::vector<std::uint64_t>{6});
  Shelf shelf = kept.open();
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{6});
  CHECK(shelf.info().recovery.dropped == std::vector<std::uint64_t>{5, 4});
  CHECK_FALSE(shelf.info().recovery.degraded);
  TensorRef w = shelf.find("w").value();
  for (unsigned version = 7; version <= 9; ++version) {
    w.write(pattern(5000, version));
    shelf.persist(version);
    shelf = kept.open();  // none of those that were dropped comes back
    w = shelf.find("w").value();
    CHECK(numbers(shelf).front() == (version < 8 ? 6U : version - 2));
    CHECK(shelf.info().recovery.dropped.empty());  // nor is any reported again
    CHECK((value_at(shelf, version - 1, "w") == pattern(5000, version - 1)));
  }
}

TEST_CASE("a tensor is read to its end, though the last version that has it goes meanwhile") {
  const bool mapped = GENERATE(true, false);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = mapped, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef gone = make(shelf, "gone", kKeptBytes);
  gone.write(pattern(kKeptBytes, 1));
  shelf.persist(1);
  shelf.erase("gone");
  kept.doors->read.shut();
  std::vector<std::byte> read(kKeptBytes);
  Waiter reader([&] { gone.read_committed(read); });
  kept.doors->read.await_someone();
  shelf.persist(2);
  make(shelf, "next", kKeptBytes).write(pattern(kKeptBytes, 2));
  shelf.persist(3);
  kept.doors->read.open();
  reader.join();
  CHECK((read == pattern(kKeptBytes, 1)));
}

TEST_CASE("a fresh tensor placed by chunk costs no bytes, and reads as zeros") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", 40 * kMiB);
  const std::uint64_t before = shelf.stats().medium_bytes;
  w.write(pattern(100, 1), 20 * kMiB + 5);
  shelf.persist(1);
  CHECK(shelf.stats().medium_bytes - before < 2 * kMiB);
  shelf = kept.open();
  auto expected = std::vector<std::byte>(40 * kMiB);
  const auto part = pattern(100, 1);
  std::copy(part.begin(), part.end(), expected.begin() + 20 * kMiB + 5);
  CHECK((value(shelf.find("w").value()) == expected));
  shelf.find("w")->write(pattern(100, 1), 7 * kMiB);
  const std::uint64_t part_before = shelf.stats().medium_bytes;
  shelf.persist(2);  // right after an open, too
  CHECK(shelf.stats().bytes_copied_forward == 0);
  CHECK(shelf.stats().medium_bytes - part_before < 64 * 1024);
}

TEST_CASE("what two versions have otherwise is told by tensor and chunk, either way") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  CAPTURE(placement == Placement::whole);
  const Kept kept({.keep = 3, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  const auto changed = [](const VersionDiff& diff) {
    std::string text;
    for (const auto& [tensor, chunks] : diff.changed) {
      text += tensor;
      for (const std::uint64_t chunk : chunks) text += " " + std::to_string(chunk);
      text += ";";
    }
    return text;
  };
  using Names = std::vector<std::string>;
  TensorRef w = make(shelf, "w", 40 * kMiB);
  make(shelf, "empty", 0).write({});
  make(shelf, "same", 100).write(pattern(100, 1));
  make(shelf, "other", 100).write(pattern(100, 1));
  make(shelf, "gone", 100);
  shelf.persist(1);
  w.write(pattern(2 * kMiB, 2), 3 * kMiB + 5);
  w.write(pattern(1, 3), 40 * kMiB - 1);
  shelf.find("empty")->write({});
  make(shelf, "new", 10);
  shelf.erase("gone");
  make(shelf, "brief", 10);
  shelf.erase("brief");
  shelf.replace("other", DType::uint8, std::vector<std::int64_t>{100}).write(pattern(100, 1));
  shelf.persist(2);
  const VersionDiff diff = shelf.diff(1, 2);
  CHECK(diff.created == Names{"new", "other"});
  CHECK(diff.erased == Names{"gone", "other"});
  CHECK(changed(diff) == "w 3 4 5 39;");
  const VersionDiff back = shelf.diff(2, 1);
  CHECK(back.created == diff.erased);
  CHECK(back.erased == diff.created);
  CHECK(changed(back) == changed(diff));
  CHECK(shelf.diff(2, 2).changed.empty());
  shelf.rollback(1);
  shelf.close();
  shelf = kept.open();  // of all versions, as they lie on the medium
  CHECK(changed(shelf.diff(1, 2)) == "w 3 4 5 39;");
  for (const VersionDiff& none : {shelf.diff(1, 3), shelf.diff(3, 1)}) {
    CHECK(none.created.empty());
    CHECK(none.erased.empty());
    CHECK(none.changed.empty());
  }
  CHECK(code_of([&] { shelf.diff(0, 9); }) == Errc::stale);
  CHECK(code_of([&] { shelf.diff(9, 3); }) == Errc::stale);
  const Shelf reader = kept.open(Mode::read);
  CHECK(changed(reader.diff(1, 2)) == "w 3 4 5 39;");
  shelf.close();
  CHECK(code_of([&] { shelf.diff(1, 2); }) == Errc::closed);
}

TEST_CASE("versions are compared beside commits, until one of them is not retained") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  for (int i = 0; i < 3000; ++i) make(shelf, std::to_string(i), 10).write(pattern(10, 1));
  shelf.persist(1);
  shelf.find("7")->write(pattern(10, 2));
  shelf.persist(2);
  CHECK(shelf.diff(1, 2).changed.size() == 1);
  std::atomic<bool> stop = false;
  Waiter writer([&] {
    while (!stop) {
      shelf.find("8")->write(pattern(10, 3));
      shelf.persist();
    }
  });
  unsigned seen = 0;
  while (seen < 20) {
    const std::uint64_t newest = shelf.version();
    try {
      const VersionDiff diff = shelf.diff(newest - 1, newest);
      CHECK(diff.changed.size() <= 1);
      ++seen;
    } catch (const Error& error) {
      if (error.code() != Errc::stale) throw;
      if (shelf.version() > 5000) break;
    }
  }
  stop = true;
}
