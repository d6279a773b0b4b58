// OpenOptions::while_waiting: every wait that lasts hears it, and where it throws the call ends as
// if it had not been made: nothing is lost, nothing stays locked.
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "asleep.hpp"
#include "held_medium.hpp"
#include "store/threads/queue_lock.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSize = 100'000;

struct Interrupted {};

// A shelf at version 1 with "w" and "v", on a medium with doors. In the thread of the test every
// wait is interrupted; others wait to the end.
struct Rig {
  std::shared_ptr<Doors> doors = std::make_shared<Doors>();
  Bench bench = Bench(256 * kMiB, GENERATE(true, false));
  std::thread::id me = std::this_thread::get_id();
  std::function<void()> heard = [] { throw Interrupted(); };
  Shelf shelf = open();
  TensorRef w = make(shelf, "w", kSize);
  TensorRef v = make(shelf, "v", kSize);

  Rig() {
    w.write(pattern(kSize, 1));
    v.write(pattern(kSize, 1));
    shelf.persist(1);
  }
  Shelf open() {
    OpenOptions options;
    options.mode = Mode::update;
    options.while_waiting = [this] {
      if (std::this_thread::get_id() == me) heard();
    };
    return Shelf::open(std::make_unique<HeldMedium>(bench.medium, doors, bench.mapped), options);
  }
  bool interrupted(const std::function<void()>& call) {
    try {
      call();
    } catch (const Interrupted&) {
      return true;
    }
    return false;
  }
  // Whoever comes: all that there is can be done, and what was assigned is in the next version.
  void check_usable(const std::vector<std::byte>& in_w, const std::vector<std::byte>& in_v) {
    CHECK((value(w) == in_w));
    CHECK((value(v) == in_v));
    CHECK(shelf.names() == std::vector<std::string>{"v", "w"});
    const std::uint64_t before = shelf.version();
    shelf.persist(7);
    CHECK((value(w, true) == in_w));
    Waiter other([&] {
      Transaction transaction = shelf.transaction();
      v.write(pattern(kSize, 8));
      make(shelf, "new", 10);
      shelf.erase("new");
      transaction.commit(8);
    });
    other.join();
    CHECK(shelf.persist_async(9).get().version == before + 3);
    shelf.close();
    shelf = open();
    CHECK((value(shelf.find("w").value()) == in_w));
    CHECK((value(shelf.find("v").value()) == pattern(kSize, 8)));
  }
};

// Another thread, which stays inside of something until it is let go.
class Holder {
 public:
  using Stay = std::function<void()>;
  explicit Holder(const std::function<void(const Stay& stay)>& body)
      : thread_([this, body] {
          body([this] {
            inside_.set_value();
            go_.get_future().wait();
          });
        }) {
    inside_.get_future().wait();
  }
  void let_go() {
    go_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> inside_, go_;
  std::thread thread_;
};

struct Call {
  const char* what;
  void (*on)(Rig& rig);
};
const Call kPersist = {"persist", [](Rig& rig) { rig.shelf.persist(); }};
const Call kPersistAsync = {"persist_async", [](Rig& rig) { rig.shelf.persist_async(); }};
const Call kPrepare = {"prepare", [](Rig& rig) { rig.shelf.prepare(); }};
const Call kDiscard = {"discard", [](Rig& rig) { rig.shelf.discard(); }};
const Call kRollback = {"rollback", [](Rig& rig) { rig.shelf.rollback(1); }};
const Call kTransaction = {"transaction", [](Rig& rig) { auto t = rig.shelf.transaction(); }};
const Call kCreate = {"create", [](Rig& rig) { make(rig.shelf, "new", 100); }};
const Call kCreateWith = {"create_with", [](Rig& rig) {
                            auto creation = rig.shelf.create_with("new", DType::uint8,
                                                                  std::vector<std::int64_t>{100});
                          }};
const Call kReplace = {"replace", [](Rig& rig) {
                         rig.shelf.replace("w", DType::uint8, std::vector<std::int64_t>{100});
                       }};
const Call kErase = {"erase", [](Rig& rig) { rig.shelf.erase("w"); }};
const Call kWrite = {"write", [](Rig& rig) { rig.w.write(pattern(kSize, 3)); }};
const Call kAssign = {"assign", [](Rig& rig) { Assignment assignment = rig.w.assign(); }};

}  // namespace

TEST_CASE("who waits for an assignment can be interrupted") {
  const std::array calls = {kPersist, kPersistAsync, kPrepare, kDiscard, kRollback, kTransaction,
                            kCreate,  kCreateWith,   kReplace, kErase,   kWrite,    kAssign};
  const Call& call = calls[GENERATE_COPY(range(std::size_t{0}, calls.size()))];
  CAPTURE(call.what);
  Rig rig;
  Holder holder([&](const auto& stay) {
    Assignment assignment = rig.w.assign();
    assignment.write(pattern(kSize, 2));
    stay();
    assignment.done();
  });
  CHECK(rig.interrupted([&] { call.on(rig); }));
  rig.v.write(pattern(kSize, 4));  // the gate is open again, and nobody waits for it
  CHECK(rig.shelf.version() == 1);
  holder.let_go();
  rig.check_usable(pattern(kSize, 2), pattern(kSize, 4));
}

TEST_CASE("a new tensor whose wait to be added is interrupted leaves nothing behind") {
  Rig rig;
  const std::vector<std::int64_t> shape = {kMiB};  // not among the small ones, which share room
  static_cast<void>(
      rig.shelf.create_with("new", DType::uint8, shape));  // for which the shelf grows
  const std::uint64_t before = rig.shelf.free_bytes();
  {
    auto creation = rig.shelf.create_with("new", DType::uint8, shape);
    creation.write(pattern(kMiB, 3));
    Holder holder([&](const auto& stay) {
      Assignment assignment = rig.w.assign();
      stay();
    });
    CHECK(rig.interrupted([&] { creation.done(); }));
    CHECK(code_of([&] { creation.done(); }) == Errc::unsupported);
    holder.let_go();
  }
  CHECK(rig.shelf.free_bytes() == before);
  rig.check_usable(pattern(kSize, 1), pattern(kSize, 1));
}

TEST_CASE("who waits for the transaction of another thread can be interrupted") {
  const std::array calls = {kPersist, kPersistAsync, kPrepare, kDiscard, kRollback, kTransaction};
  const Call& call = calls[GENERATE_COPY(range(std::size_t{0}, calls.size()))];
  CAPTURE(call.what);
  Rig rig;
  Holder holder([&](const auto& stay) {
    Transaction transaction = rig.shelf.transaction();
    stay();
    transaction.commit(2);
  });
  rig.w.write(pattern(kSize, 2));
  CHECK(rig.interrupted([&] { call.on(rig); }));
  holder.let_go();
  CHECK(rig.shelf.version() == 2);
  rig.check_usable(pattern(kSize, 2), pattern(kSize, 1));
}

TEST_CASE("who waits while another thread commits can be interrupted") {
  const std::array calls = {kPersist, kCreate, kErase, kAssign, kWrite};
  const Call& call = calls[GENERATE_COPY(range(std::size_t{0}, calls.size()))];
  CAPTURE(call.what);
  Rig rig;
  Holder holder([&](const auto& stay) {
    Assignment assignment = rig.v.assign();
    assignment.write(pattern(kSize, 2));
    stay();
    assignment.done();
  });
  Waiter committer([&] { rig.shelf.persist(2); });  // which itself waits, and keeps the gate closed
  CHECK(committer.waits());
  CHECK(rig.interrupted([&] { call.on(rig); }));
  holder.let_go();
  committer.join();
  CHECK(rig.shelf.version() == 2);
  rig.check_usable(pattern(kSize, 1), pattern(kSize, 2));
}

TEST_CASE("who waits for a version on its way can be interrupted") {
  const Call grow = {"growth", [](Rig& rig) { make(rig.shelf, "new", 32 * kMiB); }};
  const Call commit = {"the end of a transaction", [](Rig& rig) {
                         Transaction transaction = rig.shelf.transaction();
                         rig.v.write(pattern(kSize, 5));
                         transaction.commit(3);
                       }};
  const std::array calls = {kPersist, kPersistAsync, kPrepare, kWrite, grow, commit};
  const Call& call = calls[GENERATE_COPY(range(std::size_t{0}, calls.size()))];
  CAPTURE(call.what);
  Rig rig;
  rig.w.write(pattern(kSize, 2));
  rig.doors->barrier.shut();
  const auto pending = rig.shelf.persist_async(2);
  rig.doors->barrier.await_someone();
  CHECK(rig.interrupted([&] { call.on(rig); }));
  rig.doors->barrier.open();
  CHECK(pending.get().version == 2);
  rig.check_usable(pattern(kSize, 2), pattern(kSize, 1));
}

TEST_CASE("who waits for another's decision can be interrupted") {
  Rig rig;
  rig.w.write(pattern(kSize, 2));
  rig.shelf.prepare(2);
  rig.doors->barrier.shut();
  Waiter first([&] { rig.shelf.resolve(Decision::commit); });
  rig.doors->barrier.await_someone();
  CHECK(rig.interrupted([&] { rig.shelf.resolve(Decision::abandon); }));
  rig.doors->barrier.open();
  first.join();
  CHECK(rig.shelf.version() == 2);
  rig.check_usable(pattern(kSize, 2), pattern(kSize, 1));
}

TEST_CASE("a wait may look at the shelf, and does not wait for itself") {
  Rig rig;
  Holder holder([&](const auto& stay) {
    Assignment assignment = rig.w.assign();
    stay();
  });
  std::vector<Errc> codes;
  rig.heard = [&] {
    if (!codes.empty()) return;
    CHECK((value(rig.v) == pattern(kSize, 1)));
    for (const Call& call : {kPersist, kDiscard, kCreate, kErase, kWrite}) {
      codes.push_back(code_of([&] { call.on(rig); }));
    }
    CHECK(code_of([&] { rig.shelf.close(); }) == Errc::unsupported);
    holder.let_go();
  };
  rig.shelf.persist(2);
  CHECK(codes == std::vector(5, Errc::unsupported));
  rig.check_usable(pattern(kSize, 1), pattern(kSize, 1));
}

TEST_CASE("a queue whose waiters give up is given to the next of those who stay") {
  WaitQueue room;
  QueueLock lock;
  const Patience patience;
  std::atomic<bool> gives_up_now = false;
  const Patience none([&] {
    if (gives_up_now) throw Interrupted();
  });
  std::string order;
  lock.lock(room, patience);
  std::optional<Waiter> gives_up([&] {
    try {
      lock.lock(room, none);
    } catch (const Interrupted&) {
      order += 'x';
    }
  });
  CHECK(gives_up->waits());
  const auto take = [&](char name) {
    return [&, name] {
      const QueueScope scope(lock, room, patience);
      order += name;
    };
  };
  Waiter first(take('a'));
  CHECK(first.waits());
  Waiter second(take('b'));
  CHECK(second.waits());
  gives_up_now = true;
  gives_up->join();
  lock.unlock(room);
  lock.lock(room, patience);  // who has just let go does not overtake those who wait
  order += 'c';
  lock.unlock(room);
  first.join();
  second.join();
  CHECK(order == "xabc");
}

TEST_CASE("a queue is given on by a waiter to whom it was given while he gave up") {
  const bool someone_waits = GENERATE(false, true);
  CAPTURE(someone_waits);
  WaitQueue room;
  QueueLock lock;
  const Patience patience;
  Door door;
  const Patience none([&] {
    door.pass();
    throw Interrupted();
  });
  lock.lock(room, patience);
  door.shut();
  Waiter gives_up([&] { CHECK_THROWS_AS(lock.lock(room, none), Interrupted); });
  door.await_someone();
  std::optional<Waiter> next;
  if (someone_waits) {
    next.emplace([&] { const QueueScope scope(lock, room, patience); });
    CHECK(next->waits());
  }
  lock.unlock(room);  // to the one who is about to give up
  door.open();
  gives_up.join();
  if (next) next->join();
  const QueueScope scope(lock, room, patience);
}

TEST_CASE("threads that give up again and again keep nobody from a queue") {
  WaitQueue room;
  QueueLock lock;
  int held = 0;  // guarded by it
  const auto work = [&](bool patient) {
    return [&, patient] {
      const Patience patience;
      const Patience none([] { throw Interrupted(); }, std::chrono::milliseconds(0));
      for (int round = 0; round < 2000; ++round) {
        try {
          const QueueScope scope(lock, room, patient ? patience : none);
          ++held;
        } catch (const Interrupted&) {
          --round;
        }
      }
    };
  };
  { Waiter a(work(true)), b(work(false)), c(work(false)); }
  CHECK(held == 6000);
}
