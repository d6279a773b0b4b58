// Attempts that stopped before their flip, and what the next open makes of what they left.
#include "kept_versions.hpp"
#include "store/root_scan.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

void commit(Shelf& shelf, unsigned version) {
  if (version == 1) make(shelf, "w", 5000);
  shelf.find("w")->write(pattern(5000, version));
  REQUIRE(shelf.persist(version).version == version);
}

format::Page page_at(Medium& medium, std::uint64_t at) {
  format::Page page;
  medium.read(at, page.bytes);
  return page;
}

void put_garbage(Medium& medium, std::uint64_t at) {
  format::Page garbage;
  const auto bytes = pattern(kPageBytes, static_cast<unsigned>(at));
  std::copy(bytes.begin(), bytes.end(), garbage.bytes.begin());
  write_page(medium, at, garbage);
}

void check_interrupted(const Shelf& shelf, unsigned version) {
  const Recovery recovery = shelf.info().recovery;
  CHECK(recovery.interrupted);
  CHECK_FALSE(recovery.degraded);
  CHECK(recovery.lost.empty());
  CHECK(shelf.version() == version);
  CHECK((value(shelf.find("w").value()) == pattern(5000, version)));
}

}  // namespace

TEST_CASE("an attempt of whose root one copy alone was written is told as an interruption") {
  const unsigned written = GENERATE(0U, 1U);
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  commit(shelf, 1);
  commit(shelf, 2);
  const std::uint64_t other = format::root_at(3 % 2, 1 - written);
  const format::Page before = page_at(*kept.medium, other);
  crash_before_flip(kept, shelf);
  write_page(*kept.medium, other, before);
  check_interrupted(kept.open(), 2);
}

TEST_CASE("an attempt over a home that was wiped is not taken for a lost version") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  for (unsigned version = 1; version <= 3; ++version) commit(shelf, version);
  for (const unsigned copy : {0U, 1U}) put_garbage(*kept.medium, format::root_at(3 % 2, copy));
  shelf = kept.open();
  REQUIRE(shelf.info().recovery.degraded);
  crash_before_flip(kept, shelf);
  check_interrupted(kept.open(), 2);
}

TEST_CASE("an attempt over a home that was mended is not taken for a lost version") {
  const unsigned mended = GENERATE(0U, 1U);  // of which copy all that is known is what was mended
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    commit(shelf, 1);
    commit(shelf, 2);
  }
  write_page(*kept.medium, format::root_at(1, mended), {});  // of version 1, which stays
  Shelf shelf = kept.open();
  CHECK(shelf.info().recovery.repaired_copies == 1);
  commit(shelf, 3);
  shelf.find("w")->write(pattern(5000, 4));
  crash_before_flip(kept, shelf);
  put_garbage(*kept.medium, format::root_at(4 % 3, 1 - mended));  // torn by the crash
  shelf = kept.open();
  check_interrupted(shelf, 3);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{2, 3});
}
