// Saves that fail or are given up: they are told once, and leave nothing in the shelf.
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "asleep.hpp"
#include "catch.hpp"
#include "fed_shelf.hpp"
#include "held_medium.hpp"
#include "store/threads/health.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// While it is, every other thread has to wait for a core, at a moment that nobody chose.
class BusyCores {
 public:
  BusyCores() {
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) continue;
      });
    }
  }
  ~BusyCores() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("a save that fails leaves nothing behind, and is told once") {
  Fed fed;
  std::optional<Pipeline> pipeline(std::in_place, fed.shelf);
  const auto plan = fed.plan();
  fed.train(2);
  fed.shelf.erase("second");
  fed.shelf.persist();
  const bool waited = GENERATE(true, false);
  const auto ticket = pipeline->save(plan, 2).value();
  while (!ticket.staged()) std::this_thread::yield();
  if (waited) {
    const auto error = error_of([&] { ticket.wait_staged(); });
    REQUIRE(error);
    CHECK(error->code() == Errc::unknown_name);
    pipeline->close();
  } else {
    SECTION("by the next save") {
      CHECK(code_of([&] { pipeline->save(plan, 3); }) == Errc::unknown_name);
      pipeline->close();
    }
    SECTION("by close()") {
      CHECK(code_of([&] { pipeline->close(); }) == Errc::unknown_name);
      pipeline->close();
    }
    SECTION("by the shelf, where the pipeline is gone") {
      pipeline.reset();
      CHECK(fed.shelf.unheard_failure() != "");
      CHECK(code_of([&] { fed.shelf.persist(); }) == Errc::unknown_name);
      CHECK(fed.shelf.unheard_failure() == "");
    }
  }
  CHECK_FALSE(fed.shelf.has_uncommitted());
  CHECK(fed.shelf.version() == 2);
  Bytes first(kFedBytes);
  fed.tensor(1).read(first);
  CHECK((first == pattern(kFedBytes, 1)));
}

TEST_CASE("a save that fails while the next one waits for it is told by that one") {
  const BusyCores busy;  // whatever runs behind the turn may come late
  CAPTURE(GENERATE(range(0, 20)));
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  Door door;
  hold_copies(fed, door);
  fed.train(2);
  const auto ticket = pipeline.save(plan, 2).value();
  door.await_someone();
  fed.change(2, 5);  // "second", before it is copied
  std::optional<Error> error;
  Waiter saver([&] { error = error_of([&] { pipeline.save(plan, 3); }); });
  CHECK(saver.waits());
  door.open();
  saver.join();
  REQUIRE(error);
  CHECK(error->code() == Errc::torn);
  CHECK_FALSE(fed.shelf.has_uncommitted());
  CHECK(pipeline.save(plan, 4).value().wait_durable().version == 2);
}

TEST_CASE("an eager source that cannot be copied is told at once, and the shelf goes on") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  fed.shelf.erase("eager");
  CHECK(code_of([&] { pipeline.save(plan, 2); }) == Errc::unknown_name);
  // What was changed before is discarded with it.
  CHECK_FALSE(fed.shelf.has_uncommitted());
  CHECK(fed.shelf.persist(2).version == 2);
  CHECK(fed.committed_difference(1) == "");
}

TEST_CASE("a medium that fails under a save fails the shelf") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  fed.train(2);
  before_copy(fed, 2, [] { throw Error(Errc::io, "a write failed", "reopen", EIO); });
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  CHECK(code_of([&] { ticket.wait_staged(); }) == Errc::io);
  CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::io);
  CHECK(code_of([&] { fed.shelf.persist(); }) == Errc::failed);
  CHECK(fed.committed_difference(1) == "");
  fed.hook->before_write = {};
  fed.reopen();
  CHECK(fed.committed_difference(1) == "");
}

TEST_CASE("a save that fails beside abandoning what is prepared leaves a shelf that goes on") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  fed.tensor(1).write(pattern(kFedBytes, 7));
  fed.shelf.prepare(7);
  Door door;
  door.shut();
  fed.hook->before_barrier = [&] { door.pass(); };
  Waiter resolver([&] { fed.shelf.resolve(Decision::abandon); });
  door.await_someone();  // the mark is being made void, behind the closed gate
  std::optional<Error> error;
  std::vector<Source> sources;
  sources.push_back({fed.tensor(0), DeviceBytes{.data = &fed, .size_bytes = kFedBytes}, false});
  const auto bad = std::make_shared<const SavePlan>(std::move(sources));
  Waiter saver([&] { error = error_of([&] { pipeline.save(bad, 2); }); });
  CHECK(saver.waits());
  door.open();
  resolver.join();
  saver.join();
  CHECK(error);
  CHECK(fed.committed_difference(1) == "");
  fed.train(3);
  CHECK(pipeline.save(plan, 3).value().wait_durable().version == 2);
  CHECK(fed.committed_difference(3) == "");
}

TEST_CASE("a save that failed is told when nothing of it is left in the shelf") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  fed.shelf.erase("second");
  fed.shelf.persist();
  Door door;
  hold_copies(fed, door);
  const auto ticket = pipeline.save(plan, 3).value();
  door.await_someone();
  {
    TensorRef tensor = fed.tensor(0);
    Assignment keeps_it = tensor.assign();  // what was copied cannot be dropped meanwhile
    door.open();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!ticket.done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    CHECK_FALSE(ticket.done());
  }
  CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::unknown_name);
  CHECK_FALSE(fed.shelf.has_uncommitted());
}

TEST_CASE("a save that cannot be launched beside what is prepared keeps nobody") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const std::array shape = {std::int64_t{8}};
  fed.shelf.create("more", DType::uint8, shape);
  fed.shelf.prepare(2);
  fed.train(3);
  const auto ticket = pipeline.save(fed.plan(), 3).value();
  CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::unresolved);
  CHECK(fed.committed_difference(1) == "");
  fed.shelf.resolve(Decision::commit);
  CHECK(pipeline.save(fed.plan(), 3).value().wait_durable().version == 3);
  CHECK(fed.committed_difference(3) == "");
}

TEST_CASE("a save that is given up while it waits for its turn is none that was lost") {
  struct GivenUp {};
  Fed fed;
  fed.while_waiting = [] { throw GivenUp(); };
  fed.reopen();
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  Door door;
  door.shut();
  Waiter writer([&] {
    TensorRef tensor = fed.tensor(2);
    Assignment assignment = tensor.assign();
    door.pass();
  });
  door.await_someone();
  CHECK_THROWS_AS(pipeline.save(plan, 2), GivenUp);
  door.open();
  writer.join();
  pipeline.close();
  CHECK_FALSE(error_of([&] { fed.shelf.close(); }));
}

TEST_CASE("what a commit failed with is told before what a save did") {
  const std::string path = "run.shelf";
  Health health(path);
  health.keep_lost_save(std::make_exception_ptr(Error(Errc::torn, "torn", "Save again.")));
  health.keep_background(std::make_exception_ptr(Error(Errc::io, "no flush", "Look at it.", 5)));
  health.keep_background(std::make_exception_ptr(Error(Errc::failed, "later", "Reopen.")));
  CHECK(health.unheard() == "no flush. Besides: torn");
  SECTION("one call after the other") {
    CHECK(code_of([&] { health.check_background(); }) == Errc::io);
    CHECK(health.unheard() == "torn");
    CHECK(code_of([&] { health.check_background(); }) == Errc::torn);
  }
  SECTION("or at once") {
    const auto error = error_of([&] { health.throw_all_unheard(); });
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == 5);
    CHECK(std::string(error->what()) == "no flush. Besides: torn");
    health.check_background();  // the torn one was told
  }
  SECTION("or at once, where there was no memory for the commit") {
    Health other(path);
    other.keep_background(std::make_exception_ptr(std::bad_alloc()));
    other.keep_lost_save(std::make_exception_ptr(Error(Errc::torn, "torn", "Save again.")));
    const auto error = error_of([&] { other.throw_all_unheard(); });
    REQUIRE(error);
    CHECK(error->code() == Errc::failed);
    CHECK(std::string(error->what()).find(". Besides: torn") != std::string::npos);
    CHECK(other.unheard() == "");
    CHECK(code_of([&] { health.throw_all_unheard(); }) == Errc::io);
  }
  CHECK(health.unheard() == "");
  health.check_background();
}

TEST_CASE("what a shelf that is let go could not tell is heard, once") {
  Fed fed;
  fed.shelf.close();
  std::vector<std::string> heard;
  const OpenOptions options = {
      .mode = Mode::update,
      .on_unheard =
          [&](const Error& error) {
            heard.push_back(error.what());
            throw std::runtime_error("by who was told");
          },
  };
  const auto open = [&] {
    return Shelf::open(std::make_unique<HookedMedium>(fed.medium, fed.hook, true), options);
  };
  std::optional<Shelf> shelf = open();
  const auto fail = [&] {
    fed.hook->before_barrier = [] { throw Error(Errc::io, "no barrier", "", EIO); };
    auto commit = shelf->persist_async(2);
    CHECK(error_of([&] { commit.get(); }));
    fed.hook->before_barrier = {};
  };
  SECTION("nothing, where nothing failed") {
    shelf->persist_async(2);
    shelf.reset();
    CHECK(heard.empty());
  }
  SECTION("a commit, of a shelf that is destroyed") {
    fail();
    shelf.reset();
    CHECK(heard == std::vector<std::string>{"no barrier"});
  }
  SECTION("the same of one that another is moved over") {
    fail();
    fed.medium = make_memory_medium(0, 256 * kChunkBytes);
    Shelf::format(*fed.medium);
    *shelf = open();
    CHECK(heard.size() == 1);
  }
  SECTION("not what close() threw, or a call before it") {
    fail();
    const bool closes = GENERATE(true, false);
    CHECK(error_of([&] { closes ? shelf->close() : static_cast<void>(shelf->persist(3)); }));
    shelf.reset();
    CHECK(heard.empty());
  }
  SECTION("a save, whose pipeline was let go too") {
    {
      Pipeline pipeline(*shelf);
      std::vector<Source> sources = {
          {shelf->find("first").value(), std::span<const std::byte>(fed.sources[1]), true}};
      const auto plan = std::make_shared<const SavePlan>(std::move(sources));
      shelf->erase("first");
      shelf->persist();
      pipeline.save(plan, 2);
    }
    shelf.reset();
    REQUIRE(heard.size() == 1);
    CHECK(contains(heard[0], "first"));
  }
}
