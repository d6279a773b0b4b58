// Saves that are prepared, for those who agree with others before they commit.
#include <string>

#include <tensorshelf/pipeline.hpp>

#include "asleep.hpp"
#include "catch.hpp"
#include "fed_shelf.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// A save of step 2 that is prepared under "two".
struct Prepares {
  Fed fed;
  Pipeline pipeline;
  SaveTicket ticket;

  explicit Prepares(bool mapped = true) : fed(mapped), pipeline(fed.shelf), ticket(save(2, "two")) {
    ticket.wait_prepared();
  }
  SaveTicket save(std::uint64_t step, const std::string& id) {
    fed.train(step);
    return pipeline.save(fed.plan(), step, id).value();
  }
};

}  // namespace

TEST_CASE("a save with an id is prepared, and its version comes with the decision") {
  Prepares run(GENERATE(true, false));
  const Prepared made = run.ticket.wait_prepared();
  CHECK(made.version == 2);
  CHECK(made.step == 2);
  CHECK(made.id == "two");
  CHECK(made.data_bytes == 3 * kFedBytes);
  CHECK(run.ticket.done());
  CHECK(run.ticket.wait_prepared_for(std::chrono::seconds(0)));
  CHECK(run.fed.shelf.version() == 1);
  CHECK(run.fed.committed_difference(1) == "");
  const Resolved resolved = run.fed.shelf.resolve(Decision::commit);
  CHECK(resolved.commit->version == 2);
  CHECK(run.fed.shelf.step() == 2);
  CHECK(run.fed.committed_difference(2) == "");
  run.pipeline.close();
  run.fed.reopen();
  CHECK(run.fed.committed_difference(2) == "");
}

TEST_CASE("the next save is staged beside one that is undecided, and then waits for the decision") {
  Prepares run(GENERATE(true, false));
  const SaveTicket next = run.save(3, "three");
  next.wait_staged();
  CHECK_FALSE(next.wait_prepared_for(std::chrono::milliseconds(1)));
  CHECK(run.fed.shelf.prepared()->id == "two");
  run.fed.shelf.resolve(Decision::commit);
  CHECK(next.wait_prepared().version == 3);
  CHECK(run.fed.committed_difference(2) == "");
  run.fed.shelf.resolve(Decision::commit);
  CHECK(run.fed.committed_difference(3) == "");
}

TEST_CASE("what is abandoned takes the save behind it along, and the one after that is whole") {
  Prepares run(GENERATE(true, false));
  const SaveTicket next = run.save(3, "three");
  next.wait_staged();
  run.fed.shelf.resolve(Decision::abandon);
  CHECK(code_of([&] { next.wait_prepared(); }) == Errc::abandoned);
  CHECK(run.fed.committed_difference(1) == "");
  const SaveTicket third = run.save(4, "four");
  CHECK(third.wait_prepared().version == 2);
  run.fed.shelf.resolve(Decision::commit);
  CHECK(run.fed.committed_difference(4) == "");
  CHECK(run.fed.shelf.step() == 4);
}

TEST_CASE("a crash leaves a save prepared, for whoever asked for it") {
  Prepares run;
  run.pipeline.close();
  run.fed.reopen();
  REQUIRE(run.fed.shelf.prepared());
  CHECK(run.fed.shelf.prepared()->id == "two");
  CHECK(run.fed.committed_difference(1) == "");
  {
    Pipeline pipeline(run.fed.shelf);
    CHECK(code_of([&] { pipeline.save(run.fed.plan(), 3, "three"); }) == Errc::unresolved);
  }
  run.fed.shelf.resolve(Decision::commit);
  CHECK(run.fed.committed_difference(2) == "");
}

TEST_CASE("closing waits for no decision") {
  Prepares run;
  const SaveTicket next = run.save(3, "three");
  next.wait_staged();
  CHECK(code_of([&] { run.pipeline.close(); }) == Errc::unresolved);
  CHECK(code_of([&] { next.wait_prepared(); }) == Errc::unresolved);
  run.fed.shelf.resolve(Decision::commit);  // the turn is free, and nothing of the other is left
  CHECK(run.fed.committed_difference(2) == "");
  CHECK_FALSE(run.fed.shelf.has_uncommitted());
  CHECK(run.fed.shelf.persist().version == 3);
}

TEST_CASE("a shelf can be closed over what a save has prepared") {
  Prepares run;
  run.fed.shelf.close();
  CHECK(code_of([&] { run.save(3, "three"); }) == Errc::closed);
}

TEST_CASE("a prepare that fails fails the save, and keeps nobody from his turn") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const unsigned at = GENERATE(1U, 2U, 3U);  // the barrier of the attempt, and those of its mark
  fed.hook->before_barrier = [count = 0U, at]() mutable {
    if (++count == at) throw Error(Errc::io, "the drive is gone", "Look at it.");
  };
  fed.train(2);
  const SaveTicket ticket = pipeline.save(fed.plan(), 2, "two").value();
  CHECK(code_of([&] { ticket.wait_prepared(); }) == Errc::io);
  CHECK(code_of([&] { fed.shelf.persist(); }) == Errc::failed);
  CHECK(code_of([&] { pipeline.save(fed.plan(), 3, "three"); }) == Errc::failed);
  CHECK(fed.committed_difference(1) == "");
}

TEST_CASE("each kind of save has its own wait") {
  Prepares run;
  CHECK(code_of([&] { run.ticket.wait_durable(); }) == Errc::bad_argument);
  run.fed.shelf.resolve(Decision::commit);
  const SaveTicket plain = run.pipeline.save(run.fed.plan(), 3).value();
  CHECK(code_of([&] { plain.wait_prepared(); }) == Errc::bad_argument);
  CHECK(plain.wait_durable().version == 3);
  CHECK(code_of([&] { run.pipeline.save(run.fed.plan(), 4, std::string(257, 'x')); }) ==
        Errc::bad_argument);
  run.save(4, std::string(256, 'x')).wait_prepared();
}

TEST_CASE("a save without an id is refused while one is undecided") {
  Prepares run;
  const SaveTicket plain = run.pipeline.save(run.fed.plan(), 3).value();
  CHECK(code_of([&] { plain.wait_durable(); }) == Errc::unresolved);
  CHECK(run.fed.shelf.resolve(Decision::commit).commit->version == 2);
  CHECK_FALSE(run.fed.shelf.has_uncommitted());
}

TEST_CASE("what is prepared tells when it was launched") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  fed.train(2);
  const auto before = std::chrono::steady_clock::now();
  const auto ticket = pipeline.save(fed.plan(), 2, "two").value();
  ticket.wait_prepared();
  CHECK(ticket.times().launched >= before);
}
