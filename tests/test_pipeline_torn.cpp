// Saves of a source that changed too early: before it was copied, or behind its copy.
#include <cstdint>

#include <tensorshelf/pipeline.hpp>

#include "catch.hpp"
#include "fed_shelf.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a source that changed before it was copied abandons the save") {
  Fed fed(GENERATE(true, false));
  Pipeline pipeline(fed.shelf, {.check_one_in = GENERATE(0ULL, 16ULL)});
  const auto plan = fed.plan();
  fed.train(2);
  // All of "second" while "first" is not yet copied.
  before_copy(fed, 0, [&] { fed.change(2, 3); });
  const auto step = GENERATE(as<std::optional<std::uint64_t>>{}, 2, std::nullopt);
  const auto ticket = pipeline.save(plan, step).value();
  const auto error = error_of([&] { ticket.wait_staged(); });
  REQUIRE(error);
  CHECK(error->code() == Errc::torn);
  CHECK(contains(error->what(), "'second'"));
  CHECK(contains(error->what(), "step 2") == step.has_value());
  CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::torn);
  CHECK(pipeline.stats().torn == 1);
  CHECK(fed.shelf.version() == 1);
  CHECK_FALSE(fed.shelf.has_uncommitted());
  CHECK(fed.committed_difference(1) == "");
  fed.hook->before_write = {};
  fed.train(4);
  CHECK(pipeline.save(plan, 4).value().wait_durable().version == 2);
  CHECK(fed.committed_difference(4) == "");
}

TEST_CASE("a source that changed behind its copy abandons the save, where it is compared") {
  Fed fed(GENERATE(true, false));
  const std::uint64_t one_in = GENERATE(1ULL, 0ULL);
  Pipeline pipeline(fed.shelf, {.check_one_in = one_in});
  fed.train(2);
  const std::uint64_t at = GENERATE(0ULL, kChunkBytes - 1, 2 * kChunkBytes, kFedBytes - 1);
  // One byte of "first" while "second" is copied: its four writes come fifth. A probe may lie
  // there.
  before_copy(fed, 5, [&] { fed.sources[1][at] ^= std::byte{1}; });
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  if (one_in == 1) {
    const auto error = error_of([&] { ticket.wait_durable(); });
    REQUIRE(error);
    CHECK(error->code() == Errc::torn);
    CHECK(contains(error->what(), "'first'"));
    CHECK(fed.committed_difference(1) == "");
  } else {
    try {
      ticket.wait_durable();
      CHECK(fed.committed_difference(2) == "");  // what was copied is of one moment all the same
    } catch (const Error& error) {
      CHECK(error.code() == Errc::torn);
    }
  }
}

TEST_CASE("which chunks are compared goes round, so that each has its turn") {
  Fed fed;
  Pipeline pipeline(fed.shelf, {.check_one_in = 8});  // of the 8 there are
  const auto plan = fed.plan();
  unsigned found = 0;
  for (std::uint64_t round = 0; round < 8; ++round) {
    fed.train(round + 2);
    // A line that no probe looks at twice: 8 of 49,000 are looked at.
    before_copy(fed, 5, [&] { fed.sources[1][kChunkBytes + 777] ^= std::byte{1}; });
    try {
      pipeline.save(plan, round).value().wait_durable();
    } catch (const Error& error) {
      CHECK(error.code() == Errc::torn);
      ++found;
    }
  }
  CHECK(found == 1);
}
