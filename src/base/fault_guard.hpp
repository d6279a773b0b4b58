// Mapped bytes can be gone when they are touched: the file was cut short by someone else, or the
// memory itself is damaged (a poisoned line). The kernel then sends SIGBUS; here that becomes a
// return value. Costs no system call: as much as copying some 256 bytes.
//
// Thread-safe. A touch may stand inside another's; a fault at an address of neither goes to
// whatever handler the process had before, and where that was the default, ends the process as it
// would have without us. Bytes that users hold in place (views, leases) have no such guard.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

namespace tensorshelf {

// Puts our handler of SIGBUS in front of the process's own, once; touch_mapped() needs it. A
// handler that others install later stays in front of ours, and may pass the signal on to it.
void arm_fault_guard();

// What a guard is for: a fault at an address, or any.
struct GuardedRange {
  std::span<const std::byte> bytes;
  bool any = false;
};

// The same as touch_mapped(), for a plain function.
bool run_guarded(const GuardedRange& range, void (*touch)(void*), void* context) noexcept;

// Runs `touch`, which reads or writes mapped bytes. False where the kernel answered SIGBUS for an
// address in `range`: then it was left in the middle, without a destructor run. So it must be a
// leaf: no locks, no allocation, no exceptions, nothing to destroy.
template <class Touch>
[[nodiscard]] bool touch_mapped(std::span<const std::byte> range, Touch&& touch) {
  using Plain = std::remove_reference_t<Touch>;
  const auto call = [](void* context) noexcept { (*static_cast<Plain*>(context))(); };
  return run_guarded({range}, call, const_cast<std::remove_const_t<Plain>*>(std::addressof(touch)));
}

// Runs `call` into a library that trusts the bytes it maps, and throws what it throws. False where
// a fault of this thread, SIGSEGV, SIGBUS or SIGFPE, ended it in the middle: what it held, memory,
// descriptors, its own locks, it holds until the process ends. The handlers stay, in front of those
// that were there, which get other threads' faults. Nor does one come to its end that goes round
// for ever: false after `limit` of the thread's own time, too, wherever it is then. So what can
// take as long must be a leaf, as for touch_mapped().
bool outlives_faults(const std::function<void()>& call,
                     std::optional<std::chrono::milliseconds> limit = {});

}  // namespace tensorshelf
