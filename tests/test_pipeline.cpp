// Saves that are copied while the trainer goes on: one version each, of one moment, or none.
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "asleep.hpp"
#include "catch.hpp"
#include "fed_shelf.hpp"
#include "held_medium.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

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
  Pipeline pipeline(fed.shelf, {.cpus = {last}, .nice = 19});
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
  CHECK(nice == 19);
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
