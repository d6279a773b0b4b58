// What a shelf tells of itself, compared with what was done to it.
#include <string>
#include <vector>

#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("every commit tells what it wrote, and stats() adds it up") {
  const Kept kept({.keep = 1, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  Stats before = shelf.stats();
  std::uint64_t version = 0;
  const auto check = [&](const Commit& commit, std::optional<std::uint64_t> step,
                         std::uint64_t data_bytes, std::uint64_t staged_bytes) {
    CAPTURE(version);
    const Stats now = shelf.stats();
    CHECK(commit.version == ++version);
    CHECK(commit.step == step);
    CHECK(commit.data_bytes == data_bytes);
    CHECK(commit.metadata_bytes >= 2 * kPageBytes);  // both copies of the root, at least
    CHECK(commit.metadata_bytes % kPageBytes == 0);
    CHECK(now.commits == before.commits + 1);
    CHECK(now.metadata_bytes == before.metadata_bytes + commit.metadata_bytes);
    CHECK(now.bytes_staged == before.bytes_staged + staged_bytes);
    CHECK(now.barriers >= before.barriers + 2);  // I1 and I2
    before = now;
    const VersionInfo info = shelf.versions().back();
    CHECK(info.version == version);
    CHECK(info.step == step);
    CHECK(info.data_bytes == data_bytes);
    const VersionInfo read = kept.open(Mode::read).versions().back();
    CHECK(read.version == version);
    CHECK(read.step == step);
    CHECK(read.data_bytes == data_bytes);
    CHECK(read.time_ns == info.time_ns);
    CHECK(info.time_ns > 0);
  };
  w.write(pattern(kKeptBytes, 1));
  check(shelf.persist(), std::nullopt, kKeptBytes, kKeptBytes);
  w.write(pattern(100, 2), 50);
  w.write(pattern(100, 3), 50);  // both were copied
  check(shelf.persist_async(7).get(), 7, 200, 200);
  check(shelf.persist(), 7, 0, 0);
  w.write(pattern(30, 4));
  { w.assign().write(pattern(2000, 5), kMiB); }  // let go: copied, and of no version
  shelf.prepare(0);
  check(shelf.resolve(Decision::commit).value(), 0, 30, 2030);
  check(shelf.rollback(3), 7, 0, 0);
  Transaction transaction = shelf.transaction();
  w.write(pattern(10, 6));
  check(transaction.commit(8), 8, 10, 10);
  w.write(pattern(10, 7));
  shelf.discard();
  check(shelf.persist(9), 9, 0, 10);
}

TEST_CASE("tensors and their bytes are counted through every change of what there is") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  const auto count = [](const Shelf& there, std::uint64_t tensors, std::uint64_t bytes) {
    CHECK(there.info().tensors == tensors);
    CHECK(there.info().tensor_bytes == bytes);
    CHECK(there.names().size() == tensors);
  };
  const auto committed = [&](std::uint64_t tensors, std::uint64_t bytes) {
    count(kept.open(Mode::read), tensors, bytes);
    std::uint64_t end = 0;
    shelf.verify([&](std::uint64_t, std::uint64_t total) { end = total; });
    CHECK(end == bytes);
  };
  make(shelf, "a", 1000);
  make(shelf, "b", 5000);
  count(shelf, 2, 6000);
  shelf.persist(1);
  count(shelf, 2, 6000);
  committed(2, 6000);
  shelf.erase("a");
  make(shelf, "none", 0);
  count(shelf, 2, 5000);
  committed(2, 6000);
  shelf.discard();
  count(shelf, 2, 6000);
  shelf.replace("b", DType::uint8, std::vector<std::int64_t>{7});
  count(shelf, 2, 1007);
  shelf.persist(2);
  count(shelf, 2, 1007);
  committed(2, 1007);
  shelf.rollback(1);
  count(shelf, 2, 6000);
  committed(2, 6000);
  make(shelf, "c", 20);
  shelf.prepare(4);
  shelf.resolve(Decision::abandon);
  count(shelf, 2, 6000);
  make(shelf, "c", 30);
  shelf.prepare(4);
  committed(2, 6000);
  shelf.close();
  shelf = kept.open();
  count(shelf, 2, 6000);  // not decided yet
  shelf.resolve(Decision::commit);
  count(shelf, 3, 6030);
  committed(3, 6030);
  shelf.erase("b");
  shelf.persist(5);
  count(shelf, 2, 1030);
  committed(2, 1030);
}

TEST_CASE("what the slots hold is known after opening again too, and copied once") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  auto expected = pattern(kKeptBytes, 1);
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  const auto commit = [&](unsigned seed, std::uint64_t chunk) {
    const std::uint64_t before = shelf.stats().bytes_copied_forward;
    const auto part = pattern(kMiB, seed);
    w.write(part, chunk * kMiB);
    std::copy(part.begin(), part.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(chunk * kMiB));
    shelf.persist(seed);
    CHECK((value(w, true) == expected));
    return shelf.stats().bytes_copied_forward - before;
  };
  w.write(expected);
  shelf.persist(1);                          // slot A
  CHECK(commit(2, 0) == kKeptBytes - kMiB);  // B, which was empty
  shelf.close();
  shelf = kept.open();
  w = shelf.find("w").value();
  CHECK(commit(3, 1) == kKeptBytes - kMiB);  // C, of which nobody knows
  CHECK(commit(4, 0) == kMiB);               // A: of version 1, so chunk 1 alone is older
  CHECK(commit(5, 0) == kMiB);               // B: of version 2
  CHECK(commit(6, 1) == kMiB);               // C: of version 3, so chunk 0 is older
  shelf.close();
  CHECK((value(kept.open(Mode::read).find("w").value()) == expected));
}
