// A child forked while threads of its parent are in the midst of things: whatever lock they hold,
// every call of the child is refused (Errc::forked) and none hangs, it may destroy what it
// inherited, and the parent goes on.
#include <optional>

#include "asleep.hpp"
#include "held_medium.hpp"
#include "media/pmem/medium.hpp"
#include "scratch.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

bool refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == Errc::forked && !error.remedy().empty();
  }
  return false;
}

struct Rig {
  Bench bench;
  std::shared_ptr<Doors> doors = std::make_shared<Doors>();
  std::optional<Shelf> shelf;
  std::optional<TensorRef> a;
  std::optional<TensorRef> b;

  Rig() {
    shelf.emplace(Shelf::open(std::make_unique<HeldMedium>(bench.medium, doors)));
    a = make(*shelf, "a", kMiB + 10);
    b = make(*shelf, "b", 5000);
    a->write(pattern(kMiB + 10, 1));
    b->write(pattern(5000, 1));
    shelf->persist(1);
  }

  bool decisions_are_refused() {
    return refused([&] { shelf->resolve(Decision::commit); }) &&
           refused([&] { shelf->resolve(Decision::abandon); });
  }

  // In the child: every call is refused, and what was inherited can be destroyed.
  bool child_is_refused() {
    ::alarm(60);  // a child that hangs is killed, which the parent sees
    std::vector<std::byte> bytes(10);
    const bool all = refused([&] { a->write(bytes); }) && refused([&] { b->write(bytes, 5); }) &&
                     refused([&] { a->read(bytes); }) &&
                     refused([&] { a->read_committed(bytes); }) && refused([&] { a->lease(); }) &&
                     refused([&] { a->info(); }) && refused([&] { make(*shelf, "c", 10); }) &&
                     refused([&] { shelf->erase("a"); }) && refused([&] { shelf->persist(); }) &&
                     refused([&] { shelf->persist_async(); }) &&
                     refused([&] { shelf->find("a"); }) && refused([&] { shelf->names(); }) &&
                     refused([&] { shelf->info(); }) && refused([&] { shelf->stats(); }) &&
                     refused([&] { shelf->verify(); }) && refused([&] { shelf->prepare(); }) &&
                     refused([&] { shelf->prepared(); }) && decisions_are_refused() &&
                     refused([&] { shelf->versions(); }) && refused([&] { shelf->at(1); }) &&
                     refused([&] { shelf->rollback(1); }) && refused([&] { shelf->discard(); }) &&
                     refused([&] { return shelf->transaction(); }) &&
                     refused([&] { const Assignment begun = a->assign(); });
    shelf->close();
    if (!decisions_are_refused()) return false;
    a.reset();
    b.reset();
    shelf.reset();
    return all;
  }

  // The parent, when its threads are through.
  void check_parent() {
    a->write(pattern(kMiB + 10, 8));
    b->write(pattern(5000, 9));
    shelf->persist(9);
    shelf->close();
    const Shelf again = bench.open(Mode::update, Verify::on_open);
    REQUIRE(again.info().step == 9U);
    REQUIRE((value(*again.find("a")) == pattern(kMiB + 10, 8)));
    REQUIRE((value(*again.find("b")) == pattern(5000, 9)));
  }
};

}  // namespace

// Asserts come when all doors are open again, or a failed one would wait for ever.

TEST_CASE("a child of a process with a commit under way, and all else waiting for it") {
  Rig rig;
  rig.a->write(pattern(100, 7));  // its other slot is the commit's
  rig.doors->barrier.shut();
  const bool async = GENERATE(false, true);
  Waiter committer(
      [&] { async ? rig.shelf->persist_async(2).wait() : void(rig.shelf->persist(2)); });
  rig.doors->barrier.await_someone();
  Waiter writer([&] { rig.a->write(pattern(100, 2)); });
  bool waiting = writer.waits();
  Waiter creator([&] { make(*rig.shelf, "new", 100); });  // and for the writer
  Waiter second([&] { rig.shelf->persist(3); });
  waiting = waiting && creator.waits() && second.waits();
  const int child = scratch::in_child([&] { return rig.child_is_refused(); });
  rig.doors->barrier.open();
  for (Waiter* waiter : {&committer, &writer, &creator, &second}) waiter->join();
  REQUIRE(waiting);
  REQUIRE(scratch::exited_well(child));
  rig.check_parent();
}

TEST_CASE("a child of a process with a write under way, and a commit waiting for it") {
  Rig rig;
  rig.doors->write.shut();
  Waiter writer([&] { rig.a->write(pattern(kMiB, 2)); });
  rig.doors->write.await_someone();
  Waiter reader([&] { value(*rig.a); });  // waits for the tensor
  Waiter committer([&] { rig.shelf->persist(2); });
  const bool waiting = reader.waits() && committer.waits();
  const int child = scratch::in_child([&] { return rig.child_is_refused(); });
  rig.doors->write.open();
  for (Waiter* waiter : {&writer, &reader, &committer}) waiter->join();
  REQUIRE(waiting);
  REQUIRE(scratch::exited_well(child));
  rig.check_parent();
}

TEST_CASE("a child forked within an assignment, and a commit waiting for it") {
  Rig rig;
  std::optional<Waiter> committer;
  bool waiting = false;
  int child = 0;
  std::unique_ptr<Assignment> assignment(new Assignment(rig.a->assign()));
  assignment->write(pattern(kMiB, 2));
  committer.emplace([&] { rig.shelf->persist(2); });
  waiting = committer->waits();
  child = scratch::in_child([&] {
    const Rig own;  // to which the parent's assignment is none
    const bool all = refused([&] { assignment->write(pattern(10, 2)); }) &&
                     refused([&] { assignment->done(); }) && rig.child_is_refused();
    assignment.reset();
    return all;
  });
  assignment->write(pattern(10, 2), kMiB);
  assignment->done();
  committer->join();
  REQUIRE(waiting);
  REQUIRE(scratch::exited_well(child));
  rig.check_parent();
}

TEST_CASE("a child that opened a shelf of its own is refused the inherited one all the same") {
  Rig rig;
  const int child = scratch::in_child([&] {
    Rig own;
    const int grandchild = scratch::in_child([&] {
      const Rig third;
      return own.child_is_refused() && third.shelf->names().size() == 2;
    });
    own.check_parent();
    return scratch::exited_well(grandchild) && rig.child_is_refused();
  });
  REQUIRE(scratch::exited_well(child));
  rig.check_parent();
}

TEST_CASE("a child of a process that looks at the whole shelf") {
  Rig rig;
  Door progress;
  progress.shut();
  Waiter verifier(
      [&] { rig.shelf->verify([&](std::uint64_t, std::uint64_t) { progress.pass(); }); });
  progress.await_someone();
  make(*rig.shelf, "new", 100);  // the callback holds nothing that this would wait for
  const int child = scratch::in_child([&] { return rig.child_is_refused(); });
  progress.open();
  verifier.join();
  REQUIRE(scratch::exited_well(child));
  rig.check_parent();
}

#if !defined(__SANITIZE_ADDRESS__)  // its allocator does not stand a fork beside busy threads
TEST_CASE("children of a process that never stops writing, on the media that there are") {
  const std::string tier = GENERATE(as<std::string>{}, "pmem", "block");
  if (tier == "pmem" && (!pmem_supported() || !std::filesystem::is_directory("/dev/shm"))) {
    WARN("no tmpfs to map, or a build without libpmem2");
    return;
  }
  const scratch::Directory directory(tier == "pmem" ? std::filesystem::path("/dev/shm")
                                                    : std::filesystem::current_path());
  const auto path = directory / "a.shelf";
  {
    std::optional<Shelf> shelf(Shelf::open(path, {.tier = tier}));
    std::optional<TensorRef> a(make(*shelf, "a", kMiB));
    std::atomic<bool> done = false;
    std::atomic<unsigned> rounds = 0;
    std::thread writer([&] {
      while (!done) a->write(pattern(kMiB, ++rounds));
    });
    std::thread committer([&] {
      while (!done) rounds % 2 == 0 ? shelf->persist_async().wait() : void(shelf->persist());
    });
    bool all = true;
    for (int child = 0; child < 10; ++child) {
      all = all && scratch::exited_well(scratch::in_child([&] {
              ::alarm(60);
              const bool good = refused([&] { shelf->persist(); }) &&
                                refused([&] { a->write(std::vector<std::byte>(8)); });
              a.reset();
              shelf.reset();
              return good;
            }));
    }
    done = true;
    writer.join();
    committer.join();
    REQUIRE(all);
    a->write(pattern(kMiB, 1'000'000));
    shelf->persist(1);
  }
  const Shelf again = Shelf::open(path, {.tier = tier, .verify = Verify::on_open});
  REQUIRE((value(*again.find("a")) == pattern(kMiB, 1'000'000)));
}
#endif
