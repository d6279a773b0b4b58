#include "media/pool/outlived.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace tensorshelf {
namespace {

constexpr std::array kFaults = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};

// Of the one call at a time; the handler touches nothing else.
std::array<struct sigaction, kFaults.size()> before;
sigjmp_buf place;
std::atomic<long> caller = 0;  // its thread's id; 0: none

void on_fault(int signal, siginfo_t*, void*) {
  if (caller.load(std::memory_order_relaxed) == ::syscall(SYS_gettid)) ::siglongjmp(place, 1);
  // Another thread's: the instruction faults once more, or abort() raises it again by itself.
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    if (kFaults[i] == signal) ::sigaction(signal, &before[i], nullptr);
  }
}

class Handlers {
 public:
  Handlers() {
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    for (std::size_t i = 0; i < kFaults.size(); ++i) ::sigaction(kFaults[i], &ours, &before[i]);
    caller = ::syscall(SYS_gettid);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;
  ~Handlers() {
    caller = 0;
    for (std::size_t i = 0; i < kFaults.size(); ++i) ::sigaction(kFaults[i], &before[i], nullptr);
  }
};

}  // namespace

bool outlived(const std::function<void()>& call) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const Handlers handlers;
  if (sigsetjmp(place, 1) != 0) return false;
  call();
  return true;
}

}  // namespace tensorshelf
