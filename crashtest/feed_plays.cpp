#include "feed_plays.hpp"

#include <atomic>
#include <optional>
#include <thread>

#include "tests/asleep.hpp"
#include "tests/fed_shelf.hpp"
#include "tests/held_medium.hpp"

namespace tensorshelf::crash {
namespace {

using testing::Door;
using testing::Fed;

// A save of step 2, whose lazy copies wait at the door.
struct Held {
  Door door;
  Fed fed;
  Pipeline pipeline = Pipeline(fed.shelf);
  SaveTicket ticket = begin();

  Held() { door.await_someone(); }
  ~Held() { door.open(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  SaveTicket begin() {
    door.shut();
    const auto me = std::this_thread::get_id();
    fed.hook->before_write = [this, me] {
      if (std::this_thread::get_id() != me) door.pass();
    };
    fed.train(2);
    return pipeline.save(fed.plan(), 2).value();
  }
  std::string finish() {
    door.open();
    ticket.wait_durable();
    const std::string wrong = fed.committed_difference(2);
    return wrong.empty() ? "" : "the version has another value of " + wrong;
  }
};

// Returns when it has failed.
void save_in_vain(Fed& fed, Pipeline& pipeline) {
  const auto plan = fed.plan();
  fed.shelf.erase("second");
  fed.shelf.persist();
  const auto ticket = pipeline.save(plan, 2).value();
  while (!ticket.staged()) std::this_thread::yield();
}

}  // namespace

std::string eager_sources_are_copied_first() {
  Held held;
  held.fed.change(0, 3);
  return held.finish();
}

std::string sources_stay_until_staged() {
  Held held;
  if (held.ticket.staged()) return "staged, and not yet copied";
  return held.finish();
}

std::string late_change_is_noticed() {
  Fed fed;
  Pipeline pipeline(fed.shelf, {.check_one_in = 1});
  std::atomic<unsigned> writes = 0;
  // The first of the lazy sources lies in four chunks, and after it comes the other.
  fed.hook->before_write = [&] {
    if (++writes == 4 + 5) fed.sources[1][kChunkBytes + 777] ^= std::byte{1};
  };
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  try {
    ticket.wait_durable();
  } catch (const Error& error) {
    return error.code() == Errc::torn ? "" : error.what();
  }
  return "a source changed between two copies, and is committed";
}

std::string nobody_commits_half_a_save() {
  Held held;
  std::optional<Commit> other;
  testing::Waiter committer([&] { other = held.fed.shelf.persist(3); });
  const bool waits = committer.waits();
  held.door.open();
  committer.join();
  if (!waits || other.value().version != 3) return "a commit took half of a save";
  return held.finish();
}

std::string failed_save_is_told() {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  save_in_vain(fed, pipeline);
  try {
    pipeline.close();
  } catch (const Error&) {
    return "";
  }
  return "a save failed, and nobody was told";
}

std::string failed_save_is_told_by_the_shelf() {
  Fed fed;
  {
    Pipeline pipeline(fed.shelf);
    save_in_vain(fed, pipeline);
  }
  try {
    fed.shelf.close();
  } catch (const Error&) {
    return "";
  }
  return "a save failed, its pipeline is gone, and nobody was told";
}

std::string failure_is_heard_of_a_shelf_let_go() {
  Fed fed;
  fed.shelf.close();
  std::string heard;
  const OpenOptions options = {
      .mode = Mode::update,
      .on_unheard = [&](const Error& error) { heard = error.what(); },
  };
  {
    auto medium = std::make_unique<testing::HookedMedium>(fed.medium, fed.hook, fed.mapped);
    Shelf shelf = Shelf::open(std::move(medium), options);
    fed.hook->before_barrier = [] { throw Error(Errc::io, "no barrier", "", EIO); };
    shelf.persist_async(2);
  }
  return heard.find("no barrier") != heard.npos ? "" : "a commit failed, and nobody was told";
}

// What is assigned behind drain() is in the next version, and not in that of the save.
std::string drained_is_apart() {
  Held held;
  testing::Waiter drainer([&] { held.pipeline.drain(); });
  const bool waits = drainer.waits();
  held.door.open();
  drainer.join();
  if (!waits) return "drained, and a save is not on its way";
  held.fed.tensor(0).write(testing::pattern(testing::kFedBytes, 9));
  return held.finish();
}

std::string closing_tells_of_the_save_it_ends() {
  Held held;
  std::string told;
  testing::Waiter closer([&] {
    try {
      held.fed.shelf.close();
    } catch (const Error& error) {
      told = error.what();
    }
  });
  const bool waits = closer.waits();
  held.door.open();
  closer.join();
  if (!waits) return "a shelf was closed under an assignment";
  if (told.find("while a save was being staged") == told.npos) return "close() told: " + told;
  return "";
}

// A save comes to nothing while a commit is on its way that fails then.
std::string both_failures_are_told() {
  Fed fed;
  std::vector<Source> lazy;
  for (const std::size_t i : {1, 2}) lazy.push_back({fed.tensor(i), fed.sources[i], true});
  const auto plan = std::make_shared<const SavePlan>(std::move(lazy));
  fed.shelf.erase("second");
  fed.shelf.persist();
  Door door;
  door.shut();
  fed.hook->before_barrier = [&] {
    door.pass();
    throw Error(Errc::io, "the flush failed", "Look at the drive.", 5);
  };
  fed.tensor(0).write(fed.sources[0]);
  const auto commit = fed.shelf.persist_async(3);
  door.await_someone();
  {
    Pipeline pipeline(fed.shelf);
    const auto ticket = pipeline.save(plan, 4).value();
    while (!ticket.staged()) std::this_thread::yield();
  }
  door.open();
  commit.wait();
  std::string told;
  try {
    fed.shelf.close();
  } catch (const Error& error) {
    told = error.what();
  }
  const bool both = told.find("the flush failed") != told.npos && told.find("second") != told.npos;
  return both ? "" : "a commit and a save failed, and close() told: " + told;
}

std::string closing_drains() {
  Held held;
  std::string failed;
  testing::Waiter closer([&] {
    try {
      held.pipeline.close();
    } catch (const Error& error) {
      failed = error.what();
    }
  });
  if (!closer.waits()) return "closing waits for no save";
  held.door.open();
  closer.join();
  return failed.empty() ? held.finish() : failed;
}

// One that waited for its turn while the pipeline was closed.
std::string save_beside_closing_is_refused() {
  Held held;
  bool refused = false;
  testing::Waiter saver([&] {
    try {
      held.pipeline.save(held.fed.plan(), 3);
    } catch (const Error& error) {
      refused = error.code() == Errc::closed;
    }
  });
  if (!saver.waits()) return "two saves are under way at once";
  testing::Waiter closer([&] { held.pipeline.close(); });
  if (!closer.waits()) return "closing waits for no save";
  held.door.open();
  closer.join();
  saver.join();
  return refused ? held.finish() : "a save was accepted by nobody";
}

std::string durable_is_behind_the_barrier() {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  Door door;
  door.shut();
  fed.hook->before_barrier = [&] { door.pass(); };
  const auto ticket = pipeline.save(fed.plan(), 2).value();
  door.await_someone();
  while (ticket.times().launched == SaveTimes::Time()) std::this_thread::yield();
  const bool durable = ticket.done();
  door.open();
  ticket.wait_durable();
  while (fed.shelf.version() != 2) std::this_thread::yield();
  return durable ? "durable, and no barrier has returned" : "";
}

std::string prepared_save_is_left_for_its_decision() {
  for (const Decision decision : {Decision::commit, Decision::abandon}) {
    Fed fed;
    {
      Pipeline pipeline(fed.shelf);
      fed.train(2);
      const auto ticket = pipeline.save(fed.plan(), 2, "two").value();
      while (!ticket.done()) std::this_thread::yield();
    }
    if (fed.shelf.version() != 1) return "a save that was to be prepared is committed";
    fed.reopen();  // closing tells of nothing
    if (!fed.shelf.prepared()) return "what was prepared is lost";
    fed.shelf.resolve(decision);
    const std::string wrong = fed.committed_difference(decision == Decision::commit ? 2 : 1);
    if (!wrong.empty()) return "behind the decision another value of " + wrong;
  }
  return "";
}

std::string save_behind_a_prepared_one_waits() {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  fed.train(2);
  pipeline.save(fed.plan(), 2, "two").value().wait_prepared();
  fed.train(3);
  const auto next = pipeline.save(fed.plan(), 3, "three").value();
  next.wait_staged();
  fed.shelf.resolve(Decision::commit);
  next.wait_prepared();
  fed.shelf.resolve(Decision::commit);
  const std::string wrong = fed.committed_difference(3);
  return wrong.empty() ? "" : "the version has another value of " + wrong;
}

std::string abandoning_tears_no_save() {
  Fed fed(false);
  Pipeline pipeline(fed.shelf, {.check_one_in = 1});
  fed.train(2);
  pipeline.save(fed.plan(), 2, "two").value().wait_prepared();
  fed.train(3);
  Door door;
  std::thread reader;
  fed.hold_comparison(door, reader);
  const auto next = pipeline.save(fed.plan(), 3, "three").value();
  while (next.times().copied == SaveTimes::Time()) std::this_thread::yield();
  testing::Waiter abandoner([&] { fed.shelf.resolve(Decision::abandon); });
  const bool waits = abandoner.waits();
  door.open();
  abandoner.join();
  reader.join();
  if (!waits) return "what a save is being compared with was taken away";
  try {
    next.wait_prepared();
  } catch (const Error& error) {
    return error.code() == Errc::abandoned ? "" : error.what();
  }
  return "what went with the one before is prepared";
}

}  // namespace tensorshelf::crash
