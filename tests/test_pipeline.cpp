// Saves that are copied while the trainer goes on: one version each, of one moment, or none.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <optional>
#include <thread>

#include <tensorshelf/pipeline.hpp>

#include "asleep.hpp"
#include "catch.hpp"
#include "fed_shelf.hpp"
#include "held_medium.hpp"
#include "store/health.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// Another thread than that of the test is kept before it writes.
void hold_copies(Fed& fed, Door& door) {
  const auto me = std::this_thread::get_id();
  door.shut();
  fed.hook->before_write = [&door, me] {
    if (std::this_thread::get_id() != me) door.pass();
  };
}

// Before the copying thread's write number `at`, from 0.
void before_copy(Fed& fed, unsigned at, std::function<void()> act) {
  const auto me = std::this_thread::get_id();
  fed.hook->before_write = [=, count = std::make_shared<unsigned>(0)] {
    if (std::this_thread::get_id() != me && (*count)++ == at) act();
  };
}

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

TEST_CASE("eager and lazy sources become one version, with its step") {
  Fed fed(GENERATE(true, false));
  Pipeline pipeline(fed.shelf, {.workers = GENERATE(1U, 4U)});
  const auto plan = fed.plan();
  CHECK(plan->size_bytes() == 3 * kFedBytes);
  for (std::uint64_t step = 2; step < 8; ++step) {
    fed.train(step);
    const auto ticket = pipeline.save(plan, step).value();
    ticket.wait_staged();
    CHECK(ticket.staged());
    const Commit commit = ticket.wait_durable();
    CHECK(ticket.done());
    CHECK(commit.version == step);
    CHECK(commit.step == step);
    CHECK(commit.data_bytes == 3 * kFedBytes);
    CHECK(fed.committed_difference(step) == "");
  }
  pipeline.close();
  CHECK(pipeline.stats().saves == 6);
  fed.reopen();
  CHECK(fed.committed_difference(7) == "");
}

TEST_CASE("a save says when each of its sources was copied, where that is asked for") {
  Fed fed;
  const bool trace = GENERATE(true, false);
  Pipeline pipeline(fed.shelf, {.trace = trace});
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  const CommitTimes sealed = ticket.wait_durable().times;
  const SaveTimes times = ticket.times();
  const std::vector<CopyTimes> copies = ticket.copies();
  REQUIRE(copies.size() == (trace ? 3 : 0));
  for (std::size_t i = 0; i < copies.size(); ++i) {
    CAPTURE(i);
    CHECK(copies[i].source == i);  // one worker, and the eager one before
    CHECK((copies[i].thread == ::gettid()) == (i == 0));
    CHECK((i == 0 ? times.began : times.released) <= copies[i].began);
    CHECK(copies[i].began < copies[i].ended);
    CHECK(copies[i].ended <= (i == 0 ? times.released : times.copied));
  }
  CHECK(times.copied <= times.staged);
  CHECK(times.staged <= sealed.sealing);
  CHECK(sealed.sealing <= sealed.written);
  CHECK(sealed.written <= sealed.ordered);
  CHECK(sealed.ordered <= sealed.flipped);
  CHECK(sealed.flipped <= sealed.durable);
}

TEST_CASE("an eager source may change when save() returns, a lazy one when it is staged") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  Door door;
  hold_copies(fed, door);
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  door.await_someone();
  CHECK_FALSE(ticket.staged());
  CHECK_FALSE(ticket.done());
  CHECK_FALSE(ticket.wait_staged_for(std::chrono::nanoseconds(1)));
  CHECK_FALSE(ticket.wait_durable_for(std::chrono::nanoseconds(1)));
  fed.change(0, 99);
  door.open();
  ticket.wait_staged();
  fed.train(3);
  ticket.wait_durable();
  CHECK(fed.committed_difference(2) == "");
}

TEST_CASE("a ticket is durable behind the barrier, and not before") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  Door door;
  door.shut();
  fed.hook->before_barrier = [&] { door.pass(); };
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  ticket.wait_staged();
  door.await_someone();
  while (ticket.times().launched == SaveTimes::Time()) std::this_thread::yield();
  CHECK_FALSE(ticket.done());
  CHECK_FALSE(ticket.wait_durable_for(std::chrono::nanoseconds(1)));
  CHECK(fed.shelf.version() == 1);
  door.open();
  CHECK(ticket.wait_durable().version == 2);
  CHECK(fed.shelf.version() == 2);
}

TEST_CASE("the commit of somebody else takes no part of a save") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  Door door;
  hold_copies(fed, door);
  fed.train(2);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  door.await_someone();
  std::optional<Commit> other;
  Waiter committer([&] { other = fed.shelf.persist(77); });
  CHECK(committer.waits());
  door.open();
  committer.join();
  CHECK(ticket.wait_durable().version == 2);
  CHECK(other.value().version == 3);
  CHECK(fed.committed_difference(2) == "");
}

TEST_CASE("what was assigned before a save is in its version") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const std::array<std::int64_t, 1> shape = {10};
  TensorRef own = fed.shelf.create("own", DType::uint8, shape);
  own.write(pattern(10, 5));
  pipeline.save(fed.plan(), 2).value().wait_durable();
  Bytes found(10);
  own.read_committed(found);
  CHECK((found == pattern(10, 5)));
}

TEST_CASE("saves go one after the other, or are skipped and counted") {
  Fed fed;
  Door door;
  const bool skip = GENERATE(true, false);
  Pipeline pipeline(fed.shelf, {.on_busy = skip ? OnBusy::skip : OnBusy::wait});
  const auto plan = fed.plan();
  hold_copies(fed, door);
  fed.train(2);
  const auto first = pipeline.save(plan, 2).value();
  door.await_someone();
  if (skip) {
    CHECK_FALSE(pipeline.save(plan, 3));
    CHECK(pipeline.stats().skipped == 1);
    door.open();
    first.wait_durable();
    while (!pipeline.save(plan, 4)) std::this_thread::yield();  // its thread may be on its way back
  } else {
    std::optional<SaveTicket> second;
    Waiter saver([&] { second = pipeline.save(plan, 3); });
    CHECK(saver.waits());
    door.open();
    saver.join();
    CHECK(second.value().wait_durable().version == 3);
    CHECK(pipeline.stats().skipped == 0);
  }
}

// ---- torn ---------------------------------------------------------------------------------------

TEST_CASE("a source that changed before it was copied abandons the save") {
  Fed fed(GENERATE(true, false));
  Pipeline pipeline(fed.shelf, {.check_one_in = GENERATE(0ULL, 16ULL)});
  const auto plan = fed.plan();
  fed.train(2);
  // All of "second" while "first" is not yet copied.
  before_copy(fed, 0, [&] { fed.change(2, 3); });
  const auto ticket = pipeline.save(plan, 2).value();
  const auto error = error_of([&] { ticket.wait_staged(); });
  REQUIRE(error);
  CHECK(error->code() == Errc::torn);
  CHECK(contains(error->what(), "'second'"));
  CHECK(contains(error->what(), "step 2"));
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

// ---- failures -----------------------------------------------------------------------------------

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

// ---- the end ------------------------------------------------------------------------------------

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
  const std::string who = GENERATE("gate", "save", "end");
  if (who == "gate") ticket.wait_staged();
  if (who == "save") pipeline.save(fed.plan(), 3);
  pipeline.close();
  ticket.wait_durable();
  CHECK(fed.committed_difference(2) == "");
}

TEST_CASE("what happens when is told") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  ticket.wait_durable();
  const SaveTimes times = ticket.times();
  CHECK(SaveTimes::Time() < times.began);
  CHECK(times.began <= times.released);
  CHECK(times.released <= times.copied);
  CHECK(times.copied <= times.staged);
  CHECK(times.staged <= times.launched);
}

TEST_CASE("the pipeline's thread gives way, keeps to its CPUs, and hears no signal") {
  Fed fed;
  cpu_set_t mine;
  REQUIRE(::sched_getaffinity(0, sizeof mine, &mine) == 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &mine)) --last;
  Pipeline pipeline(fed.shelf, {.cpus = {last}, .nice = 7});
  std::atomic<int> nice = 0;
  std::atomic<int> cpus = 0;
  std::atomic<bool> deaf = false;
  before_copy(fed, 0, [&] {
    nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
    cpu_set_t its;
    ::sched_getaffinity(0, sizeof its, &its);
    cpus = CPU_ISSET(last, &its) ? CPU_COUNT(&its) : 0;
    sigset_t blocked;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    deaf = ::sigismember(&blocked, SIGINT) == 1 && ::sigismember(&blocked, SIGTERM) == 1;
  });
  pipeline.save(fed.plan(), 2).value().wait_durable();
  CHECK(nice == 7);
  CHECK(cpus == 1);
  CHECK(deaf);
}

TEST_CASE("the thread that commits in the background hears no signal") {
  Fed fed;
  fed.train(2);
  std::atomic<int> deaf = 0;
  const auto me = std::this_thread::get_id();
  fed.hook->before_barrier = [&] {
    sigset_t blocked;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    const bool all = ::sigismember(&blocked, SIGINT) == 1 && ::sigismember(&blocked, SIGUSR1) == 1;
    deaf = all && std::this_thread::get_id() != me ? deaf + 1 : -100;
  };
  fed.shelf.persist_async(2).get();
  fed.hook->before_barrier = {};
  CHECK(deaf > 0);
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

// ---- what cannot be -----------------------------------------------------------------------------

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
  Pipeline pipeline(fed.shelf, {.workers = 64, .nice = 19});  // the most of each
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
