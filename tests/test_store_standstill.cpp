// Nobody stands still for good: a commit beside threads that read without pause, on memory and on
// real files, and calls into the shelf from its own callbacks.
#include <algorithm>
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
#include "store/threads/fair_mutex.hpp"
#include "store/threads/gate.hpp"
#include "store/threads/use_count.hpp"
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

// How many reads went before one assignment and its commit, for each of them, in rising order.
std::vector<std::uint64_t> reads_before_commits(Shelf& shelf,
                                                const std::function<void(TensorRef&)>& read) {
  TensorRef tensor = make(shelf, "w", kSize);
  tensor.write(pattern(kSize, 1));
  shelf.persist(1);
  std::vector<std::uint64_t> counts;
  {
    Readers readers([&] {
      TensorRef own = tensor;
      read(own);
    });
    for (unsigned commit = 0; commit < kCommits; ++commit) {
      const std::uint64_t before = readers.count();
      tensor.write(pattern(64, commit), 8);
      shelf.persist();
      counts.push_back(readers.count() - before);
    }
  }
  std::sort(counts.begin(), counts.end());
  return counts;
}

void commit_beside_readers(Shelf& shelf, const std::function<void(TensorRef&)>& read) {
  CHECK(reads_before_commits(shelf, read).back() <= kMostPerCommit);
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
      const WriterScope scope(gate, Patience());
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
    const ClosedGate closed(gate, Patience());
    for (int look = 0; look < 100; ++look) together += writing != 0;
  }
  stop = true;
  writer.join();
  CHECK(together == 0);
}

TEST_CASE("who has just opened the gate does not overtake those who wait to close it") {
  const Patience patience;
  CommitGate gate;
  std::string order;
  gate.close(patience);
  Waiter other([&] {
    const ClosedGate closed(gate, patience);
    order += 'a';
  });
  CHECK(other.waits());
  gate.open();
  gate.close(patience);
  order += 'b';
  gate.open();
  other.join();
  CHECK(order == "ab");
}

TEST_CASE("closing keeps new uses out, and waits for the last of those inside") {
  UseCount uses;
  CHECK(uses.enter());
  CHECK(uses.enter());
  Waiter closer([&] { uses.close(); });
  CHECK(closer.waits());
  CHECK_FALSE(uses.enter());
  uses.leave();
  CHECK(closer.waits());
  uses.leave();
  closer.join();
  CHECK_FALSE(uses.enter());
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
  // Now and then a flush takes a drive long, and reads go on meanwhile.
  CHECK(reads_before_commits(shelf, read_all)[kCommits / 2] <= kMostPerCommit);
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

struct Call {
  const char* what;
  void (*on)(Shelf& shelf, TensorRef& w);
};
constexpr Call kPersist = {"persist", [](Shelf& shelf, TensorRef&) { shelf.persist(); }};
constexpr Call kPersistAsync = {"persist_async",
                                [](Shelf& shelf, TensorRef&) { shelf.persist_async().get(); }};
constexpr Call kWrite = {"write", [](Shelf&, TensorRef& w) { w.write(pattern(kMiB, 3)); }};
constexpr Call kCreate = {"create", [](Shelf& shelf, TensorRef&) { make(shelf, "x", kMiB); }};
constexpr Call kReplace = {"replace", [](Shelf& shelf, TensorRef&) {
                             shelf.replace("w", DType::uint8, std::vector<std::int64_t>{kMiB});
                           }};
constexpr Call kErase = {"erase", [](Shelf& shelf, TensorRef&) { shelf.erase("w"); }};
// The first read of the heap waits within it until it is let go.
class HeldRead {
 public:
  explicit HeldRead(CachedDisk& disk) {
    disk.on_read = [this](std::uint64_t at) {
      if (at >= format::kHeapAt && armed_.exchange(false)) {
        inside_ = true;
        while (!go_) std::this_thread::yield();
      }
      return true;
    };
  }
  void await() const {
    while (!inside_) std::this_thread::yield();
  }
  void let_go() { go_ = true; }

 private:
  std::atomic<bool> armed_ = true;
  std::atomic<bool> inside_ = false;
  std::atomic<bool> go_ = false;
};

}  // namespace

TEST_CASE("who waits for a commit that fails is told so, and changes nothing") {
  const Call call = GENERATE(kPersist, kPersistAsync, kWrite);
  CAPTURE(call.what);
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
    waiter.emplace([&] { error = error_of([&] { call.on(shelf, w); }); });
    waits = waiter->waits();
    rival.emplace(waited.open());
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
  const Call call = GENERATE(kPersist, kPersistAsync, kWrite, kCreate, kReplace, kErase);
  CAPTURE(call.what);
  const Waited waited;
  Shelf shelf = waited.open();
  TensorRef w = make(shelf, "w", kSize);
  w.write(pattern(kSize, 1));
  shelf.persist();
  TensorRef other = w;
  HeldRead held(*waited.disk);
  // A writer within, whom close() waits for at the gate, which it has taken.
  Waiter writer([&] { other.write(pattern(8, 2), 100); });
  held.await();
  Waiter closer([&] { shelf.close(); });
  CHECK(closer.waits());
  std::optional<Error> error;
  Waiter waiter([&] { error = error_of([&] { call.on(shelf, w); }); });
  CHECK(waiter.waits());
  held.let_go();
  writer.join();
  closer.join();
  waiter.join();
  REQUIRE(error);
  CHECK(error->code() == Errc::closed);
  shelf = waited.open();
  CHECK(shelf.version() == 1);
  CHECK(value(shelf.find("w").value()) == pattern(kSize, 1));
  CHECK(shelf.names().size() == 1);
}

TEST_CASE("two threads may close a shelf, and it is closed when either returns") {
  const Waited waited;
  Shelf shelf = waited.open();
  TensorRef w = make(shelf, "w", kSize);
  w.write(pattern(kSize, 1));
  shelf.persist_async().get();  // there is a thread to end, too
  HeldRead held(*waited.disk);
  Waiter writer([&] { w.write(pattern(8, 2), 100); });
  held.await();
  std::array<bool, 2> closed{};
  Waiter first([&] {
    shelf.close();
    closed[0] = shelf.closed();
  });
  CHECK(first.waits());
  Waiter second([&] {
    shelf.close();
    closed[1] = shelf.closed();
  });
  CHECK(second.waits());
  held.let_go();
  writer.join();
  first.join();
  second.join();
  CHECK(closed == std::array{true, true});
  CHECK(waited.open().version() == 1);
}

TEST_CASE("who reads while the shelf is closed is waited for, and reads to the end") {
  struct Read {
    const char* what;
    std::vector<std::byte> (*of)(const TensorRef& w);
  };
  const Read read =
      GENERATE(Read{"read", [](const TensorRef& w) { return value(w); }},
               Read{"read_committed", [](const TensorRef& w) { return value(w, true); }},
               Read{"lease", [](const TensorRef& w) {
                      const Lease lease = w.lease();
                      return std::vector<std::byte>(lease.bytes().begin(), lease.bytes().end());
                    }});
  CAPTURE(read.what);
  const Waited waited;
  Shelf shelf = waited.open();
  TensorRef w = make(shelf, "w", kSize);
  w.write(pattern(kSize, 1));
  shelf.persist();
  HeldRead held(*waited.disk);
  std::optional<std::vector<std::byte>> bytes;
  Waiter reader([&] { bytes = read.of(w); });
  held.await();
  Waiter closer([&] { shelf.close(); });
  CHECK(closer.waits());
  CHECK(code_of([&] { value(w); }) == Errc::closed);  // nobody comes in any more
  held.let_go();
  reader.join();
  closer.join();
  CHECK(bytes == pattern(kSize, 1));
}
