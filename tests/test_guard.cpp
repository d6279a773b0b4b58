// The guard around every medium, on a medium that fails when it is told to: a failure is thrown,
// sticks (I8), names its cause, and leaves reading alone; places are checked; counters count.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <stdexcept>
#include <tensorshelf/error.hpp>
#include <utility>

#include "catch.hpp"
#include "forwarding_medium.hpp"
#include "media/media.hpp"
#include "media/memory/medium.hpp"
#include "thrown.hpp"

namespace tensorshelf {
namespace {

using testing::ForwardingMedium;

enum class Thrown { error, foreign, no_memory };
enum class Verb { none, write, wait, barrier, store_word, reserve, shrink };

struct Script {
  Verb fails = Verb::none;
  Errc code = Errc::io;
  Thrown thrown = Thrown::error;
  int calls = 0;  // that reached the medium, reading apart
};

class ScriptedMedium final : public ForwardingMedium {
 public:
  explicit ScriptedMedium(Script& script)
      : ForwardingMedium(make_memory_medium(16 * kPageBytes, 64 * kPageBytes)), script_(script) {}

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    run(Verb::write);
    return ForwardingMedium::write(at, bytes, seed);
  }
  void wait(const Ticket& ticket) override {
    run(Verb::wait);
    ForwardingMedium::wait(ticket);
  }
  void barrier() override {
    run(Verb::barrier);
    ForwardingMedium::barrier();
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    run(Verb::store_word);
    ForwardingMedium::store_word(at, word);
  }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    run(Verb::reserve);
    return ForwardingMedium::reserve(size_bytes);
  }
  std::uint64_t shrink(std::uint64_t size_bytes) override {
    run(Verb::shrink);
    return ForwardingMedium::shrink(size_bytes);
  }

 private:
  void run(Verb verb) {
    ++script_.calls;
    if (script_.fails != verb) return;
    script_.fails = Verb::none;  // the device works again: the guard must refuse all the same
    if (script_.thrown == Thrown::foreign) throw std::runtime_error("out of luck");
    if (script_.thrown == Thrown::no_memory) throw std::bad_alloc();  // instead of its error
    throw Error(script_.code, "cannot write 4096 bytes at offset 8192", "replace the disk",
                ENODATA);
  }

  Script& script_;
};

void call(Medium& medium, Verb verb) {
  const std::vector<std::byte> page(kPageBytes);
  switch (verb) {
    case Verb::none:
      return;
    case Verb::write:
      medium.write(kPageBytes, page, 0);
      return;
    case Verb::wait:
      medium.wait({});
      return;
    case Verb::barrier:
      medium.barrier();
      return;
    case Verb::store_word:
      medium.store_word(8, 1);
      return;
    case Verb::reserve:
      medium.reserve(32 * kPageBytes);
      return;
    case Verb::shrink:
      medium.shrink(8 * kPageBytes);
      return;
  }
}

constexpr Verb kVerbs[] = {Verb::write, Verb::wait, Verb::barrier, Verb::store_word, Verb::reserve};

TEST_CASE("after one failure, whichever, every later write is refused and names it") {
  for (const Verb first : kVerbs) {
    for (const Thrown thrown : {Thrown::error, Thrown::foreign, Thrown::no_memory}) {
      INFO("verb " << static_cast<int>(first) << " thrown " << static_cast<int>(thrown));
      Script script;
      GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
      script.fails = first;
      script.thrown = thrown;
      const char* reason = "offset 8192";
      if (thrown == Thrown::error) {
        REQUIRE_THROWS_AS(call(medium, first), Error);
      } else if (thrown == Thrown::foreign) {
        REQUIRE_THROWS_AS(call(medium, first), std::runtime_error);
        reason = "out of luck";
      } else {
        REQUIRE_THROWS_AS(call(medium, first), std::bad_alloc);
        reason = "bad_alloc";
      }
      REQUIRE(medium.failed());
      const int calls = script.calls;
      for (const Verb later : {Verb::write, Verb::wait, Verb::barrier, Verb::store_word,
                               Verb::reserve, Verb::shrink}) {
        try {
          call(medium, later);
          FAIL("a failed medium took verb " << static_cast<int>(later));
        } catch (const Error& error) {
          const std::string what = error.what();
          REQUIRE(error.code() == Errc::failed);
          REQUIRE(what.find(reason) != std::string::npos);
          REQUIRE(error.remedy().find("Reopen") != std::string::npos);
          REQUIRE(error.os_error() == (thrown == Thrown::error ? ENODATA : 0));
        }
      }
      REQUIRE(script.calls == calls);  // nothing reached the medium again
    }
  }
}

TEST_CASE("a failed medium can still be read") {
  Script script;
  GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
  const std::vector<std::byte> page(kPageBytes, std::byte{7});
  medium.wait(medium.write(0, page, 0));
  script.fails = Verb::barrier;
  REQUIRE_THROWS_AS(medium.barrier(), Error);
  std::vector<std::byte> found(kPageBytes);
  medium.read(0, found);
  REQUIRE(found == page);
  REQUIRE(medium.view({0, kPageBytes})[9] == std::byte{7});
  REQUIRE(medium.promises().medium == "memory");
  REQUIRE(medium.size() == 16 * kPageBytes);
}

TEST_CASE("what a writer adds to the file can be read once its size was asked for") {
  auto inner = make_memory_medium(16 * kPageBytes, 64 * kPageBytes);
  Medium& file = *inner;
  GuardedMedium medium(std::move(inner));
  file.reserve(32 * kPageBytes);
  std::vector<std::byte> found(kPageBytes);
  REQUIRE_THROWS_AS(medium.read(20 * kPageBytes, found), Error);
  REQUIRE(medium.size() == 32 * kPageBytes);
  REQUIRE_NOTHROW(medium.read(20 * kPageBytes, found));
}

TEST_CASE("the first failure is the one that is named") {
  Script script;
  GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
  script.fails = Verb::write;
  REQUIRE_THROWS_WITH(call(medium, Verb::write), "cannot write 4096 bytes at offset 8192");
  for (int n = 0; n < 2; ++n) {
    REQUIRE_THROWS_WITH(medium.barrier(),
                        "an earlier write failed: cannot write 4096 bytes at offset 8192");
  }
}

TEST_CASE("a full medium is not a failed one") {
  Script script;
  GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
  script.fails = Verb::reserve;
  script.code = Errc::full;
  REQUIRE_THROWS_AS(call(medium, Verb::reserve), Error);
  REQUIRE_FALSE(medium.failed());
  for (const Verb verb : kVerbs) REQUIRE_NOTHROW(call(medium, verb));
}

TEST_CASE("a medium that cannot be made shorter is not a failed one") {
  for (const Thrown thrown : {Thrown::error, Thrown::foreign, Thrown::no_memory}) {
    Script script;
    GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
    script.fails = Verb::shrink;
    script.thrown = thrown;
    REQUIRE_THROWS(call(medium, Verb::shrink));
    REQUIRE_FALSE(medium.failed());
    std::vector<std::byte> found(kPageBytes);
    REQUIRE_NOTHROW(medium.read(15 * kPageBytes, found));
    for (const Verb verb : kVerbs) REQUIRE_NOTHROW(call(medium, verb));
    REQUIRE_NOTHROW(call(medium, Verb::shrink));
    REQUIRE(medium.size() == 8 * kPageBytes);
  }
}

TEST_CASE("beyond the end of a medium that was made shorter nothing is read") {
  Script script;
  GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
  const MediumCounters before = medium.counters();
  REQUIRE(medium.shrink(8 * kPageBytes) == 8 * kPageBytes);
  REQUIRE(script.calls == 1);
  const MediumCounters after = medium.counters();
  REQUIRE(after.writes + after.words + after.barriers + after.reads ==
          before.writes + before.words + before.barriers + before.reads);
  std::vector<std::byte> found(kPageBytes);
  REQUIRE_NOTHROW(medium.read(7 * kPageBytes, found));
  REQUIRE(testing::code_of([&] { medium.read(8 * kPageBytes, found); }) == Errc::corrupt);
  REQUIRE(testing::code_of([&] { medium.look(8 * kPageBytes, found); }) == Errc::corrupt);
  REQUIRE(testing::code_of([&] { (void)medium.view({8 * kPageBytes, 1}); }) == Errc::corrupt);
  REQUIRE(medium.reserve(9 * kPageBytes) == 9 * kPageBytes);
  REQUIRE_NOTHROW(medium.read(8 * kPageBytes, found));
}

struct Fixed final : ForwardingMedium {
  using ForwardingMedium::ForwardingMedium;
  std::uint64_t shrink(std::uint64_t size_bytes) override { return Medium::shrink(size_bytes); }
};

TEST_CASE("the place says which medium is made shorter, and one of a fixed size stays") {
  GuardedMedium media(make_memory_medium(16 * kPageBytes, 16 * kPageBytes));
  media.attach(2, make_memory_medium(16 * kPageBytes, 16 * kPageBytes));
  media.attach(3, std::make_unique<Fixed>(make_memory_medium(16 * kPageBytes, 16 * kPageBytes)));
  REQUIRE(media.shrink(place_on(2, 4 * kPageBytes)) == place_on(2, 4 * kPageBytes));
  REQUIRE(media.shrink(place_on(3, 4 * kPageBytes)) == place_on(3, 16 * kPageBytes));
  REQUIRE(media.size_of(0) == 16 * kPageBytes);
  REQUIRE(media.size_of(2) == 4 * kPageBytes);
  REQUIRE(media.size_of(3) == 16 * kPageBytes);
  std::vector<std::byte> found(kPageBytes);
  REQUIRE_NOTHROW(media.read(15 * kPageBytes, found));
  REQUIRE(testing::code_of([&] { media.read(place_on(2, 4 * kPageBytes), found); }) ==
          Errc::corrupt);
  REQUIRE_NOTHROW(media.read(place_on(3, 15 * kPageBytes), found));
}

TEST_CASE("a mirror that cannot be made shorter is longer than what it mirrors") {
  for (const Thrown thrown : {Thrown::error, Thrown::foreign, Thrown::no_memory}) {
    Script script;
    GuardedMedium media(make_memory_medium(16 * kPageBytes, 64 * kPageBytes));
    media.attach(1, std::make_unique<ScriptedMedium>(script));
    media.mirror(0, 1, 0);
    script.fails = Verb::shrink;
    script.thrown = thrown;
    REQUIRE(media.shrink(8 * kPageBytes) == 8 * kPageBytes);
    REQUIRE(script.fails == Verb::none);
    REQUIRE(media.size_of(0) == 8 * kPageBytes);
    REQUIRE(media.size_of(1) == 16 * kPageBytes);
    REQUIRE(media.mirror_uncut(0));
    REQUIRE_FALSE(media.failed());
    REQUIRE(media.reserve(12 * kPageBytes) >= 12 * kPageBytes);
    for (const Verb verb : kVerbs) REQUIRE_NOTHROW(call(media, verb));
    REQUIRE(media.shrink(8 * kPageBytes) == 8 * kPageBytes);
    REQUIRE(media.size_of(1) == 8 * kPageBytes);
    REQUIRE_FALSE(media.mirror_uncut(0));
    REQUIRE_FALSE(media.mirror_uncut(2));  // there is none
  }
}

TEST_CASE("memory that is locked stays, with all that is in it") {
  const auto medium = make_memory_medium(16 * kPageBytes, 16 * kPageBytes);
  const std::vector<std::byte> page(kPageBytes, std::byte{7});
  medium->write(12 * kPageBytes, page, 0);
  const auto view = medium->view({12 * kPageBytes, kPageBytes});
  if (::mlock(view.data(), view.size()) != 0) {
    WARN("skipped: memory that is locked (ulimit -l)");
    return;
  }
  REQUIRE(testing::code_of([&] { medium->shrink(8 * kPageBytes); }) == Errc::io);
  REQUIRE(medium->size() == 16 * kPageBytes);
  REQUIRE(std::equal(view.begin(), view.end(), page.begin()));
  medium->write(13 * kPageBytes, page, 0);
  ::munlock(view.data(), view.size());
  REQUIRE(medium->shrink(8 * kPageBytes) == 8 * kPageBytes);
}

TEST_CASE("the counters count what was done") {
  Script script;
  GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
  std::vector<std::byte> bytes(5000);
  medium.wait(medium.write(0, bytes, 0));
  medium.wait(medium.write(8192, std::span(bytes).first(10), 0));
  medium.store_word(16, 3);
  medium.barrier();
  medium.barrier();
  medium.read(1, std::span(bytes).first(77));
  script.fails = Verb::store_word;
  REQUIRE_THROWS_AS(medium.store_word(16, 4), Error);
  const MediumCounters counters = medium.counters();
  REQUIRE(counters.writes == 2);
  REQUIRE(counters.bytes_written == 5010);
  REQUIRE(counters.words == 1);
  REQUIRE(counters.barriers == 2);
  REQUIRE(counters.reads == 1);
  REQUIRE(counters.bytes_read == 77);
}

// Runs `action` in a child and tells whether an assert stopped it.
template <class Action>
bool aborts(Action action) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    std::freopen("/dev/null", "w", stderr);
    action();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST_CASE("our own mistakes stop at an assert, in release too") {
  Script script;
  GuardedMedium medium(std::make_unique<ScriptedMedium>(script));
  const std::vector<std::byte> chunk(kChunkBytes + 1);
  const auto page = std::span(chunk).first(kPageBytes);
  REQUIRE_FALSE(aborts([&] { medium.write(15 * kPageBytes, page, 0); }));
  REQUIRE(aborts([&] { medium.write(16 * kPageBytes, page, 0); }));
  REQUIRE(aborts([&] { medium.write(64, page, 0); }));
  REQUIRE(aborts([&] { medium.write(0, chunk, 0); }));
  REQUIRE(aborts([&] { medium.write(~std::uint64_t{kPageBytes - 1}, page, 0); }));
  REQUIRE_FALSE(aborts([&] { medium.store_word(16 * kPageBytes - 8, 1); }));
  REQUIRE(aborts([&] { medium.store_word(16 * kPageBytes, 1); }));
  REQUIRE(aborts([&] { medium.store_word(12, 1); }));
  REQUIRE_FALSE(aborts([&] { medium.shrink(16 * kPageBytes); }));
  REQUIRE(aborts([&] { medium.shrink(17 * kPageBytes); }));
  REQUIRE(aborts([&] { medium.shrink(kPageBytes + 512); }));
  REQUIRE(aborts([&] { medium.shrink(0); }));
  GuardedMedium fixed(  // which looks at nothing itself
      std::make_unique<Fixed>(make_memory_medium(16 * kPageBytes, 16 * kPageBytes)));
  REQUIRE_FALSE(aborts([&] { fixed.shrink(kPageBytes); }));
  REQUIRE(aborts([&] { fixed.shrink(kPageBytes + 512); }));
  REQUIRE(aborts([&] { fixed.shrink(0); }));
  medium.shrink(8 * kPageBytes);
  REQUIRE_FALSE(aborts([&] { medium.write(7 * kPageBytes, page, 0); }));
  REQUIRE(aborts([&] { medium.write(8 * kPageBytes, page, 0); }));
  REQUIRE(aborts([&] { medium.store_word(8 * kPageBytes, 1); }));
}

TEST_CASE("a medium that was written to is settled by a barrier behind the wait") {
  GuardedMedium media(make_memory_medium(16 * kPageBytes, 64 * kPageBytes));
  media.attach(1, make_memory_medium(16 * kPageBytes, 64 * kPageBytes));
  media.barrier();
  CHECK(media.is_settled(1));
  const std::vector<std::byte> page(kPageBytes);
  const Ticket ticket = media.write(place_on(1, 0), page, 0);
  CHECK_FALSE(media.is_settled(1));
  media.wait(ticket);
  CHECK_FALSE(media.is_settled(1));
  media.barrier();
  CHECK(media.is_settled(1));
}

}  // namespace
}  // namespace tensorshelf

namespace tensorshelf {
namespace {
struct Hooks {
  std::function<void()> in_wait, in_barrier, in_write;
  std::function<void(std::uint64_t)> in_wait_for;
  int barriers = 0;
  int writes = 0;
  std::uint64_t sequence = 0;  // of the last write
  bool generous = false;
  std::uint64_t most = ~0ULL;
};
struct Hooked final : testing::ForwardingMedium {
  explicit Hooked(Hooks& h)
      : ForwardingMedium(make_memory_medium(16 * kPageBytes, 256 * kPageBytes)), hooks(h) {}
  Promises promises() const override {
    Promises p = ForwardingMedium::promises();
    p.mapped = false;
    return p;
  }
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    const Ticket ticket = ForwardingMedium::write(at, bytes, seed);
    ++hooks.writes;
    hooks.sequence += 10;
    if (auto hook = std::exchange(hooks.in_write, {})) hook();
    return {hooks.sequence, ticket.checksum};
  }
  void wait(const Ticket& ticket) override {
    ForwardingMedium::wait({});
    if (hooks.in_wait_for) hooks.in_wait_for(ticket.sequence);
    if (auto hook = std::exchange(hooks.in_wait, {})) hook();
  }
  void barrier() override {
    ++hooks.barriers;
    ForwardingMedium::barrier();
    if (auto hook = std::exchange(hooks.in_barrier, {})) hook();
  }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (size_bytes > hooks.most) throw Error(Errc::full, "full", "x");
    return ForwardingMedium::reserve(size_bytes + (hooks.generous ? 8 * kPageBytes : 0));
  }
  Hooks& hooks;
};
struct Two {
  Hooks first, second;
  GuardedMedium media{std::make_unique<Hooked>(first)};
  const std::vector<std::byte> page = std::vector<std::byte>(kPageBytes);
  Two() {
    media.attach(1, std::make_unique<Hooked>(second));
    media.barrier();
    second.barriers = 0;
  }
  void write() { media.write(place_on(1, 0), page, 0); }
};
}  // namespace

TEST_CASE("room is settled by the next barrier") {
  Two two;
  two.media.reserve(place_on(1, 32 * kPageBytes));
  two.media.barrier();
  CHECK(two.second.barriers == 1);
}
TEST_CASE("what changes during a barrier is for the next") {
  Two two;
  two.media.store_word(place_on(1, 8), 1);
  two.second.in_barrier = [&] { two.media.store_word(place_on(1, 16), 2); };
  two.media.barrier();
  two.media.barrier();
  CHECK(two.second.barriers == 2);
}
TEST_CASE("another's wait in a wait, and its barrier") {
  Two two;
  two.write();
  two.second.in_wait = [&] {
    two.media.wait({});
    two.media.barrier();
    CHECK(two.second.barriers == 1);
  };
  two.media.wait({});
}
TEST_CASE("another's barrier in a wait") {
  Two two;
  two.write();
  two.second.in_wait = [&] { two.media.barrier(); };
  two.media.wait({});
  two.media.barrier();
  CHECK(two.second.barriers == 2);
}
TEST_CASE("what a mirror gets a second time is settled with the rest") {
  Two two;
  two.media.mirror(0, 1, 0);
  std::vector<std::byte> source(kPageBytes);
  std::vector<std::uint64_t> asked_for;
  two.first.in_write = [&] { source[5] = std::byte{1}; };  // its source changes between the two
  two.media.write(0, source, 0);
  two.second.in_wait_for = [&](std::uint64_t sequence) { asked_for.push_back(sequence); };
  two.media.wait({});
  CHECK(asked_for == std::vector<std::uint64_t>{two.second.sequence});
  CHECK(two.second.writes == 2);
}
TEST_CASE("what is lent is lent to the mirror, too, and awaited of both") {
  struct Borrower final : ForwardingMedium {
    explicit Borrower(std::vector<std::uint64_t>& has)
        : ForwardingMedium(make_memory_medium(16 * kPageBytes, 64 * kPageBytes)), lent(has) {}
    Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                      std::uint64_t seed) override {
      if (at == 3 * kPageBytes) throw Error(Errc::io, "cannot write", "replace the disk");
      lent.push_back(at);
      return ForwardingMedium::write_lent(at, bytes, seed);
    }
    void await_lent(std::span<const std::byte> bytes) noexcept override {
      if (bytes.size() == kPageBytes) lent.clear();
    }
    std::vector<std::uint64_t>& lent;
  };
  std::array<std::vector<std::uint64_t>, 2> lent;
  GuardedMedium media(std::make_unique<Borrower>(lent[0]));
  const unsigned index = GENERATE(1U, kMaxMedia - 1);  // none between the two
  media.attach(index, std::make_unique<Borrower>(lent[1]));
  media.mirror(0, index, kPageBytes);
  const std::vector<std::byte> page(kPageBytes, std::byte{7});
  const Ticket ticket = media.write_lent(kPageBytes, page, 9);
  CHECK(ticket.checksum == media.write(4 * kPageBytes, page, 9).checksum);
  CHECK(lent[0] == std::vector<std::uint64_t>{kPageBytes});
  CHECK(lent[1] == std::vector<std::uint64_t>{2 * kPageBytes});
  media.await_lent(page);
  CHECK((lent[0].empty() && lent[1].empty()));
  std::vector<std::byte> found(kPageBytes);
  CHECK((media.read_mirror(kPageBytes, found) && found == page));
  CHECK(media.counters().bytes_written == 2 * kPageBytes);
  // I8.
  CHECK(testing::code_of([&] { media.write_lent(3 * kPageBytes, page, 0); }) == Errc::io);
  CHECK(testing::code_of([&] { media.write_lent(0, page, 0); }) == Errc::failed);
  media.await_lent(page);  // throws nothing
}
TEST_CASE("who waits for a write waits for the medium's own, whatever its mirror counts") {
  Two two;
  two.media.mirror(0, 1, 0);
  two.first.sequence = 1000;  // the mirror came late
  two.media.write(kPageBytes, two.page, 0);
  std::uint64_t waited = 0;
  two.first.in_wait_for = [&](std::uint64_t sequence) { waited = sequence; };
  two.media.wait({});
  CHECK(waited == 1010);
}
TEST_CASE("no more room than the mirror has") {
  Two two;
  two.media.mirror(0, 1, 2 * kPageBytes);
  two.first.generous = true;
  two.second.most = 36 * kPageBytes;
  CHECK(two.media.reserve(32 * kPageBytes) == 32 * kPageBytes);
}
}  // namespace tensorshelf
