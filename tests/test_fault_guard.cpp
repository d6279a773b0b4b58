// A SIGBUS on guarded bytes is a return value, and no other SIGBUS is touched. A handler is for the
// life of a process, so each case runs in a forked child with handlers of its own.
#include <setjmp.h>
#include <time.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fault_guard.hpp"
#include "catch.hpp"
#include "poison.hpp"
#include "scratch.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Two pages of a file, whose second one can be taken away.
class Mapping {
 public:
  Mapping() : fd_(::memfd_create("tensorshelf-test", MFD_CLOEXEC)) {
    if (::ftruncate(fd_, static_cast<off_t>(2 * kPage)) != 0) ::abort();
    at_ = static_cast<std::byte*>(
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    if (at_ == MAP_FAILED) ::abort();
    std::memset(at_, 7, 2 * kPage);
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    ::munmap(at_, 2 * kPage);
    ::close(fd_);
  }

  void cut() const {
    if (::ftruncate(fd_, static_cast<off_t>(kPage)) != 0) ::abort();
  }
  std::span<std::byte> whole() const { return {at_, 2 * kPage}; }
  std::span<std::byte> first() const { return {at_, kPage}; }
  std::span<std::byte> second() const { return {at_ + kPage, kPage}; }

 private:
  int fd_;
  std::byte* at_;
};

std::byte at(std::span<const std::byte> bytes) {
  return *static_cast<const volatile std::byte*>(bytes.data());
}
bool readable(std::span<const std::byte> bytes) {
  return touch_mapped(bytes, [&] { at(bytes); });
}

#define HOLDS(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "%d: not so: " #condition "\n", __LINE__); \
      return false;                                                   \
    }                                                                 \
  } while (false)

// A handler of others', set before ours.
void set_handler(void (*handler)(int), int flags = 0) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(SIGBUS, &action, nullptr);
}
volatile sig_atomic_t calls = 0;
volatile std::uintptr_t last_address = 0;
sigjmp_buf way_out;

bool killed_by_sigbus(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS; }

}  // namespace

TEST_CASE("a file cut short: the touch fails, as often as it is tried", "[fault_guard]") {
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    const Mapping mapping;
    HOLDS(readable(mapping.whole()) && readable(mapping.second()));
    mapping.cut();
    for (int n = 0; n < 3; ++n) {
      HOLDS(readable(mapping.first()));
      HOLDS(!readable(mapping.second()));
      HOLDS(!touch_mapped(mapping.second(), [&] { mapping.second()[5] = std::byte{1}; }));
      std::vector<std::byte> copy(2 * kPage);
      HOLDS(!touch_mapped(mapping.whole(),
                          [&] { std::memcpy(copy.data(), mapping.whole().data(), 2 * kPage); }));
    }
    return true;
  })));
}

TEST_CASE("a poisoned page: the touch fails", "[fault_guard]") {
  const Mapping probe;
  if (!Poison(probe.second()).laid()) {
    WARN("skipped: poison (userfaultfd of Linux 6.6 and permission to use it)");
    return;
  }
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    const Mapping mapping;
    const Poison poison(mapping.second());
    HOLDS(poison.laid());
    HOLDS(readable(mapping.first()));
    HOLDS(!readable(mapping.second()));
    HOLDS(!readable(mapping.second().subspan(100, 8)));
    return true;
  })));
}

TEST_CASE("poison is told at its page's start: the touch of a line within it fails",
          "[fault_guard]") {
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    const Mapping mapping;
    HOLDS(!touch_mapped(mapping.second().subspan(100, 8), [&] {
      siginfo_t info = {};  // as the kernel sends it
      info.si_signo = SIGBUS;
      info.si_code = BUS_MCEERR_AR;
      info.si_addr = mapping.second().data();
      info.si_addr_lsb = static_cast<short>(std::countr_zero(kPage));
      ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGBUS, &info);
    }));
    HOLDS(readable(mapping.second()));
    return true;
  })));
}

TEST_CASE("a touch inside a touch: each answers for its own range", "[fault_guard]") {
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    const Mapping inside;
    const Mapping outside;
    inside.cut();
    bool inner = true;
    HOLDS(touch_mapped(outside.whole(), [&] { inner = readable(inside.second()); }));
    HOLDS(!inner);

    outside.cut();
    bool passed = false;
    HOLDS(!touch_mapped(outside.whole(), [&] {
      inner = touch_mapped(inside.whole(), [&] { at(outside.second()); });
      passed = true;
    }));
    HOLDS(!passed);
    HOLDS(!touch_mapped(outside.whole(), [&] {  // after a fault within, still guarded
      inner = readable(inside.second());
      at(outside.second());
    }));
    HOLDS(!touch_mapped(outside.whole(), [&] {  // and after a touch within that went well
      inner = readable(inside.first());
      at(outside.second());
    }));
    HOLDS(inner);
    HOLDS(!readable(inside.second()) && readable(inside.first()));
    return true;
  })));
}

TEST_CASE("threads fault side by side", "[fault_guard]") {
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    std::vector<std::thread> threads;
    std::vector<char> good(4, 0);
    for (char& mine : good) {
      threads.emplace_back([&mine] {
        const Mapping mapping;
        mapping.cut();
        bool all = true;
        for (int n = 0; n < 200; ++n) {
          all = all && !readable(mapping.second()) && readable(mapping.first());
        }
        mine = all;
      });
    }
    for (std::thread& thread : threads) thread.join();
    HOLDS(good == std::vector<char>(4, 1));
    return true;
  })));
}

TEST_CASE("a forked child is guarded as its parent was", "[fault_guard]") {
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    const Mapping mapping;
    mapping.cut();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(readable(mapping.second()) ? 1 : 0);
    int status = -1;
    ::waitpid(child, &status, 0);
    HOLDS(scratch::exited_well(status));
    HOLDS(!readable(mapping.second()));
    return true;
  })));
}

TEST_CASE("without a handler of others, a SIGBUS of theirs ends the process", "[fault_guard]") {
  const auto dies = [](void (*handler)(int), void (*body)(const Mapping&)) {
    return scratch::in_child([&] {
      set_handler(handler);
      arm_fault_guard();
      const Mapping mapping;
      mapping.cut();
      if (readable(mapping.second())) return false;
      body(mapping);
      return true;
    });
  };
  const auto fault = [](const Mapping& mapping) { at(mapping.second()); };
  const auto fault_elsewhere = [](const Mapping& mapping) {
    [[maybe_unused]] const bool good = touch_mapped(mapping.first(), [&] { at(mapping.second()); });
  };
  const auto sent = [](const Mapping&) { ::raise(SIGBUS); };
  const auto sent_in_a_touch = [](const Mapping& mapping) {
    [[maybe_unused]] const bool good =
        touch_mapped(mapping.first(), [] { ::kill(::getpid(), SIGBUS); });
  };
  CHECK(killed_by_sigbus(dies(SIG_DFL, fault)));
  CHECK(killed_by_sigbus(dies(SIG_DFL, fault_elsewhere)));
  CHECK(killed_by_sigbus(dies(SIG_DFL, sent)));
  CHECK(killed_by_sigbus(dies(SIG_DFL, sent_in_a_touch)));
  CHECK(killed_by_sigbus(dies(SIG_IGN, fault)));  // a fault cannot be ignored
  CHECK(scratch::exited_well(dies(SIG_IGN, sent)));
}

TEST_CASE("a handler that was there before gets what is not ours", "[fault_guard]") {
  SECTION("with its address and its mask, and may jump") {
    CHECK(scratch::exited_well(scratch::in_child([] {
      struct sigaction action = {};
      action.sa_sigaction = [](int, siginfo_t* info, void*) {
        sigset_t blocked;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        calls = calls + (::sigismember(&blocked, SIGBUS) == 1 ? 1 : 100);
        last_address = reinterpret_cast<std::uintptr_t>(info->si_addr);
        ::siglongjmp(way_out, 1);
      };
      action.sa_flags = SA_SIGINFO;
      ::sigaction(SIGBUS, &action, nullptr);
      arm_fault_guard();
      const Mapping mapping;
      mapping.cut();
      const auto both = [&] {
        HOLDS(!readable(mapping.second()));
        if (sigsetjmp(way_out, 1) == 0) at(mapping.second());
        return true;
      };
      HOLDS(both() && both());
      HOLDS(calls == 2);
      HOLDS(last_address == reinterpret_cast<std::uintptr_t>(mapping.second().data()));
      HOLDS(!readable(mapping.second()));
      return true;
    })));
  }
  SECTION("a plain one") {
    CHECK(scratch::exited_well(scratch::in_child([] {
      set_handler([](int) { calls = calls + 1; });
      arm_fault_guard();
      ::raise(SIGBUS);
      ::raise(SIGBUS);
      HOLDS(calls == 2);
      return true;
    })));
  }
  SECTION("once, where it asked for that") {
    CHECK(killed_by_sigbus(scratch::in_child([] {
      set_handler([](int) { calls = calls + 1; }, SA_RESETHAND);
      arm_fault_guard();
      ::raise(SIGBUS);
      HOLDS(calls == 1);
      ::raise(SIGBUS);
      return true;
    })));
  }
}

TEST_CASE("a later handler that puts ours back and raises, as Python's does", "[fault_guard]") {
  CHECK(scratch::exited_well(scratch::in_child([] {
    arm_fault_guard();
    static struct sigaction ours;
    struct sigaction later = {};
    later.sa_flags = SA_NODEFER;
    later.sa_handler = [](int signal) {
      calls = calls + 1;
      ::sigaction(SIGBUS, &ours, nullptr);
      ::raise(signal);
    };
    ::sigaction(SIGBUS, &later, &ours);
    const Mapping mapping;
    mapping.cut();
    HOLDS(!readable(mapping.second()) && calls == 1);
    HOLDS(!readable(mapping.second()) && calls == 1);
    return true;
  })));
}

namespace {

std::chrono::nanoseconds taken_by_thread() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

TEST_CASE("a call that goes round for ever is ended", "[fault_guard]") {
  if (kSanitized) return;
  using namespace std::chrono_literals;
  CHECK(scratch::in_child([&] {
          ::alarm(20);
          const auto round = [] {
            volatile bool ends = false;
            while (!ends) {
            }
          };
          const auto take = [](std::chrono::nanoseconds time) {
            const auto end = taken_by_thread() + time;
            while (taken_by_thread() < end) {
            }
          };
          for (int again = 0; again < 3; ++again) HOLDS(!outlives_faults(round, 20ms));
          HOLDS(outlives_faults([] {}, 20ms));
          // Nor is one without a limit ended by that of another before it.
          HOLDS(outlives_faults([&] { take(60ms); }));
          bool inner = true;
          HOLDS(outlives_faults([&] { inner = outlives_faults(round, 20ms); }, 1h));
          HOLDS(!inner);
          return true;
        }) == 0);
}

// It blocks while another thread takes three times the limit: by the clock that is over, and the
// time that its own thread took is not.
TEST_CASE("a limit is of the time that the call's own thread takes", "[fault_guard]") {
  if (kSanitized) return;
  using namespace std::chrono_literals;
  CHECK(scratch::in_child([&] {
          ::alarm(60);
          std::array<int, 2> begun = {};
          std::array<int, 2> done = {};
          HOLDS(::pipe(begun.data()) == 0 && ::pipe(done.data()) == 0);
          bool passed = true;
          std::thread other([&] {
            char byte = 0;
            passed = ::read(begun[0], &byte, 1) == 1;
            while (taken_by_thread() < 150ms) {
            }
            passed = ::write(done[1], &byte, 1) == 1 && passed;
          });
          const bool ended = outlives_faults(
              [&] {
                char byte = 0;
                byte += static_cast<char>(::write(begun[1], &byte, 1));
                while (::read(done[0], &byte, 1) != 1) {
                }
              },
              50ms);
          other.join();
          HOLDS(passed);
          HOLDS(ended);
          return true;
        }) == 0);
}

// Not under a sanitizer, which answers a SIGSEGV of its own before ours.
TEST_CASE("a call that may fault anywhere ends alone, and its thread's alone", "[fault_guard]") {
  if (kSanitized) return;
  const auto fault = [] {
    volatile std::uintptr_t nowhere = 16;
    *reinterpret_cast<volatile int*>(nowhere) = 1;
  };
  CHECK(scratch::in_child([&] {
          HOLDS(outlives_faults([] {}));
          for (int again = 0; again < 3; ++again) HOLDS(!outlives_faults(fault));
          const Mapping mapping;
          mapping.cut();
          HOLDS(!outlives_faults([&] { at(mapping.second()); }));
          bool inner = true;
          HOLDS(outlives_faults([&] { inner = outlives_faults(fault); }));
          HOLDS(!inner);
          HOLDS(!outlives_faults([&] { static_cast<void>(readable(mapping.first())), fault(); }));
          try {
            outlives_faults([] { throw 7; });
            return false;
          } catch (int thrown) {
            HOLDS(thrown == 7);
          }
          return !readable(mapping.second());
        }) == 0);
  const int status = scratch::in_child([&] {  // outside, and in another thread, it is as ever
    static_cast<void>(outlives_faults([&] { std::thread(fault).join(); }));
    return true;
  });
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}
