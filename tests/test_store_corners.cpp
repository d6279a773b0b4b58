// Corners of the store in which planted mistakes survived all other tests: what compact() finds and
// moves, versions that are held twice, what a reader goes on to, media that are removed, placed on,
// or cannot be read in part.
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forgery.hpp"
#include "format/format.hpp"
#include "held_medium.hpp"
#include "kept_versions.hpp"
#include "raw_pages.hpp"
#include "rot.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// A shelf on two media in memory, which are there when it is opened.
struct Two {
  std::shared_ptr<Medium> first;
  std::shared_ptr<Medium> second = make_memory_medium(0, 64 * kMiB);

  explicit Two(std::uint64_t first_bytes = 64 * kMiB) : first(make_memory_medium(0, first_bytes)) {
    Shelf::format(*first);
  }
  Shelf open(bool first_mapped, std::unique_ptr<Medium> other) const {
    std::vector<std::unique_ptr<Medium>> also;
    also.push_back(std::move(other));
    return Shelf::open(std::make_unique<SharedMedium>(first, first_mapped), std::move(also),
                       {.mode = Mode::update});
  }
  Shelf open(bool first_mapped, bool second_mapped) const {
    return open(first_mapped, std::make_unique<SharedMedium>(second, second_mapped));
  }
};

}  // namespace

TEST_CASE("what compact() found damaged is told by whoever reads it then") {
  const Kept kept({.keep = 0,
                   .in_flight = 1,
                   .mapped = GENERATE(true, false),
                   .placement = GENERATE(Placement::whole, Placement::by_chunk)});
  const Bytes value = pattern(kMiB, 7);
  {
    Shelf shelf = kept.open();
    make(shelf, "gone", 8 * kMiB).write(pattern(8 * kMiB, 1));
    make(shelf, "w", kMiB).write(value);
    shelf.persist();
    shelf.erase("gone");
    for (int i = 0; i < 3; ++i) shelf.persist();
  }
  for (const std::uint64_t at : places_of(*kept.medium, value)) flip(*kept.medium, at + 77);
  Shelf shelf = kept.open();
  REQUIRE(shelf.compact(std::chrono::seconds(5)).damaged == std::vector<std::string>{"w"});
  Bytes bytes(kMiB);
  CHECK(code_of([&] { shelf.find("w")->read(bytes); }) == Errc::corrupt);
}

TEST_CASE("bytes_moved are of all slots that were moved") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  make(shelf, "gone", 4 * kMiB).write(pattern(kMiB, 1));
  make(shelf, "b", kMiB);  // whose slots are all free
  shelf.persist();
  shelf.erase("gone");
  for (int i = 0; i < 4; ++i) shelf.persist();
  CHECK(shelf.compact(std::chrono::seconds(5)).bytes_moved == 3 * kMiB);
}

namespace {
struct Fixed final : SharedMedium {
  using SharedMedium::SharedMedium;
  std::uint64_t shrink(std::uint64_t) override { return size(); }
};
}  // namespace

TEST_CASE("on a medium of a fixed size compact() makes no versions again and again") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = Shelf::open(std::make_unique<Fixed>(kept.medium, true), kept.options());
  make(shelf, "gone", 4 * kMiB).write(pattern(4 * kMiB, 1));
  make(shelf, "w", 5000).write(pattern(5000, 1));
  shelf.persist();
  shelf.erase("gone");
  for (int i = 0; i < 3; ++i) shelf.persist();
  shelf.compact(std::chrono::seconds(5));
  const std::uint64_t once = shelf.compact(std::chrono::seconds(5)).version;
  const std::uint64_t twice = shelf.compact(std::chrono::seconds(5)).version;
  const std::uint64_t thrice = shelf.compact(std::chrono::seconds(5)).version;
  CHECK(thrice - twice <= 1);
  CHECK(twice - once <= 1);
}

TEST_CASE("a version that is held twice stays till the second lets go") {
  const scratch::Directory directory;
  OpenOptions options;
  options.in_flight = 2;
  Shelf writer = Shelf::open(directory / "held.shelf", options);
  commit(writer, 1);
  options.mode = Mode::read;
  Shelf reader = Shelf::open(directory / "held.shelf", options);
  const VersionPin stays = reader.pin(1);
  std::optional<VersionPin> goes = reader.pin(1);
  for (unsigned v = 2; v < 5; ++v) commit(writer, v);
  REQUIRE(reader.refresh());
  goes.reset();
  CHECK((value_at(reader, 1, "w") == pattern(5000, 1)));
}

TEST_CASE("a version that its writer holds twice stays till the second lets go") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  Shelf writer = kept.open();
  commit(writer, 1);
  const VersionPin stays = writer.pin(1);
  { const VersionPin goes = writer.pin(1); }
  commit(writer, 2);
  CHECK((value_at(writer, 1, "w") == pattern(5000, 1)));
  { const VersionPin goes = writer.pin(1); }
  CHECK((value_at(writer, 1, "w") == pattern(5000, 1)));
}

TEST_CASE("wait_for() any other version returns where the one that is shown was given up") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf writer = kept.open();
    commit(writer, 1);
    commit(writer, 2);
  }
  Shelf reader = kept.open(Mode::read);
  REQUIRE(reader.version() == 2);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_raw(*kept.medium, format::root_at(format::home_of(2, 3), copy), page_of(std::byte{0x5A}));
  }
  OpenOptions options = kept.options();
  Shelf writer = kept.open(options);
  if (writer.version() == 1) {
    writer.find("w")->write(pattern(5000, 3));
    writer.persist();
    CHECK(reader.wait_for({}, std::chrono::duration<double>(0.5)));
    CHECK((value(*reader.find("w")) == pattern(5000, 3)));
  } else {
    FAIL("nothing given up");
  }
}

TEST_CASE("a reader tells what its writer keeps now") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf writer = kept.open();
    commit(writer, 1);
  }
  Shelf reader = kept.open(Mode::read);
  OpenOptions other = kept.options();
  other.keep = 1;
  other.in_flight = 1;
  Shelf writer = kept.open(other);
  writer.persist();
  REQUIRE(reader.refresh());
  CHECK(reader.info().keep == 1);
  CHECK(reader.info().in_flight == 1);
}

TEST_CASE("a move to where it lies gives a tensor the placement that is asked for now") {
  Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    make(shelf, "w", 2 * kMiB).write(pattern(2 * kMiB, 1));
    shelf.persist();
  }
  kept.shape.placement = Placement::by_chunk;
  Shelf shelf = kept.open();
  const std::uint64_t before = shelf.stats().bytes_staged;
  shelf.move("w", std::array{0U});
  CHECK(shelf.stats().bytes_staged > before);
}

TEST_CASE("a reader is told where a medium's number is another's by now") {
  const scratch::Directory scratch;
  const auto path = scratch / "run.shelf";
  const auto part = (scratch / "one.part").string();
  const auto other = (scratch / "other.part").string();
  std::optional<Shelf> writer(Shelf::open(path, {.also = {part}}));
  writer->persist(1);
  Shelf reader = Shelf::open(path, {.mode = Mode::read});
  writer->remove_medium(1);
  for (int i = 2; i < 6; ++i) writer->persist(i);
  writer.reset();
  writer.emplace(Shelf::open(path, {.also = {other}}));
  writer->create("x", DType::uint8, std::array{std::int64_t{5000}}, std::array{1U})
      .write(pattern(5000, 3));
  writer->persist(7);
  CHECK(code_of([&] { reader.refresh(); }) == Errc::stale);
}

TEST_CASE("what media say of themselves is believed only where it makes sense") {
  using namespace format;
  const auto reason = [](const MediaTable& table) {
    MediaTable read;
    std::string why;
    return read_media(media_page(table, 0), read, why) ? "" : why;
  };
  const auto one = [](unsigned index, std::uint64_t capacity) {
    return MediumLayout{index, {}, capacity, "x", {}};
  };
  CHECK(reason({one(1, kMediumHeapAt), one(2, kMediumHeapAt)}).empty());
  CHECK_FALSE(reason({one(1, kMediumHeapAt), one(1, kMediumHeapAt)}).empty());
  CHECK_FALSE(reason({one(1, kMediumHeapAt + 8)}).empty());
  MediaTable longest = {one(1, kMediumHeapAt)};
  longest[0].path = std::string(kMaxPathBytes, 'p');
  MediaTable read;
  std::string why;
  REQUIRE(read_media(media_page(longest, 0), read, why));
  CHECK(read[0].path == longest[0].path);
  MediumHeader header{};
  header.index = 1;
  const Page page = encode_medium_header(header, 0);
  RawPage raw;
  std::memcpy(raw.bytes.data(), &page, sizeof page);
  CHECK(read_medium_header(raw, 0));
  CHECK_FALSE(read_medium_header(raw, 1));
  header.incompat_features = mirror_features(kMaxMedia);
  CHECK_FALSE(mirrored_by(header));
  header = {};
  const Page none = encode_medium_header(header, 0);
  std::memcpy(raw.bytes.data(), &none, sizeof none);
  CHECK_FALSE(read_medium_header(raw, 0));
  ShelfId id{};
  for (unsigned i = 0; i < 16; ++i) id[i] = static_cast<std::uint8_t>(i + 1);
  header.index = 1;
  header.shelf_id = id;
  Page torn = encode_medium_header(header, 0);
  std::memcpy(raw.bytes.data(), &torn, sizeof torn);
  CHECK(may_be_torn_header(raw, id));
  header.shelf_id[9] ^= 1;
  torn = encode_medium_header(header, 0);
  std::memcpy(raw.bytes.data(), &torn, sizeof torn);
  CHECK_FALSE(may_be_torn_header(raw, id));
  header.shelf_id = id;
  header.incompat_features = 6;
  torn = encode_medium_header(header, 0);
  std::memcpy(raw.bytes.data(), &torn, sizeof torn);
  CHECK_FALSE(may_be_torn_header(raw, id));
}

TEST_CASE("a medium that could not be removed is used again") {
  Shelf shelf = Two(4 * kMiB).open(true, true);
  const std::array there{1U};
  shelf.create("x", DType::uint8, std::array{std::int64_t{16 * 1024 * 1024}}, there)
      .write(pattern(16 * kMiB, 3));
  shelf.persist();
  REQUIRE(code_of([&] { shelf.remove_medium(1); }) == Errc::full);
  shelf.create("y", DType::uint8, std::array{std::int64_t{5000}}, there);
  CHECK_FALSE(shelf.info().media[1].retired);
}

TEST_CASE("that an empty medium was removed is uncommitted") {
  Shelf shelf = Two().open(true, true);
  shelf.persist();
  shelf.remove_medium(1);
  CHECK(code_of([&] { shelf.rollback(shelf.version()); }) == Errc::uncommitted);
}

TEST_CASE("reserved room of a further medium is the shelf's behind the next version") {
  const Two two;
  std::uint64_t before = 0;
  {
    Shelf shelf = two.open(true, false);
    shelf.persist();
    shelf.reserve(8 * kMiB);
    before = shelf.info().media[1].capacity_bytes;
    shelf.persist();
  }
  CHECK(before >= 16 * kMiB);
  CHECK(before < 20 * kMiB);
  CHECK(two.open(true, false).info().media[1].capacity_bytes == before);
}

TEST_CASE("tensors of one chunk go round, of one and a half over both") {
  const auto used = [](Shelf& shelf, unsigned i) {
    const auto each = shelf.info().media[i];
    return each.capacity_bytes - each.free_bytes;
  };
  {
    Shelf shelf = Two().open(false, false);
    for (int i = 0; i < 8; ++i) make(shelf, "x" + std::to_string(i), kMiB);
    CHECK(used(shelf, 0) > 2 * kMiB);
    CHECK(used(shelf, 1) > 2 * kMiB);
  }
  Shelf shelf = Two().open(false, false);
  make(shelf, "x", kMiB + kMiB / 2);
  CHECK(used(shelf, 0) > 2 * kMiB);
  CHECK(used(shelf, 1) > 2 * kMiB);
}

TEST_CASE("a stamp that cannot be read is no reason to refuse") {
  struct Bad final : SharedMedium {
    using SharedMedium::SharedMedium;
    void read(std::uint64_t at, std::span<std::byte> bytes) override {
      const std::uint64_t bad = format::medium_stamp_at(0);
      if (at <= bad && bad < at + bytes.size()) throw Error(Errc::io, "a bad sector", "x", EIO);
      SharedMedium::read(at, bytes);
    }
  };
  const Two two;
  two.open(true, true).persist();
  CHECK(two.open(true, std::make_unique<Bad>(two.second, true)).info().media.size() == 2);
}

TEST_CASE("what rotted since it was read keeps nobody from committing") {
  const Kept kept(
      {.keep = 0, .in_flight = 1, .mapped = GENERATE(true, false), .placement = Placement::whole});
  const Bytes value = pattern(kMiB + 100, 7);
  Shelf shelf = kept.open();
  make(shelf, "gone", 8 * kMiB).write(pattern(8 * kMiB, 1));
  make(shelf, "w", kMiB + 100).write(value);
  make(shelf, "other", 100).write(pattern(100, 1));
  shelf.persist();
  shelf.erase("gone");
  for (int i = 0; i < 3; ++i) shelf.persist();
  Bytes bytes(kMiB + 100);
  shelf.find("w")->read(bytes);  // is verified, and rots then
  for (const std::uint64_t at : places_of(*kept.medium, value)) flip(*kept.medium, at + 77);
  std::optional<Error> error = error_of([&] { shelf.compact(std::chrono::seconds(5)); });
  UNSCOPED_INFO("compact: " << (error ? error->what() : "fine"));
  CHECK_FALSE(error);
  shelf.find("other")->write(pattern(100, 2));
  error = error_of([&] { shelf.persist(); });
  UNSCOPED_INFO("persist: " << (error ? error->what() : "fine"));
  CHECK_FALSE(error);
}
