// Nobody stands still for good: a commit beside threads that read without pause, on memory and on
// real files, and calls into the shelf from its own callbacks.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "asleep.hpp"
#include "cached_disk.hpp"
#include "format/format.hpp"
#include "scratch.hpp"
#include "store/fair_mutex.hpp"
#include "store/gate.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::int64_t kSize = 4 * kMiB;
constexpr unsigned kReaders = 3;
constexpr unsigned kCommits = 20;
// A commit asks for a handful of locks, and waits for no more than those before it each time.
constexpr std::uint64_t kMostPerCommit = 60;
constexpr std::uint64_t kMostReads = 6000;  // so that a shelf that starves its writer ends, too

// Threads that call `read` without pause. They stop by themselves after kMostReads.
class Readers {
 public:
  explicit Readers(const std::function<void()>& read) {
    for (std::thread& thread : threads_) {
      thread = std::thread([this, read] {
        while (!stop_ && count_ < kMostReads) {
          read();
          ++count_;
        }
      });
    }
    while (count_ < kReaders) std::this_thread::yield();
  }
  ~Readers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  std::uint64_t count() const { return count_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> count_ = 0;
  std::array<std::thread, kReaders> threads_;
};

void commit_beside_readers(Shelf& shelf, const std::function<void(TensorRef&)>& read) {
  TensorRef tensor = make(shelf, "w", kSize);
  tensor.write(pattern(kSize, 1));
  shelf.persist(1);
  std::uint64_t most = 0;
  {
    Readers readers([&] {
      TensorRef own = tensor;
      read(own);
    });
    for (unsigned commit = 0; commit < kCommits; ++commit) {
      const std::uint64_t before = readers.count();
      tensor.write(pattern(64, commit), 8);
      shelf.persist();
      most = std::max(most, readers.count() - before);
    }
  }
  INFO("reads that went before one assignment and its commit, at most: " << most);
  CHECK(most <= kMostPerCommit);
}

void read_all(TensorRef& tensor) {
  std::vector<std::byte> bytes(kSize);
  tensor.read(bytes);
}

}  // namespace

TEST_CASE("a fair mutex is given in the order in which it was asked for") {
  FairMutex mutex;
  std::string order;
  mutex.lock();
  const auto take = [&](char name) {
    return [&, name] {
      const std::lock_guard lock(mutex);
      order += name;
    };
  };
  Waiter first(take('a'));
  CHECK(first.waits());
  Waiter second(take('b'));
  CHECK(second.waits());
  mutex.unlock();
  mutex.lock();  // who has just let go does not overtake those who wait
  order += 'c';
  mutex.unlock();
  first.join();
  second.join();
  CHECK(order == "abc");
}

TEST_CASE("the gate lets in writers or one commit") {
  constexpr int kRounds = 2'000;
  CommitGate gate;
  std::atomic<bool> stop = false;
  std::atomic<int> writing = 0;
  std::atomic<std::uint64_t> entered = 0;
  std::thread writer([&] {
    while (!stop) {
      const WriterScope scope(gate);
      ++writing;
      ++entered;
      --writing;
    }
  });
  int together = 0;
  for (int round = 0; round < kRounds; ++round) {
    // The writer is on its way in again and again when the gate closes.
    for (const std::uint64_t before = entered; entered < before + 3;) {
      std::this_thread::yield();
    }
    const ClosedGate closed(gate);
    for (int look = 0; look < 100; ++look) together += writing != 0;
  }
  stop = true;
  writer.join();
  CHECK(together == 0);
}

TEST_CASE("threads that read without pause do not hold up a commit") {
  const bool mapped = GENERATE(true, false);
  const Bench bench(64 * kMiB, mapped);
  Shelf shelf = bench.open();
  SECTION("by read") { commit_beside_readers(shelf, read_all); }
  SECTION("by read_committed") {
    commit_beside_readers(shelf, [](TensorRef& tensor) {
      std::vector<std::byte> bytes(kSize);
      tensor.read_committed(bytes);
    });
  }
}

TEST_CASE("the same on real files") {
  const bool memory = GENERATE(true, false);
  const scratch::Directory folder(memory ? "/dev/shm" : std::filesystem::temp_directory_path());
  Shelf shelf = Shelf::open(folder / "run.shelf");
  commit_beside_readers(shelf, read_all);
}

TEST_CASE("a commit does not wait for the end of verify()") {
  const Bench bench(64 * kMiB, GENERATE(true, false));
  Shelf shelf = bench.open();
  make(shelf, "a", kSize).write(pattern(kSize, 1));
  make(shelf, "b", kSize).write(pattern(kSize, 2));
  shelf.persist(1);
  TensorRef b = shelf.find("b").value();
  bool committed = false;
  const VerifyReport report = shelf.verify([&](std::uint64_t, std::uint64_t) {
    if (committed) return;
    b.write(pattern(kSize, 3));
    // A limit for the case that it is wrong: right, it does not take a moment.
    const auto commit = shelf.persist_async(2);
    committed = commit.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    REQUIRE(committed);
  });
  CHECK(committed);
  CHECK(report.damage.empty());
  CHECK(report.tensors == 2);
  CHECK(report.chunks == 8);
}

TEST_CASE("a progress callback may call into the shelf") {
  const Bench bench;
  Shelf shelf = bench.open();
  make(shelf, "a", kSize).write(pattern(kSize, 1));
  shelf.persist(1);
  TensorRef a = shelf.find("a").value();
  std::uint64_t calls = 0;
  static_cast<void>(shelf.verify([&](std::uint64_t done, std::uint64_t total) {
    ++calls;
    CHECK(done <= total);
    CHECK(shelf.info().tensors >= 1);
    CHECK(value(a).size() == kSize);
    make(shelf, "n" + std::to_string(calls), 100).write(pattern(100, 2));
    a.write(pattern(16, 3), 16);
    CHECK(shelf.verify().damage.empty());
    shelf.erase("n" + std::to_string(calls));
    if (calls > 1) shelf.persist();
  }));
  CHECK(calls >= 4);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("verify() beside tensors that come and go") {
  const Bench bench;
  Shelf shelf = bench.open();
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 64; ++i) make(shelf, "t" + std::to_string(i), 0);
    shelf.persist();
    std::atomic<bool> stop = false;
    std::thread verifier([&] {
      while (!stop) static_cast<void>(shelf.verify());
    });
    for (int i = 0; i < 64; ++i) shelf.erase("t" + std::to_string(i));
    stop = true;
    verifier.join();
    shelf.persist();
  }
  CHECK(shelf.info().tensors == 0);
}

TEST_CASE("a shelf may be closed by another thread in the middle of reading and verifying it") {
  const Bench bench;
  Shelf shelf = bench.open();
  make(shelf, "a", kSize).write(pattern(kSize, 1));
  shelf.persist(1);
  const TensorRef a = shelf.find("a").value();
  std::atomic<unsigned> started = 0;
  std::array<std::thread, 2> threads;
  std::array<Errc, 2> ends{};
  const auto until_closed = [&](unsigned index, const std::function<void()>& call) {
    threads[index] = std::thread([&started, &end = ends[index], call] {
      try {
        for (++started;;) call();
      } catch (const Error& error) {
        end = error.code();
      }
    });
  };
  until_closed(0, [&] { static_cast<void>(value(a)); });
  until_closed(1, [&] { static_cast<void>(shelf.verify()); });
  while (started < 2) std::this_thread::yield();
  shelf.close();
  for (std::thread& thread : threads) thread.join();
  CHECK(ends[0] == Errc::closed);
  CHECK(ends[1] == Errc::closed);
}

// ---- who waits at the gate finds another shelf behind it ----------------------------------------

namespace {

struct Waited {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
  Waited() {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  Shelf open() const {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = Mode::update});
  }
};

std::function<void()> change(bool commits, Shelf& shelf, TensorRef& tensor) {
  return [commits, &shelf, &tensor] {
    commits ? static_cast<void>(shelf.persist()) : tensor.write(pattern(kMiB, 3));
  };
}

}  // namespace

TEST_CASE("who waits for a commit that fails is told so, and changes nothing") {
  const bool commits = GENERATE(true, false);
  CAPTURE(commits);
  const Waited waited;
  Shelf shelf = waited.open();
  TensorRef w = make(shelf, "w", kSize);
  w.write(pattern(kSize, 1));
  shelf.persist();
  w.write(pattern(kMiB, 2));
  std::optional<Shelf> rival;  // whom the commit gives way to: the medium itself works on
  std::optional<Error> error;
  std::optional<Waiter> waiter;
  bool waits = false;
  bool met = false;
  waited.disk->barrier_fails = [&](unsigned) {
    if (std::exchange(met, true)) return false;  // once, not for the rival's own
    rival.emplace(waited.open());
    waiter.emplace([&] { error = error_of(change(commits, shelf, w)); });
    waits = waiter->waits();
    return false;
  };
  CHECK(code_of([&] { shelf.persist(); }) == Errc::busy);
  REQUIRE(waiter);
  waiter->join();
  CHECK(waits);
  REQUIRE(error);
  CHECK(error->code() == Errc::failed);
  CHECK(rival->version() == 1);
}

TEST_CASE("who waits while the shelf is closed is told so") {
  const bool commits = GENERATE(true, false);
  CAPTURE(commits);
  const Waited waited;
  Shelf shelf = waited.open();
  TensorRef w = make(shelf, "w", kSize);
  w.write(pattern(kSize, 1));
  shelf.persist();
  TensorRef other = w;
  std::atomic<bool> inside = false;
  std::atomic<bool> go = false;
  std::atomic<bool> armed = true;
  waited.disk->on_read = [&](std::uint64_t at) {
    if (at >= format::kHeapAt && armed.exchange(false)) {
      inside = true;
      while (!go) std::this_thread::yield();
    }
    return true;
  };
  // A writer within, whom close() waits for at the gate, which it has taken.
  Waiter writer([&] { other.write(pattern(8, 2), 100); });
  while (!inside) std::this_thread::yield();
  Waiter closer([&] { shelf.close(); });
  CHECK(closer.waits());
  std::optional<Error> error;
  Waiter waiter([&] { error = error_of(change(commits, shelf, w)); });
  CHECK(waiter.waits());
  go = true;
  writer.join();
  closer.join();
  waiter.join();
  REQUIRE(error);
  CHECK(error->code() == Errc::closed);
}
