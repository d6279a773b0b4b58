// What a pipeline refuses: plans, sources and options that cannot be, and waiting for oneself.
#include <sched.h>

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "catch.hpp"
#include "fed_shelf.hpp"
#include "held_medium.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a source on a device is refused where there is none") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  std::vector<Source> sources;
  sources.push_back({fed.tensor(1), DeviceBytes{.data = &fed, .size_bytes = kFedBytes}, true});
  const auto plan = std::make_shared<const SavePlan>(std::move(sources));
  const Errc expected = cuda_support().devices > 0 ? Errc::bad_argument : Errc::unsupported;
  CHECK(code_of([&] { pipeline.save(plan, 2).value().wait_staged(); }) == expected);
  CHECK_FALSE(fed.shelf.has_uncommitted());
}

TEST_CASE("a plan that cannot be is refused") {
  Fed fed;
  CHECK(code_of([] { SavePlan plan({}); }) == Errc::bad_argument);
  std::vector<Source> sources;
  sources.push_back({fed.tensor(1), std::span(fed.sources[1]).first(10), true});
  CHECK(code_of([&] { SavePlan plan(sources); }) == Errc::layout);
  sources[0].bytes = std::span<const std::byte>(fed.sources[1]);
  sources.push_back(sources[0]);
  CHECK(code_of([&] { SavePlan plan(sources); }) == Errc::bad_argument);
  Fed other;
  Pipeline pipeline(other.shelf);
  CHECK(code_of([&] { pipeline.save(fed.plan(), 2); }) == Errc::bad_argument);
}

TEST_CASE("options that cannot be are refused") {
  Fed fed;
  const auto refused = [&](const PipelineOptions& options) {
    return code_of([&] { Pipeline pipeline(fed.shelf, options); }) == Errc::bad_argument;
  };
  CHECK(refused({.workers = 0}));
  CHECK(refused({.workers = 65}));
  CHECK(refused({.nice = -1}));
  CHECK(refused({.nice = 20}));
  CHECK(refused({.cpus = {-1}}));
  CHECK(refused({.cpus = {0, CPU_SETSIZE}}));
  Pipeline pipeline(fed.shelf, {.workers = 64,
                                .nice = 19,
                                .device_pieces = 64,
                                .device_piece_bytes = 1ULL << 30});  // the most of each
  CHECK(code_of([&] { pipeline.save(fed.plan(), ~0ULL); }) == Errc::bad_argument);
}

TEST_CASE("what would wait for itself is refused") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  {
    TensorRef tensor = fed.tensor(2);
    Assignment assignment = tensor.assign();
    CHECK(code_of([&] { pipeline.save(plan, 2); }) == Errc::unsupported);
  }
  {
    Transaction transaction = fed.shelf.transaction();
    CHECK(code_of([&] { pipeline.save(plan, 2); }) == Errc::transaction);
  }
  Door door;
  hold_copies(fed, door);
  const auto ticket = pipeline.save(plan, 2).value();
  door.await_someone();
  {
    TensorRef tensor = fed.tensor(2);
    Assignment assignment = tensor.assign();
    CHECK(code_of([&] { ticket.wait_staged(); }) == Errc::unsupported);
    CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::unsupported);
    const auto drain = [&] { return pipeline.drain_for(std::chrono::nanoseconds(1)); };
    CHECK(code_of(drain) == Errc::unsupported);
    CHECK(code_of([&] { pipeline.close(); }) == Errc::unsupported);
  }
  door.open();
  ticket.wait_durable();
}
