// The handler runs in the midst of anything, so it touches only its own thread's list of guarded
// ranges and what arm_fault_guard() left. It leaves by siglongjmp(), without its signal mask having
// changed: SA_NODEFER and an empty mask spare each touch the system call that would restore one.
#include "base/fault_guard.hpp"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

namespace tensorshelf {
namespace {

struct Guarded {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
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

struct sigaction previous;  // written before our handler is installed

// That an instruction faulted, and would again; all else was sent by someone.
bool is_fault(const siginfo_t& info) {
  return info.si_code == BUS_ADRALN || info.si_code == BUS_ADRERR || info.si_code == BUS_OBJERR ||
         info.si_code == BUS_MCEERR_AR;
}

Guarded* guarded_by(const siginfo_t& info) {
  if (!is_fault(info)) return nullptr;
  std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(info.si_addr);
  std::uintptr_t end = begin + 1;
  if (info.si_code == BUS_MCEERR_AR) {  // somewhere in so large a page
    const std::uintptr_t page_bytes = std::uintptr_t{1} << info.si_addr_lsb;
    begin = begin / page_bytes * page_bytes;
    end = begin + page_bytes;
  }
  for (Guarded* guarded = innermost(); guarded != nullptr; guarded = guarded->outer) {
    if (begin < guarded->end && guarded->begin < end) return guarded;
  }
  return nullptr;
}

// As the kernel would have called it.
void call_previous(int signal, siginfo_t* info, void* context) {
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

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (Guarded* const guarded = guarded_by(*info)) {
    set_innermost(guarded->outer);
    ::siglongjmp(guarded->place, 1);
  }
  // A handler in front of ours may pass a fault on by raise() (Python's faulthandler does, having
  // put ours back): the instruction faults once more and comes here by itself.
  const bool passed_on = info->si_code == SI_TKILL && info->si_pid == ::getpid();
  if (passed_on && innermost() != nullptr) return;
  pass_on(signal, info, context);
}

bool install() {
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  return ::sigaction(SIGBUS, nullptr, &previous) == 0 && ::sigaction(SIGBUS, &ours, nullptr) == 0;
}

}  // namespace

void arm_fault_guard() {
  if (!has_key()) {
    throw Error(Errc::unsupported,
                "the process has no key for a thread's own data left (PTHREAD_KEYS_MAX)",
                "load fewer libraries that take one (pthread_key_create)");
  }
  static const bool installed = install();
  TENSORSHELF_ASSERT(installed);
}

bool run_guarded(std::span<const std::byte> range, void (*touch)(void*), void* context) noexcept {
  TENSORSHELF_ASSERT(has_key());  // who maps has armed it
  Guarded guarded;
  guarded.begin = reinterpret_cast<std::uintptr_t>(range.data());
  guarded.end = guarded.begin + range.size();
  guarded.outer = innermost();
  if (sigsetjmp(guarded.place, kRestoresMask) != 0) return false;
  set_innermost(&guarded);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the handler sees it before any touch
  touch(context);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  set_innermost(guarded.outer);
  return true;
}

}  // namespace tensorshelf
