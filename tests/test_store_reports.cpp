// What a shelf tells of itself, compared with what was done to it.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fed_shelf.hpp"
#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSomeBytes = 3000;

// What is written to stderr meanwhile.
std::string told_on_stderr(const std::function<void()>& call) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  call();
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::string told(4096, '\0');
  told.resize(static_cast<std::size_t>(::pread(::fileno(file), told.data(), told.size(), 0)));
  std::fclose(file);
  return told;
}

}  // namespace

TEST_CASE("what nobody is there to hear is told on stderr") {
  Fed fed;
  fed.shelf.close();
  std::optional<Shelf> shelf(fed.open());
  CHECK(told_on_stderr([&] { shelf->persist_async(2).get(); }).empty());
  fed.hook->before_barrier = [] { throw Error(Errc::io, "no barrier", "replace it", EIO); };
  const std::string told = told_on_stderr([&] {
    try {
      shelf->persist_async(3).get();
    } catch (const Error&) {
    }
    shelf.reset();
  });
  CHECK(told == "tensorshelf: io_error: no barrier. Replace it.\n");
}

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
  check(shelf.resolve(Decision::commit).commit.value(), 0, 30, 2030);
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

namespace {

// The places of pages that hold the text: both copies of a page of records.
std::vector<std::uint64_t> pages_with(Medium& medium, const std::string& text) {
  std::vector<std::uint64_t> found;
  Bytes page(kPageBytes);
  for (std::uint64_t at = 0; at < medium.size(); at += kPageBytes) {
    medium.read(at, page);
    const std::string_view bytes(reinterpret_cast<const char*>(page.data()), page.size());
    if (bytes.find(text) != std::string_view::npos) found.push_back(at);
  }
  return found;
}

Bytes damage_page(Medium& medium, std::uint64_t at) {
  Bytes page(kPageBytes);
  medium.read(at, page);
  Bytes damaged = page;
  damaged[100] ^= std::byte{1};
  medium.wait(medium.write(at, damaged, 0));
  return page;
}

}  // namespace

TEST_CASE("a bad copy of a page that several versions share is one") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    make(shelf, "name-to-find", kSomeBytes);
    for (unsigned version = 1; version <= 3; ++version) {
      shelf.find("name-to-find")->write(pattern(kSomeBytes, version));
      shelf.persist(version);
    }
  }
  const auto pages = pages_with(*kept.medium, "name-to-find");
  REQUIRE(pages.size() == 2);
  damage_page(*kept.medium, pages[0]);
  const Recovery seen = kept.open(Mode::read).info().recovery;
  CHECK(seen.repaired_copies == 0);
  const bool told = std::any_of(seen.notes.begin(), seen.notes.end(), [](const auto& note) {
    return contains(note, "One copy of metadata");
  });
  CAPTURE(seen.notes);
  CHECK(told);
  CHECK(kept.open().info().recovery.repaired_copies == 1);
  CHECK(kept.open().info().recovery.repaired_copies == 0);
}

TEST_CASE("a bad copy of a page that only what is prepared names is mended, and told") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    make(shelf, "w", kSomeBytes);
    shelf.persist(1);
    make(shelf, "name-to-find", kSomeBytes).write(pattern(kSomeBytes, 1));
    shelf.prepare(2);
  }
  for (const std::uint64_t at : pages_with(*kept.medium, "name-to-find")) {
    const Bytes before = damage_page(*kept.medium, at);
    CHECK(kept.open().info().recovery.repaired_copies == 1);
    Bytes after(kPageBytes);
    kept.medium->read(at, after);
    CHECK((after == before));
  }
  Shelf shelf = kept.open();
  REQUIRE(shelf.resolve(Decision::commit).commit->version == 2);
  CHECK((value(*shelf.find("name-to-find")) == pattern(kSomeBytes, 1)));
}
