// The handler runs in the midst of anything, so it touches only its own thread's list of guarded
// ranges and what arm_fault_guard() left. It leaves by siglongjmp(), without its signal mask having
// changed: SA_NODEFER and an empty mask spare each touch the system call that would restore one.
#include "base/fault_guard.hpp"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

namespace tensorshelf {
namespace {

struct Guarded {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool any = false;  // whatever the signal and the address
  Guarded* outer = nullptr;
  sigjmp_buf place;
};

// This thread's innermost guarded range. Not a thread_local: in a library loaded late, the first
// touch of one allocates, which a signal handler must not, unless it is of the kind that has to fit
// into what the process has left over of it, where Python's module does not. Looking up a key, and
// with the first few dozen keys setting one too, is a load from the thread's own block.
pthread_key_t innermost_key;

bool make_key() { return ::pthread_key_create(&innermost_key, nullptr) == 0; }

bool has_key() {
  static const bool made = make_key();
  return made;
}

Guarded* innermost() { return static_cast<Guarded*>(::pthread_getspecific(innermost_key)); }
void set_innermost(Guarded* guarded) { ::pthread_setspecific(innermost_key, guarded); }

// ThreadSanitizer runs every handler with all signals blocked, so there the mask must be restored.
#if defined(__SANITIZE_THREAD__)
constexpr int kRestoresMask = 1;
#else
constexpr int kRestoresMask = 0;
#endif

// The handler of each signal before ours; written before ours is installed.
constexpr std::array kSignals = {SIGBUS, SIGSEGV, SIGFPE};
std::array<struct sigaction, kSignals.size()> all_previous;

struct sigaction& previous_of(int signal) {
  std::size_t i = 0;
  while (kSignals[i] != signal) ++i;
  return all_previous[i];
}

// That an instruction faulted, and would again; all else was sent by someone.
bool is_fault(const siginfo_t& info) {
  if (info.si_signo != SIGBUS) return info.si_code > 0;
  return info.si_code == BUS_ADRALN || info.si_code == BUS_ADRERR || info.si_code == BUS_OBJERR ||
         info.si_code == BUS_MCEERR_AR;
}

// Ends a call that takes longer, by a signal to this thread. Where the system has no timer left, or
// forbids them, nothing does.
class Limit {
 public:
  explicit Limit(std::chrono::milliseconds after) {
    struct sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGSEGV;  // for which our handler is in front
    event._sigev_un._tid = ::gettid();
    event.sigev_value.sival_ptr = &kLate;
    if (::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) return;
    created_ = true;
    struct itimerspec once = {};
    once.it_value.tv_sec = after.count() / 1000;
    once.it_value.tv_nsec = after.count() % 1000 * 1'000'000;
    ::timer_settime(timer_, 0, &once, nullptr);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() {
    if (created_) ::timer_delete(timer_);
  }

  static bool sent(const siginfo_t& info) {
    return info.si_code == SI_TIMER && info.si_value.sival_ptr == &kLate;
  }

 private:
  static char kLate;  // by its address
  timer_t timer_ = {};
  bool created_ = false;
};
char Limit::kLate;

Guarded* innermost_of_any() {
  Guarded* guarded = innermost();
  while (guarded != nullptr && !guarded->any) guarded = guarded->outer;
  return guarded;
}

Guarded* guarded_by(const siginfo_t& info) {
  if (Limit::sent(info)) return innermost_of_any();
  if (!is_fault(info)) return nullptr;
  if (info.si_signo != SIGBUS) return innermost_of_any();
  std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(info.si_addr);
  std::uintptr_t end = begin + 1;
  if (info.si_code == BUS_MCEERR_AR) {  // somewhere in so large a page
    const std::uintptr_t page_bytes = std::uintptr_t{1} << info.si_addr_lsb;
    begin = begin / page_bytes * page_bytes;
    end = begin + page_bytes;
  }
  for (Guarded* guarded = innermost(); guarded != nullptr; guarded = guarded->outer) {
    if (guarded->any || (begin < guarded->end && guarded->begin < end)) return guarded;
  }
  return nullptr;
}

// As the kernel would have called it.
void call_previous(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = previous_of(signal);
  sigset_t blocked = previous.sa_mask;
  if ((previous.sa_flags & SA_NODEFER) == 0) ::sigaddset(&blocked, signal);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = previous_of(signal);
  const bool has_handler = (previous.sa_flags & SA_SIGINFO) != 0 ||
                           (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (has_handler && (previous.sa_flags & SA_RESETHAND) == 0) {
    return call_previous(signal, info, context);
  }
  if (has_handler) {
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    return call_previous(signal, info, context);
  }
  if (previous.sa_handler == SIG_IGN && !is_fault(*info)) return;  // a fault cannot be ignored
  ::signal(signal, SIG_DFL);
  if (!is_fault(*info)) ::raise(signal);  // else the instruction faults once more, and that is it
}

// Where SIGSEGV or SIGFPE was passed on last. Our handler of these is put in front of others' more
// than once: one of those may have ours as the one before it, and pass on to that what we have
// passed to it.
std::atomic<const void*> passed_at = nullptr;

void pass_on_once(int signal, siginfo_t* info, void* context) {
  const bool again = !is_fault(*info) || passed_at.exchange(info->si_addr) == info->si_addr;
  if (again) previous_of(signal).sa_handler = SIG_DFL, previous_of(signal).sa_flags = 0;
  pass_on(signal, info, context);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (Guarded* const guarded = guarded_by(*info)) {
    set_innermost(guarded->outer);
    ::siglongjmp(guarded->place, 1);
  }
  if (Limit::sent(*info)) return;  // it was under way when the call ended
  if (signal != SIGBUS) return pass_on_once(signal, info, context);
  // A handler in front of ours may pass a fault on by raise() (Python's faulthandler does, having
  // put ours back): the instruction faults once more and comes here by itself.
  const bool passed_on = info->si_code == SI_TKILL && info->si_pid == ::getpid();
  if (passed_on && innermost() != nullptr) return;
  pass_on(signal, info, context);
}

bool install(int signal) {
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  return ::sigaction(signal, nullptr, &previous_of(signal)) == 0 &&
         ::sigaction(signal, &ours, nullptr) == 0;
}

// Others may have put theirs there since the last call.
void put_in_front() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for (const int signal : {SIGSEGV, SIGFPE}) {
    struct sigaction now = {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_sigaction == on_fault) continue;
    const bool installed = install(signal);
    TENSORSHELF_ASSERT(installed);
  }
}

}  // namespace

void arm_fault_guard() {
  if (!has_key()) {
    throw Error(Errc::unsupported,
                "the process has no key for a thread's own data left (PTHREAD_KEYS_MAX)",
                "load fewer libraries that take one (pthread_key_create)");
  }
  static const bool installed = install(SIGBUS);
  TENSORSHELF_ASSERT(installed);
}

bool run_guarded(const GuardedRange& range, void (*touch)(void*), void* context) noexcept {
  TENSORSHELF_ASSERT(has_key());  // who maps has armed it
  Guarded guarded;
  guarded.begin = reinterpret_cast<std::uintptr_t>(range.bytes.data());
  guarded.end = guarded.begin + range.bytes.size();
  guarded.any = range.any;
  guarded.outer = innermost();
  if (sigsetjmp(guarded.place, kRestoresMask) != 0) return false;
  set_innermost(&guarded);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the handler sees it before any touch
  touch(context);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  set_innermost(guarded.outer);
  return true;
}

bool outlives_faults(const std::function<void()>& call,
                     std::optional<std::chrono::milliseconds> limit) {
  arm_fault_guard();
  put_in_front();
  struct Called {
    const std::function<void()>& call;
    std::exception_ptr thrown = {};
  } called{call};
  const auto run = [](void* context) {
    auto& one = *static_cast<Called*>(context);
    try {
      one.call();
    } catch (...) {
      one.thrown = std::current_exception();
    }
  };
  std::optional<Limit> timer;
  if (limit) timer.emplace(*limit);
  if (!run_guarded({{}, true}, run, &called)) return false;
  if (called.thrown) std::rethrow_exception(called.thrown);
  return true;
}

}  // namespace tensorshelf
