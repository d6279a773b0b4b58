// What a shelf tells of itself: verify(), info(), stats(), versions, each number exact.
#include <fmt/format.h>

#include <functional>

#include <tensorshelf/repair.hpp>

#include "forgery.hpp"
#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE(
    "verify() counts each tensor, chunk and byte that is committed, and names what is damaged") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const bool writer = GENERATE(true, false);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  const std::uint64_t large = 2 * kMiB + 1000;
  make(shelf, "empty", 0);
  make(shelf, "large", large).write(pattern(large, 1));
  make(shelf, "small", 100).write(pattern(100, 2));
  shelf.persist();
  shelf.find("small")->write(pattern(100, 3));
  shelf.persist();
  const auto part = pattern(large, 1);
  const auto all = kept.medium->view({0, kept.medium->size()});
  const auto there = std::search(all.begin(), all.end(), part.begin() + 2 * kMiB, part.end());
  REQUIRE(there != all.end());
  const auto at = static_cast<std::uint64_t>(there - all.begin());
  const bool damaged = GENERATE(false, true);
  if (damaged) kept.medium->write(at, pattern(8, 9), 0);
  if (writer) {
    make(shelf, "uncommitted", 100).write(pattern(100, 4));
    shelf.find("small")->write(pattern(100, 5));
  } else {
    shelf.close();
    shelf = kept.open(Mode::read);
  }
  for (const std::uint64_t times : {1U, 2U}) {
    std::vector<std::uint64_t> steps;
    const VerifyReport report = shelf.verify([&](std::uint64_t done, std::uint64_t total) {
      CHECK(total == large + 100);
      steps.push_back(done);
    });
    CHECK(steps == std::vector<std::uint64_t>{kMiB, 2 * kMiB, large, large + 100});
    CHECK(report.version == 2);
    CHECK(report.tensors == 3);
    CHECK(report.chunks == 4);
    CHECK(report.bytes == large + 100);
    CHECK(shelf.stats().chunks_verified == 4 * times);
    REQUIRE(report.damage.size() == (damaged ? 1 : 0));
    if (!damaged) continue;
    CHECK(report.damage[0].tensor == "large");
    CHECK(report.damage[0].version == 1);
    CHECK(report.damage[0].chunk == 2);
    CHECK(report.damage[0].slot == 0);
    CHECK(report.damage[0].extent.at == at);
    CHECK(report.damage[0].extent.size_bytes == 1000);
  }
}

TEST_CASE("verify() of a reader that was overtaken is stale, and no damage") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf writer = kept.open();
  TensorRef w = make(writer, "w", 5000);
  w.write(pattern(5000, 1));
  writer.persist(1);
  const Shelf reader = kept.open(Mode::read);
  w.write(pattern(5000, 2));
  writer.persist(2);
  CHECK(reader.verify().damage.empty());
  CHECK(reader.verify().version == 1);
  w.write(pattern(5000, 3));  // into the slot of version 1
  CHECK(code_of([&] { static_cast<void>(reader.verify()); }) == Errc::stale);
  CHECK(writer.verify().damage.empty());
}

TEST_CASE("info() tells what there is, uncommitted tensors of a writer with it") {
  const Forgery forgery;
  const auto head = forgery.superblock();
  std::string id;
  for (const std::uint8_t byte : head.shelf_id) id += fmt::format("{:02x}", byte);
  Shelf shelf = forgery.bench.open();
  const ShelfInfo before = shelf.info();
  CHECK(before.path == "<memory>");
  CHECK(before.shelf_id == id);
  CHECK(before.version == 2);
  CHECK(before.step == 2U);
  CHECK(before.recovery.version == 2);
  CHECK(before.recovery.step == 2U);
  CHECK(before.incarnation == 3);  // 1 made it, 2 wrote
  CHECK(before.tensors == 2);
  CHECK(before.tensor_bytes == 5000 + kMiB + 1);
  CHECK(before.capacity_bytes == forgery.root().capacity_bytes);
  CHECK(before.free_bytes == shelf.free_bytes());
  CHECK(before.keep == 0);
  CHECK(before.in_flight == 1);
  CHECK(before.placement == Placement::whole);
  CHECK(before.writable);
  make(shelf, "c", 8192);
  shelf.erase("b");
  CHECK(shelf.info().tensors == 2);
  CHECK(shelf.info().tensor_bytes == 5000 + 8192);
  CHECK(shelf.info().free_bytes < before.free_bytes);
  const ShelfInfo reader = forgery.bench.open(Mode::read).info();
  CHECK(reader.tensors == 2);
  CHECK(reader.tensor_bytes == 5000 + kMiB + 1);
  CHECK(reader.capacity_bytes == before.capacity_bytes);
  CHECK(reader.free_bytes == 0);
  CHECK_FALSE(reader.writable);
  CHECK(reader.incarnation == 0);
}

TEST_CASE("a step that nobody stated is none, wherever it is told") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "w", 100);
  CHECK_FALSE(shelf.persist().step);
  CHECK_FALSE(shelf.rollback(1).step);
  CHECK_FALSE(shelf.prepare().step);
  CHECK_FALSE(shelf.prepared()->step);
  for (const Mode mode : {Mode::read, Mode::update}) {
    shelf.close();
    shelf = kept.open(mode);
    CHECK_FALSE(shelf.step());
    CHECK_FALSE(shelf.info().step);
    CHECK_FALSE(shelf.info().recovery.step);
    REQUIRE(shelf.info().recovery.prepared);
    CHECK_FALSE(shelf.info().recovery.prepared->step);
    CHECK_FALSE(shelf.at(1).info().step);
    for (const VersionInfo& info : shelf.versions()) CHECK_FALSE(info.step);
  }
  shelf.close();
  CHECK_FALSE(repair(std::make_unique<SharedMedium>(kept.medium)).step);
}

TEST_CASE("a shelf that is closed tells nothing but that it is closed") {
  const Bench bench;
  Shelf shelf = bench.open();
  const TensorRef w = make(shelf, "w", 100);
  shelf.persist();
  const RetainedVersion version = shelf.at(1);
  const RetainedTensor tensor = version.find("w").value();
  shelf.close();
  CHECK(shelf.closed());
  const std::function<void()> calls[] = {
      [&] { shelf.info(); },      [&] { shelf.version(); },
      [&] { shelf.step(); },      [&] { shelf.free_bytes(); },
      [&] { shelf.stats(); },     [&] { static_cast<void>(shelf.verify()); },
      [&] { shelf.versions(); },  [&] { static_cast<void>(shelf.at(1)); },
      [&] { shelf.names(); },     [&] { shelf.find("w"); },
      [&] { shelf.rollback(1); }, [&] { shelf.discard(); },
      [&] { shelf.prepared(); },  [&] { static_cast<void>(shelf.transaction()); },
      [&] { version.info(); },    [&] { version.names(); },
      [&] { version.find("w"); }, [&] { tensor.info(); },
      [&] { w.info(); },          [&] { static_cast<void>(w.lease()); },
      [&] { tensor.lease(); },    [&] { shelf.erase("w"); }};
  for (const auto& call : calls) CHECK(code_of(call) == Errc::closed);
}
