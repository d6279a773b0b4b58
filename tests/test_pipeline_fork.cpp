// A child of a process whose pipeline is in the midst of a save: it may destroy what it inherited.
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "catch.hpp"
#include "fed_shelf.hpp"
#include "held_medium.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a forked child waits for no save of its parent's, and ends") {
  Fed fed;
  std::optional<Pipeline> pipeline(std::in_place, fed.shelf);
  Door door;
  const auto me = std::this_thread::get_id();
  door.shut();
  fed.hook->before_write = [&] {
    if (std::this_thread::get_id() != me) door.pass();
  };
  fed.train(2);
  const auto plan = fed.plan();
  const auto ticket = pipeline->save(plan, 2).value();
  door.await_someone();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto forked = [](const std::function<void()>& call) {
      const auto error = error_of(call);
      return error && error->code() == Errc::forked;
    };
    bool good = forked([&] { ticket.wait_staged(); });
    good = good && forked([&] { ticket.wait_durable(); });
    good = good && forked([&] { static_cast<void>(ticket.staged()); });
    good = good && forked([&] { static_cast<void>(ticket.done()); });
    good = good && forked([&] { static_cast<void>(ticket.times()); });
    good = good && forked([&] { static_cast<void>(ticket.copies()); });
    good = good && forked([&] { pipeline->save(plan, 3); });
    pipeline->drain();
    pipeline->close();
    pipeline.reset();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  door.open();
  CHECK(ticket.wait_durable().version == 2);
  CHECK(fed.committed_difference(2) == "");
}
