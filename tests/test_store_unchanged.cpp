// OpenOptions::keep_unchanged: what is assigned the bytes that it has keeps its slot.
#include <array>
#include <string>
#include <vector>

#include "base/side_by_side.hpp"
#include "bytes.hpp"
#include "catch.hpp"
#include "kept_versions.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = kKeptBytes;  // two whole chunks and a short one

struct Keeping {
  explicit Keeping(const Shape& shape) : kept(shape), shelf(open()), w(make(shelf, "w", kSize)) {}

  Shelf open() const {
    OpenOptions options = kept.options();
    options.keep_unchanged = true;
    return kept.open(options);
  }
  std::uint64_t unchanged() const { return shelf.stats().bytes_unchanged; }
  Commit commit(const std::vector<std::byte>& bytes) {
    w.write(bytes);
    return shelf.persist();
  }

  Kept kept;
  Shelf shelf;
  TensorRef w;
};

}  // namespace

TEST_CASE("the same bytes are written once for each slot at most, and then not at all") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto value_of_w = pattern(kSize, 1);
  CHECK(keeping.commit(value_of_w).data_bytes == kSize);
  const unsigned slots = kept.shape.keep + 2;  // that are used where nothing is in flight
  for (unsigned round = 1; round < 2 * slots; ++round) {
    CAPTURE(round);
    const std::uint64_t forward = shelf.stats().bytes_copied_forward;
    const std::uint64_t written = shelf.stats().medium_bytes;
    const Commit commit = keeping.commit(value_of_w);
    CHECK(commit.data_bytes == 0);
    CHECK(keeping.unchanged() == round * kSize);
    const bool once_more = kept.shape.placement == Placement::whole && round < slots;
    CHECK(shelf.stats().bytes_copied_forward - forward == (once_more ? kSize : 0));
    if (!once_more) CHECK(shelf.stats().medium_bytes - written == commit.metadata_bytes);
    CHECK((value(w, true) == value_of_w));
    CHECK(w.info().version == 1);
  }
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("of a tensor that changed in part the rest keeps its slot, and diff names what changed") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  auto expected = pattern(kSize, 1);
  keeping.commit(expected);
  keeping.commit(expected);
  for (const std::uint64_t chunk : {0U, 1U, 2U}) {
    CAPTURE(chunk);
    expected[chunk * kMiB + 5] ^= std::byte{1};
    const std::uint64_t size = chunk == 2 ? kSize - 2 * kMiB : kMiB;
    const std::uint64_t before = keeping.unchanged();
    CHECK(keeping.commit(expected).data_bytes == size);
    CHECK(keeping.unchanged() - before == kSize - size);
    CHECK((value(w, true) == expected));
    if (kept.shape.keep == 0) continue;
    const std::uint64_t now = shelf.version();
    const VersionDiff diff = shelf.diff(now - 1, now);
    CHECK(diff.changed.size() == 1);
    CHECK(diff.changed.front().tensor == "w");
    CHECK(diff.changed.front().chunks == std::vector<std::uint64_t>{chunk});
  }
}

TEST_CASE("an assignment that begins behind the first chunk keeps its whole chunks, too") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto bytes = pattern(kSize, 1);
  for (unsigned slot = 0; slot < kept.shape.keep + 3; ++slot) keeping.commit(bytes);
  const std::uint64_t before = keeping.unchanged();
  w.write(std::span(bytes).subspan(kMiB), kMiB);
  CHECK(keeping.unchanged() - before == kSize - kMiB);
  w.write(std::span(bytes).subspan(kMiB / 2), kMiB / 2);  // of the first a part, which is written
  CHECK(keeping.unchanged() - before == 2 * (kSize - kMiB));
  shelf.persist();
  CHECK((value(w, true) == bytes));
}

TEST_CASE("a part of a chunk is written, whatever it holds") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto bytes = pattern(kSize, 1);
  keeping.commit(bytes);
  w.write(std::span(bytes).subspan(100, 2 * kMiB), 100);  // the second chunk is all of it whole
  CHECK(keeping.unchanged() == kMiB);
  CHECK(shelf.persist().data_bytes == kMiB);
  CHECK((value(w, true) == bytes));
}

TEST_CASE("what the attempt had of a chunk gives way to the bytes from before it") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto first = pattern(kSize, 1);
  keeping.commit(first);
  w.write(pattern(kSize, 2));
  w.write(first);
  CHECK(keeping.unchanged() == kSize);
  CHECK((value(w) == first));
  CHECK(shelf.persist().data_bytes == kSize);  // as much was written
  CHECK((value(w, true) == first));
  const auto third = pattern(kSize, 3);
  w.write(first);
  w.write(third);
  CHECK((value(w) == third));
  shelf.persist();
  CHECK((value(w, true) == third));
}

TEST_CASE("one that is undone after it kept chunks leaves the value of before") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto first = pattern(kSize, 1);
  keeping.commit(first);
  const bool over_own_value = GENERATE(false, true);
  if (over_own_value) w.write(pattern(kSize, 2));
  {
    Assignment let_go = w.assign();
    let_go.write(std::span(first).first(kMiB), 0);
    let_go.write(pattern(kMiB, 4), kMiB);
  }
  if (over_own_value) {
    CHECK(code_of([&] { shelf.persist(); }) == Errc::spoiled);
  } else {
    shelf.persist();
    CHECK((value(w, true) == first));
  }
  w.write(first);  // heals it
  shelf.persist();
  CHECK((value(w, true) == first));
}

TEST_CASE("after opening again a chunk is kept from the first time on that it was read") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto bytes = pattern(kSize, 1);
  keeping.commit(bytes);
  shelf.close();
  shelf = keeping.open();
  w = shelf.find("w").value();
  const bool read_first = GENERATE(false, true);
  if (read_first) CHECK((value(w, true) == bytes));
  CHECK(keeping.commit(bytes).data_bytes == (read_first ? 0 : kSize));
  CHECK(keeping.commit(bytes).data_bytes == 0);
}

TEST_CASE("several threads compare, and copy what changed") {
  Keeping keeping({0, 1, GENERATE(true, false), GENERATE(Placement::whole, Placement::by_chunk)});
  auto& [kept, shelf, w] = keeping;
  TensorRef large = make(shelf, "large", 33 * kMiB);
  auto bytes = pattern(33 * kMiB, 1);
  large.write(bytes);
  shelf.persist();
  bytes[20 * kMiB] ^= std::byte{1};
  large.write(bytes);
  CHECK(keeping.unchanged() == 32 * kMiB);
  CHECK(shelf.persist().data_bytes == kMiB);
  CHECK((value(large, true) == bytes));
}

TEST_CASE("nothing is kept of a tensor that was made anew, erased, or has no bytes") {
  Keeping keeping(any_shape());
  auto& [kept, shelf, w] = keeping;
  const auto bytes = pattern(kSize, 1);
  keeping.commit(bytes);
  const std::array shape = {static_cast<std::int64_t>(kSize)};
  w = shelf.replace("w", DType::uint8, shape);
  CHECK(keeping.commit(bytes).data_bytes == kSize);
  TensorRef none = make(shelf, "none", 0);
  none.write({});
  none.write({});
  CHECK(keeping.unchanged() == 0);
  shelf.persist();
  CHECK((value(w, true) == bytes));
}

TEST_CASE("what is not asked for is not done") {
  const Kept kept(any_shape());
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kSize);
  const auto bytes = pattern(kSize, 1);
  for (int round = 0; round < 3; ++round) {
    w.write(bytes);
    CHECK(shelf.persist().data_bytes == kSize);
  }
  CHECK(shelf.stats().bytes_unchanged == 0);
}

TEST_CASE("what a chunk had before it got its old bytes is no version's, once discarded") {
  // Three slots, of which leases hold two: so the third is the one that is written, and left.
  const std::uint64_t size = 2 * kChunkBytes;
  const auto medium = std::shared_ptr<Medium>(make_memory_medium(0, 64 * kMiB));
  Shelf::format(*medium, {.in_flight = 2});
  OpenOptions options{.mode = Mode::update, .placement = Placement::whole};
  options.keep_unchanged = true;
  Shelf shelf = Shelf::open(std::make_unique<SharedMedium>(medium), options);
  TensorRef w = make(shelf, "w", static_cast<std::int64_t>(size));
  const auto commit_of = [&](std::uint64_t seed) {
    w.write(pattern(size, seed));
    shelf.persist(seed);
  };
  commit_of(1);
  std::optional<Lease> first = w.lease();
  commit_of(2);
  std::optional<Lease> second = w.lease();
  w.write(pattern(size, 77));
  w.write(pattern(size, 2));
  shelf.discard();
  first.reset();
  commit_of(3);
  Bytes expected = pattern(size, 3);
  const Bytes part = pattern(100, 4);
  w.write(part, kChunkBytes);
  std::copy(part.begin(), part.end(), expected.begin() + kChunkBytes);
  shelf.persist(4);
  CHECK((value(w) == expected));
  CHECK(shelf.verify().damage.empty());
  second.reset();
  shelf.close();
  shelf = Shelf::open(std::make_unique<SharedMedium>(medium), {.mode = Mode::read});
  CHECK((value(shelf.find("w").value()) == expected));
}
