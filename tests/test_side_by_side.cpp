// Assignments that several threads copy: each part once, whatever fails; and the tensor is as if
// one had done it.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/side_by_side.hpp"
#include "scratch.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// With the one that ThreadSanitizer adds when the first is started.
std::ptrdiff_t threads_there() {
  static const bool started = (std::thread([] {}).join(), true);
  REQUIRE(started);
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// The kernel forgets a thread a moment after it was joined.
bool soon_there_are(std::ptrdiff_t threads) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (threads_there() > threads && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  return threads_there() <= threads;
}

// Small tensors are shared too, while it lives.
struct SharedFrom {
  explicit SharedFrom(std::uint64_t bytes_each) { sharing.bytes_each = bytes_each; }
  ~SharedFrom() { sharing = {}; }
};

// No thread can be started while it lives: its stack would need more addresses than there are.
class ThreadsDenied {
 public:
  ThreadsDenied() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_getattr_default_np(&huge);
    REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47) == 0);
    REQUIRE(::pthread_setattr_default_np(&huge) == 0);
    ::pthread_attr_destroy(&huge);
  }
  ~ThreadsDenied() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

// Of data, not of pages: which of its writes fails, and how; and who writes.
struct Watch {
  std::atomic<int> fails_at = -1;
  Errc failure = Errc::io;
  std::atomic<int> writes = 0;
  unsigned meeting = 0;  // so many threads wait for each other in their first writes
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> threads;
};

class WatchedMedium final : public SharedMedium {
 public:
  WatchedMedium(std::shared_ptr<Medium> medium, Watch& watch, bool mapped)
      : SharedMedium(std::move(medium), mapped), watch_(watch) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    if (bytes.size() == kChunkBytes) {
      {
        std::unique_lock lock(watch_.mutex);
        watch_.threads.insert(std::this_thread::get_id());
        watch_.changed.notify_all();
        watch_.changed.wait_for(lock, std::chrono::seconds(60),
                                [&] { return watch_.threads.size() >= watch_.meeting; });
      }
      if (watch_.writes++ == watch_.fails_at) throw Error(watch_.failure, "told to fail", "None.");
    }
    return SharedMedium::write(at, bytes, seed);
  }

 private:
  Watch& watch_;
};

constexpr std::size_t kBytes = 6 * kMiB + 1000;

// A shelf at version 1, with a tensor of pattern 1.
struct Rig {
  std::shared_ptr<Medium> medium = make_memory_medium(0, 256 * kMiB);
  Watch watch;
  const bool mapped;
  std::optional<Shelf> shelf;
  std::optional<TensorRef> w;

  explicit Rig(unsigned threads)
      : Rig(threads, kBytes, GENERATE(true, false),
            GENERATE(Placement::whole, Placement::by_chunk)) {}
  Rig(unsigned threads, std::size_t size, bool is_mapped, Placement placement) : mapped(is_mapped) {
    Shelf::format(*medium);
    shelf.emplace(Shelf::open(std::make_unique<WatchedMedium>(medium, watch, mapped),
                              {.mode = Mode::update, .placement = placement, .threads = threads}));
    w = make(*shelf, "w", static_cast<std::int64_t>(size));
    w->write(pattern(size, 1));
    shelf->persist(1);
    watch.writes = 0;
    watch.threads.clear();
  }
  void check_reopened(const std::vector<std::byte>& expected) {
    shelf.reset();
    const Shelf again = Shelf::open(std::make_unique<SharedMedium>(medium, mapped),
                                    {.mode = Mode::read, .verify = Verify::on_open});
    CHECK((value(again.find("w").value()) == expected));
  }
};

}  // namespace

TEST_CASE("each part is done once") {
  const unsigned threads = GENERATE(0U, 1U, 2U, 5U, 64U, 1000U);
  const std::size_t parts = GENERATE(0, 1, 2, 7, 1000);
  const auto before = threads_there();
  std::vector<std::atomic<int>> done(parts);
  auto job = [&](std::size_t part) { ++done[part]; };
  side_by_side(threads, parts, PartJob(job));
  CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
  CHECK(soon_there_are(before));
}

TEST_CASE("after a failure no part is begun, and the caller hears of it") {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> begun = 0;
  SECTION("its own") {
    auto job = [&](std::size_t part) {
      ++begun;
      if (part == 3) throw std::runtime_error("three");
    };
    CHECK_THROWS_WITH(side_by_side(1, 100, PartJob(job)), "three");
    CHECK(begun == 4);
  }
  SECTION("another thread's") {
    std::atomic<pid_t> other = 0;
    auto job = [&](std::size_t) {
      ++begun;
      if (std::this_thread::get_id() != caller) {
        other = ::gettid();
        throw std::runtime_error("a helper's");
      }
      while (other == 0 || std::filesystem::exists("/proc/self/task/" + std::to_string(other))) {
        std::this_thread::yield();
      }
    };
    CHECK_THROWS_WITH(side_by_side(2, 100, PartJob(job)), "a helper's");
    CHECK(begun <= 2);
  }
}

TEST_CASE("where no thread can be started the caller does it all") {
  std::vector<int> done(100);
  std::set<std::thread::id> threads;
  auto job = [&](std::size_t part) {
    ++done[part];
    threads.insert(std::this_thread::get_id());
  };
  const ThreadsDenied denied;
  REQUIRE_THROWS_AS(std::thread([] {}).join(), std::system_error);
  side_by_side(5, done.size(), PartJob(job));
  CHECK(std::count(done.begin(), done.end(), 1) == 100);
  CHECK(threads == std::set{std::this_thread::get_id()});
}

TEST_CASE("helpers hear of their own faults alone, and the caller of what it did") {
  sigset_t own;  // what the caller does not want to hear stays unheard
  ::sigemptyset(&own);
  ::sigaddset(&own, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &own, nullptr);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  const auto caller = std::this_thread::get_id();
  sigset_t others;
  ::sigemptyset(&others);
  std::barrier both(2);
  auto job = [&](std::size_t) {
    both.arrive_and_wait();  // one each
    if (std::this_thread::get_id() != caller) ::pthread_sigmask(SIG_BLOCK, nullptr, &others);
  };
  side_by_side(2, 2, PartJob(job));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM}) {
    CAPTURE(signal);
    CHECK(::sigismember(&others, signal) == 1);
  }
  for (const int signal : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) {
    CAPTURE(signal);
    CHECK(::sigismember(&others, signal) == 0);
  }
  sigset_t after;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    CHECK(::sigismember(&after, signal) == ::sigismember(&before, signal));
  }
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
}

TEST_CASE("an assignment is the same, whoever copied it") {
  const unsigned threads = GENERATE(0U, 1U, 2U, 5U, 64U);
  if (kSanitized && threads > 2) return;  // the same code, some times more
  const SharedFrom from(kMiB);
  Rig rig(threads);
  const auto before = threads_there();
  auto expected = pattern(kBytes, 2);
  rig.w->write(expected);
  CHECK((value(*rig.w) == expected));
  CHECK(rig.shelf->persist(2).data_bytes == kBytes);
  std::minstd_rand random(threads);
  for (unsigned n = 0; n < rounds(12); ++n) {  // parts, over what is committed and what is not
    const std::size_t at = random() % (kBytes - 1);
    const auto part = pattern(1 + random() % (kBytes - at), 3 + n);
    CAPTURE(at, part.size());
    std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
    rig.w->write(part, at);
    if (n % 3 == 0) rig.shelf->persist();
  }
  CHECK((value(*rig.w) == expected));
  rig.shelf->persist();
  CHECK(rig.shelf->verify().damage.empty());
  CHECK(soon_there_are(before));
  rig.check_reopened(expected);
}

TEST_CASE("two threads copy from 16 MiB on, and no more than were asked for") {
  const auto copied_by = [](unsigned threads, std::size_t size, unsigned meeting) {
    Rig rig(threads, size, true, Placement::whole);
    rig.watch.meeting = meeting;
    rig.w->write(pattern(size, 2));
    CHECK((value(*rig.w) == pattern(size, 2)));
    return rig.watch.threads;
  };
  const std::set alone = {std::this_thread::get_id()};
  CHECK(copied_by(64, 16 * kMiB - 1, 0) == alone);
  CHECK(copied_by(1, 16 * kMiB, 0) == alone);
  CHECK(copied_by(2, 16 * kMiB, 2).size() == 2);
  CHECK(copied_by(2, 24 * kMiB, 2).size() == 2);
  CHECK(copied_by(64, 24 * kMiB, 3).size() == 3);
}

TEST_CASE("a write that fails in the midst of them: as before, or spoiled") {
  const unsigned threads = GENERATE(1U, 2U, 5U);
  const int fails_at = GENERATE(0, 3, 5);
  if (kSanitized && (threads != 2 || fails_at == 5)) return;
  const SharedFrom from(kMiB);
  Rig rig(threads);
  const auto first = pattern(kBytes, 1);
  const auto second = pattern(kBytes, 2);

  SECTION("of the source") {
    rig.watch.failure = Errc::corrupt;
    rig.watch.fails_at = fails_at;
    CHECK(code_of([&] { rig.w->write(second); }) == Errc::corrupt);
    CHECK((value(*rig.w) == first));
    CHECK_FALSE(rig.shelf->has_uncommitted());
    rig.shelf->persist(2);
    rig.w->write(second, 0);
    CHECK((value(*rig.w) == second));
    rig.shelf->persist(3);
    rig.check_reopened(second);
  }
  SECTION("of the source, over a value of the same attempt") {
    rig.w->write(pattern(10, 5), 3 * kMiB);
    rig.watch.failure = Errc::corrupt;
    rig.watch.fails_at = rig.watch.writes + fails_at;
    CHECK(code_of([&] { rig.w->write(second); }) == Errc::corrupt);
    if (threads > 1 || fails_at >= 3) {
      CHECK(code_of([&] { value(*rig.w); }) == Errc::spoiled);
      CHECK(code_of([&] { rig.shelf->persist(2); }) == Errc::spoiled);
    }
    CHECK((value(*rig.w, true) == first));
    rig.w->write(second);
    CHECK((value(*rig.w) == second));
    rig.shelf->persist(2);
    rig.check_reopened(second);
  }
  SECTION("of the medium") {
    rig.watch.fails_at = fails_at;
    CHECK(code_of([&] { rig.w->write(second); }) == Errc::io);
    CHECK((value(*rig.w, true) == first));
    CHECK(code_of([&] { rig.w->write(second); }) == Errc::failed);  // I8
    CHECK(code_of([&] { rig.shelf->persist(2); }) == Errc::failed);
    rig.check_reopened(first);
  }
}

TEST_CASE("of several threads' failures the one is told that the others followed from") {
  const SharedFrom from(kMiB);
  sharing.share = [](unsigned, std::size_t parts, PartJob job) {  // whose last is kept
    std::exception_ptr last;
    for (std::size_t part = 0; part < parts; ++part) {
      try {
        job(part);
      } catch (...) {
        last = std::current_exception();
      }
    }
    if (last) std::rethrow_exception(last);
  };
  Rig rig(2);
  rig.watch.fails_at = 1;
  const auto second = pattern(kBytes, 2);
  CHECK(code_of([&] { rig.w->write(second); }) == Errc::io);
  CHECK(code_of([&] { rig.w->write(second); }) == Errc::failed);
}

TEST_CASE("so many threads cannot be asked for") {
  const scratch::Directory folder;
  const auto path = folder / "a.shelf";
  const unsigned good = GENERATE(0U, 1U, 64U);
  Shelf::open(path, {.mode = Mode::create, .threads = good}).close();
  for (const unsigned bad : {65U, ~0U}) {
    for (const Mode mode : {Mode::replace, Mode::append, Mode::update, Mode::read}) {
      const auto error = error_of([&] { Shelf::open(path, {.mode = mode, .threads = bad}); });
      REQUIRE(error);
      CHECK(error->code() == Errc::bad_argument);
      CHECK(contains(error->what(), "threads=" + std::to_string(bad)));
      CHECK(contains(error->remedy(), "64"));
    }
    Bench bench;
    CHECK(code_of([&] {
            Shelf::open(std::make_unique<SharedMedium>(bench.medium),
                        {.mode = Mode::update, .threads = bad});
          }) == Errc::bad_argument);
  }
  CHECK_FALSE(Shelf::open(path, {.mode = Mode::read, .threads = good}).info().writable);
  CHECK(Shelf::open(path, {.mode = Mode::update, .threads = good}).info().incarnation == 3);
}
