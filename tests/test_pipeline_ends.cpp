// Pipelines that are drained or closed, and shelves that are closed under them.
#include <barrier>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <tensorshelf/pipeline.hpp>

#include "asleep.hpp"
#include "catch.hpp"
#include "fed_shelf.hpp"
#include "held_medium.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("closing brings what was begun to the medium") {
  Fed fed;
  std::optional<Pipeline> pipeline(std::in_place, fed.shelf);
  Door door;
  hold_copies(fed, door);
  fed.train(2);
  const auto ticket = pipeline->save(fed.plan(), 2).value();
  door.await_someone();
  const bool destroyed = GENERATE(true, false);
  Waiter closer([&] { destroyed ? pipeline.reset() : pipeline->close(); });
  CHECK(closer.waits());
  door.open();
  closer.join();
  CHECK(ticket.wait_durable_for(std::chrono::seconds(60)));
  if (!destroyed) {
    CHECK(code_of([&] { pipeline->save(fed.plan(), 3); }) == Errc::closed);
    pipeline->close();
  }
  fed.reopen();
  CHECK(fed.committed_difference(2) == "");
}

TEST_CASE("a save that waited while the pipeline was closed is refused, and keeps nobody") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  Door door;
  hold_copies(fed, door);
  fed.train(2);
  const auto ticket = pipeline.save(plan, 2).value();
  door.await_someone();
  std::optional<Error> error;
  Waiter saver([&] { error = error_of([&] { pipeline.save(plan, 3); }); });
  CHECK(saver.waits());
  Waiter closer([&] { pipeline.close(); });
  CHECK(closer.waits());
  door.open();
  closer.join();
  saver.join();
  REQUIRE(error);
  CHECK(error->code() == Errc::closed);
  CHECK(pipeline.stats().saves == 1);
  CHECK(ticket.wait_durable().version == 2);
  CHECK_FALSE(fed.shelf.has_uncommitted());
  CHECK(fed.shelf.persist(3).version == 3);
}

TEST_CASE("nobody who waits for a save, or for the end, is kept by a limit of its rate") {
  Fed fed;
  Pipeline pipeline(fed.shelf, {.bytes_per_second = 1});  // two months
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  const auto rests = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < rests && !ticket.staged()) std::this_thread::yield();
  const std::string who = GENERATE("gate", "save", "drain", "end");
  if (who == "gate") ticket.wait_staged();
  if (who == "save") pipeline.save(fed.plan(), 3);
  if (who == "drain") pipeline.drain();
  pipeline.close();
  ticket.wait_durable();
  CHECK(fed.committed_difference(2) == "");
}

TEST_CASE("a pipeline is closed by two threads at once") {
  for (unsigned round = 0; round < rounds(50); ++round) {
    Fed fed;
    Pipeline pipeline(fed.shelf, {});
    fed.train(2);
    const auto ticket = pipeline.save(fed.plan(), 2).value();
    std::barrier both(2);
    const auto close = [&] {
      both.arrive_and_wait();
      pipeline.close();
    };
    std::thread other(close);
    close();
    other.join();
    CHECK(ticket.wait_durable().version == 2);
  }
}

TEST_CASE("the longest time that can be said is for ever") {
  Fed fed;
  Pipeline pipeline(fed.shelf, {});
  constexpr auto kForEver = std::chrono::nanoseconds::max();
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  CHECK(ticket.wait_staged_for(kForEver));
  CHECK(ticket.wait_durable_for(kForEver));
  fed.train(3);
  pipeline.save(fed.plan(), 3);
  CHECK(pipeline.drain_for(kForEver));
  fed.train(4);
  CHECK(pipeline.save(fed.plan(), 4, "an id").value().wait_prepared_for(kForEver));
}

TEST_CASE("draining waits, hears of failures, and may be given up") {
  Fed fed;
  Door door;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  pipeline.drain();  // with nothing on its way
  const auto me = std::this_thread::get_id();
  fed.hook->before_write = [&, me] {
    if (std::this_thread::get_id() != me) door.pass();
  };
  door.shut();
  fed.train(2);
  const auto ticket = pipeline.save(plan, 2).value();
  CHECK_FALSE(pipeline.drain_for(std::chrono::milliseconds(1)));
  door.open();
  pipeline.drain();
  CHECK(ticket.times().launched != SaveTimes::Time());
  fed.hook->before_write = nullptr;
  ticket.wait_durable();
  fed.shelf.erase("second");
  fed.shelf.persist();
  const auto failing = pipeline.save(plan, 3).value();
  CHECK(code_of([&] { pipeline.drain(); }) == Errc::unknown_name);
  pipeline.drain();  // it was told
  CHECK(failing.done());
}

TEST_CASE("a shelf that is closed under its pipeline commits no half") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  fed.shelf.close();
  CHECK(code_of([&] { pipeline.save(plan, 2); }) == Errc::closed);
  pipeline.close();
  fed.shelf = fed.open();
  CHECK(fed.committed_difference(1) == "");
}

TEST_CASE("a shelf is closed while a save is compared with what it copied") {
  Fed fed(false);
  Pipeline pipeline(fed.shelf, {.check_one_in = 1});
  Door door;
  std::thread reader;
  fed.hold_comparison(door, reader);
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  while (ticket.times().copied == SaveTimes::Time()) std::this_thread::yield();
  std::optional<Error> told;
  Waiter closer([&] { told = error_of([&] { fed.shelf.close(); }); });
  CHECK(closer.waits());
  door.open();
  closer.join();
  reader.join();
  REQUIRE(told);
  CHECK(told->code() == Errc::closed);
  CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::closed);
  pipeline.close();
  fed.shelf = fed.open();
  CHECK(fed.committed_difference(1) == "");
}
