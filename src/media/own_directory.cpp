#include "media/own_directory.hpp"

#include <sched.h>

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/signals_blocked.hpp"

namespace tensorshelf {

void in_own_directory(const std::function<void()>& call) {
  static std::mutex one_at_a_time;
  std::exception_ptr error;
  const auto guarded = [&](bool has_own) {
    std::unique_lock lock(one_at_a_time, std::defer_lock);
    if (!has_own) lock.lock();
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
  };
  try {
    const SignalsBlocked blocked;
    std::thread([&] { guarded(::unshare(CLONE_FS) == 0); }).join();
  } catch (const std::system_error&) {  // there is no thread to be had
    guarded(false);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tensorshelf
