// Other names, and other lengths, of tensors that are there.
#include <atomic>
#include <thread>

#include "asleep.hpp"
#include "forgery.hpp"
#include "kept_versions.hpp"
#include "raw_pages.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

std::vector<std::byte> resized(std::vector<std::byte> bytes, std::size_t size) {
  bytes.resize(size, std::byte{0});
  return bytes;
}

std::vector<std::byte> value_of(const Shelf& shelf, const std::string& name) {
  return value(*shelf.find(name));
}

}  // namespace

TEST_CASE("a renamed tensor is itself under its new name, and under the old one in old versions") {
  const Kept kept(any_shape());
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "old", kKeptBytes);
  w.write(pattern(kKeptBytes, 1));
  make(shelf, "other", 100).write(pattern(100, 9));
  shelf.persist();
  shelf.rename("old", "new");
  CHECK(w.name() == "new");
  CHECK(w.info().name == "new");
  CHECK(shelf.names() == std::vector<std::string>{"new", "other"});
  CHECK(shelf.has_uncommitted());
  CHECK_FALSE(shelf.find("old"));
  CHECK((value_of(shelf, "new") == pattern(kKeptBytes, 1)));
  std::vector<std::byte> committed(kKeptBytes);
  w.read_committed(committed);
  CHECK((committed == pattern(kKeptBytes, 1)));
  CHECK(shelf.at(1).names() == std::vector<std::string>{"old", "other"});
  w.write(pattern(1000, 2), 50);
  auto now = pattern(kKeptBytes, 1);
  const auto part = pattern(1000, 2);
  std::copy(part.begin(), part.end(), now.begin() + 50);
  const std::uint64_t before = shelf.stats().bytes_staged;
  shelf.persist();
  CHECK(shelf.stats().bytes_staged == before);
  if (kept.shape.keep > 0) {
    CHECK((value_at(shelf, 1, "old") == pattern(kKeptBytes, 1)));
    CHECK(shelf.at(1).find("old")->info().name == "old");
    CHECK_FALSE(shelf.at(1).find("new"));
    const VersionDiff diff = shelf.diff(1, 2);
    CHECK(diff.created == std::vector<std::string>{"new"});
    CHECK(diff.erased == std::vector<std::string>{"old"});
    CHECK(diff.changed.empty());
  }
  CHECK((value_of(shelf, "new") == now));
  shelf.close();
  CHECK(w.name() == "new");
  Shelf again = kept.open();
  CHECK(again.names() == std::vector<std::string>{"new", "other"});
  CHECK(again.find("new")->info().name == "new");
  CHECK((value_of(again, "new") == now));
  CHECK(again.verify().damage.empty());
  if (kept.shape.keep == 0) return;
  CHECK((value_at(again, 1, "old") == pattern(kKeptBytes, 1)));
  CHECK(again.at(1).find("old")->info().name == "old");
  const TensorRef handle = again.find("new").value();
  again.rollback(1);
  CHECK(handle.name() == "old");
  CHECK((value_of(again, "old") == pattern(kKeptBytes, 1)));
  CHECK((value(handle) == pattern(kKeptBytes, 1)));
}

TEST_CASE("a name that was given up is free at once, and what is not committed comes to nothing") {
  const Kept kept(any_shape());
  Shelf shelf = kept.open();
  commit(shelf, 1);
  const TensorRef w = shelf.find("w").value();
  const auto first = value(w);
  shelf.rename("w", "x");
  TensorRef second = make(shelf, "w", 100);
  second.write(pattern(100, 5));
  CHECK((value(w) == first));
  CHECK((value_of(shelf, "w") == pattern(100, 5)));
  shelf.discard();
  CHECK(w.name() == "w");
  CHECK((value(w) == first));
  CHECK(code_of([&] { value(second); }) == Errc::unknown_name);
  shelf.rename("w", "x");
  make(shelf, "w", 100).write(pattern(100, 6));
  shelf.rename("w", "y");
  shelf.rename("x", "w");  // back
  shelf.persist();
  CHECK(w.name() == "w");
  CHECK((value(w) == first));
  CHECK((value_of(shelf, "y") == pattern(100, 6)));
  {
    Transaction transaction = shelf.transaction();
    shelf.rename("w", "z");
    CHECK(w.name() == "z");
  }
  CHECK(w.name() == "w");
  shelf.erase("y");
  shelf.rename("w", "y");
  shelf.persist();
  CHECK(shelf.names() == std::vector<std::string>{"y"});
  Shelf reader = kept.open(Mode::read);
  CHECK((value_of(reader, "y") == first));
}

TEST_CASE("a rename is refused where it could not be, and changes nothing then") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "a", 100).write(pattern(100, 1));
  make(shelf, "b", 100).write(pattern(100, 2));
  shelf.persist();
  CHECK(code_of([&] { shelf.rename("a", "b"); }) == Errc::name_taken);
  CHECK(code_of([&] { shelf.rename("c", "d"); }) == Errc::unknown_name);
  CHECK(code_of([&] { shelf.rename("a", ""); }) == Errc::bad_name);
  CHECK(code_of([&] { shelf.rename("a", std::string(kMaxNameBytes + 1, 'x')); }) == Errc::bad_name);
  shelf.rename("a", "a");
  CHECK_FALSE(shelf.has_uncommitted());
  shelf.rename("a", std::string(kMaxNameBytes, 'x'));
  shelf.rename(std::string(kMaxNameBytes, 'x'), "a");
  shelf.persist();
  CHECK((value_of(shelf, "a") == pattern(100, 1)));
  CHECK(code_of([&] { kept.open(Mode::read).rename("a", "z"); }) == Errc::read_only);
  Assignment assignment = shelf.find("a")->assign();
  CHECK(code_of([&] { shelf.rename("a", "z"); }) == Errc::unsupported);
}

TEST_CASE("many tensors can be renamed, whatever room their records have") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  const auto short_name = [](unsigned i) { return "t" + std::to_string(i); };
  const auto long_name = [](unsigned i) { return std::string(900, 'n') + std::to_string(i); };
  constexpr unsigned kCount = 200;
  for (unsigned i = 0; i < kCount; ++i) make(shelf, short_name(i), 8).write(pattern(8, i));
  shelf.persist();
  for (unsigned i = 0; i < kCount; ++i) shelf.rename(short_name(i), long_name(i));
  shelf.persist();
  for (unsigned i = 0; i < kCount; i += 2) shelf.rename(long_name(i), short_name(i));
  shelf.persist();
  for (unsigned i = 0; i < kCount; i += 4) shelf.erase(short_name(i));
  shelf.persist();
  const auto check = [&](const Shelf& one) {
    CHECK(one.names().size() == kCount - kCount / 4);
    for (unsigned i = 0; i < kCount; ++i) {
      if (i % 4 == 0) continue;
      CHECK((value_of(one, i % 2 == 0 ? short_name(i) : long_name(i)) == pattern(8, i)));
    }
  };
  check(shelf);
  shelf.close();
  check(kept.open());
}

TEST_CASE("a reader follows its tensor to another name") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf writer = kept.open();
  commit(writer, 1);
  Shelf reader = kept.open(Mode::read);
  const TensorRef w = reader.find("w").value();
  writer.rename("w", "v");
  make(writer, "w", 100).write(pattern(100, 7));
  writer.persist();
  REQUIRE(reader.refresh());
  CHECK(w.name() == "v");
  CHECK((value(w) == value_at(writer, 1, "w")));
  CHECK((value_of(reader, "w") == value_of(writer, "w")));
  CHECK(reader.at(1).find("w")->info().name == "w");
  writer.rollback(1);
  REQUIRE(reader.refresh());
  CHECK(w.name() == "w");
}

// The number of a version that was lost comes again, and with it those of its tensors.
TEST_CASE("a reader does not take what came after a lost version for its tensors, renamed") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::by_chunk});
  {
    Shelf writer = kept.open();
    commit(writer, 1);
  }
  {
    Shelf writer = kept.open();
    make(writer, "lost", 700).write(pattern(700, 2));
    writer.persist();
  }
  Shelf reader = kept.open(Mode::read);
  REQUIRE(reader.version() == 2);
  const TensorRef lost = reader.find("lost").value();
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    write_raw(*kept.medium, format::root_at(format::home_of(2, 3), copy), page_of(std::byte{0x5A}));
  }
  Shelf writer = kept.open();
  REQUIRE(writer.version() == 1);
  make(writer, "new", 700).write(pattern(700, 3));
  for (int i = 0; i < 3; ++i) writer.persist();
  REQUIRE(reader.refresh());
  CHECK(lost.name() == "lost");
  CHECK(code_of([&] { value(lost); }) == Errc::unknown_name);
  CHECK((value_of(reader, "new") == pattern(700, 3)));
}

TEST_CASE("damage in an older version is told by the name that the tensor had there") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "old", 100).write(pattern(100, 1));
  shelf.persist();
  shelf.rename("old", "new");
  shelf.find("new")->write(pattern(100, 2));
  shelf.persist();
  shelf.close();
  std::vector<std::byte> page(kPageBytes);
  for (std::uint64_t at = 0; at < kept.medium->size(); at += kPageBytes) {
    kept.medium->read(at, page);
    if (!std::equal(page.begin(), page.begin() + 100, pattern(100, 1).begin())) continue;
    page[50] ^= std::byte{1};
    kept.medium->wait(kept.medium->write(at, page, 0));
  }
  const Shelf again = kept.open();
  const auto error = error_of([&] { value_at(again, 1, "old"); });
  REQUIRE(error);
  CHECK(contains(error->what(), "'old' v1"));
}

TEST_CASE("a rename that was prepared goes with it, or comes with it") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    commit(shelf, 1);
    shelf.rename("w", "v");
    shelf.prepare();
  }
  const bool commits = GENERATE(true, false);
  Shelf shelf = kept.open();
  const TensorRef w = shelf.find("w").value();
  CHECK(shelf.at(2).names() == std::vector<std::string>{"v"});
  shelf.resolve(commits ? Decision::commit : Decision::abandon);
  CHECK(w.name() == (commits ? "v" : "w"));
  CHECK(shelf.names() == std::vector<std::string>{commits ? "v" : "w"});
  shelf.persist();
}

TEST_CASE("reads go on while what they read is renamed", "[threads]") {
  const Kept kept({.keep = 2, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  const TensorRef w = shelf.find("w").value();
  const auto expected = value(w);
  std::atomic<bool> ends = false;
  std::thread reads([&] {
    while (!ends) {
      std::vector<std::byte> found(expected.size());
      w.read(found);
      std::vector<std::byte> committed(expected.size());
      w.read_committed(committed);
      if (found != expected || committed != expected || w.name().empty()) std::abort();
    }
  });
  for (unsigned round = 0; round < rounds(200); ++round) {
    shelf.rename(std::string(w.name()), "w" + std::to_string(round % 7));
    if (round % 5 == 0) {
      shelf.discard();
    } else {
      shelf.persist();
      if (round % 3 == 0) shelf.rollback(shelf.version() - 1);
    }
  }
  ends = true;
  reads.join();
}

TEST_CASE("a resized tensor keeps what has room, with what was assigned, and zeros are new") {
  const Kept kept(any_shape());
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  w.write(pattern(kKeptBytes, 1));
  make(shelf, "zeros", kKeptBytes);
  shelf.persist();
  auto expected = pattern(kKeptBytes, 1);
  const auto part = pattern(1000, 2);
  w.write(part, kMiB - 500);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB - 500);
  const std::size_t size =
      GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{kMiB}, std::size_t{kMiB + 5000},
               std::size_t{kKeptBytes + 1}, std::size_t{5 * kMiB + 3});
  const TensorRef again = shelf.resize("w", static_cast<std::int64_t>(size));
  CHECK(again.info().size_bytes == size);
  CHECK(again.shape()[0] == static_cast<std::int64_t>(size));
  CHECK((value(again) == resized(expected, size)));
  CHECK(code_of([&] { value(w); }) == Errc::unknown_name);
  const auto zeros = shelf.resize("zeros", static_cast<std::int64_t>(size));
  CHECK((value(zeros) == std::vector<std::byte>(size)));
  if (size == 5 * kMiB + 3) {
    shelf.find("w")->write(part, 4 * kMiB);  // in what is new
    expected = resized(expected, size);
    std::copy(part.begin(), part.end(), expected.begin() + 4 * kMiB);
  }
  shelf.persist();
  CHECK((value(again) == resized(expected, size)));
  if (kept.shape.keep > 0) CHECK((value_at(shelf, 1, "w") == pattern(kKeptBytes, 1)));
  shelf.close();
  const Shelf opened = kept.open();
  CHECK((value_of(opened, "w") == resized(expected, size)));
  CHECK((value_of(opened, "zeros") == std::vector<std::byte>(size)));
  CHECK(opened.verify().damage.empty());
}

TEST_CASE("a tensor is resized along its first dimension alone, and may come to nothing") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = shelf.create("w", DType::float32, std::vector<std::int64_t>{10, 25});
  w.write(pattern(1000, 1));
  shelf.create("scalar", DType::float32, std::vector<std::int64_t>{});
  shelf.persist();
  shelf.resize("w", 12);
  CHECK(shelf.find("w")->info().shape == std::vector<std::int64_t>{12, 25});
  CHECK((value_of(shelf, "w") == resized(pattern(1000, 1), 1200)));
  shelf.discard();
  CHECK(value(w) == pattern(1000, 1));
  shelf.resize("w", 10);
  CHECK_FALSE(shelf.has_uncommitted());
  CHECK(value(w) == pattern(1000, 1));
  CHECK(code_of([&] { shelf.resize("w", -1); }) == Errc::layout);
  CHECK(code_of([&] { shelf.resize("w", std::int64_t{1} << 60); }) == Errc::layout);
  CHECK(code_of([&] { shelf.resize("scalar", 2); }) == Errc::layout);
  CHECK(code_of([&] { shelf.resize("none", 2); }) == Errc::unknown_name);
  CHECK(code_of([&] { shelf.resize("w", 10'000'000); }) == Errc::full);
  CHECK(code_of([&] { kept.open(Mode::read).resize("w", 2); }) == Errc::read_only);
  CHECK_FALSE(shelf.has_uncommitted());
  {
    Assignment assignment = w.assign();
    CHECK(code_of([&] { shelf.resize("w", 3); }) == Errc::unsupported);
  }
  shelf.persist();
  CHECK(value(w) == pattern(1000, 1));
}

TEST_CASE("who comes to rename or resize behind a close is told so", "[threads]") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  const bool renames = GENERATE(true, false);
  Assignment holds = shelf.find("w")->assign();
  Waiter closes([&] { shelf.close(); });
  REQUIRE(closes.waits());
  std::optional<Errc> code;
  Waiter comes([&] {
    code = code_of([&] { renames ? shelf.rename("w", "v") : void(shelf.resize("w", 7)); });
  });
  REQUIRE(comes.waits());
  holds.done();
  closes.join();
  comes.join();
  CHECK(code == Errc::closed);
}

TEST_CASE("what is resized beside assignments has them or not, whole", "[threads]") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  const TensorRef first = shelf.find("w").value();
  const std::size_t size = value(first).size();
  std::atomic<bool> ends = false;
  std::thread writes([&] {
    for (unsigned round = 0; !ends; ++round) {
      try {
        shelf.find("w")->write(pattern(size, round));
      } catch (const Error& error) {
        if (error.code() != Errc::unknown_name) std::abort();  // it was resized meanwhile
      }
    }
  });
  for (unsigned round = 0; round < rounds(60); ++round) {
    shelf.resize("w", static_cast<std::int64_t>(size + 1 + round % 2));
    shelf.persist();
    const auto found = value_of(shelf, "w");
    CHECK(found.back() == std::byte{0});
  }
  ends = true;
  writes.join();
}
