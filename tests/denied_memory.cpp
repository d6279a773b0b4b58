#include "denied_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <tensorshelf/error.hpp>

namespace {

std::atomic<std::int64_t> allowed = -1;  // allocations left; negative: all
std::atomic<bool> denied = false;        // one was
std::atomic<bool> once = true;

bool deny() {
  if (allowed.load(std::memory_order_relaxed) < 0) return false;
  std::int64_t left = allowed.load();
  while (left > 0 && !allowed.compare_exchange_weak(left, left - 1)) {
  }
  if (left != 0) return false;
  denied = true;
  if (once) allowed = -1;
  return true;
}

void* take(std::size_t size, std::size_t alignment) {
  if (deny()) throw std::bad_alloc();
  const std::size_t whole =
      (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  void* const at = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, whole)
                                                         : std::malloc(whole);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

}  // namespace

void* operator new(std::size_t size) { return take(size, 1); }
void* operator new[](std::size_t size) { return take(size, 1); }
void* operator new(std::size_t size, std::align_val_t to) {
  return take(size, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t size, std::align_val_t to) {
  return take(size, static_cast<std::size_t>(to));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return deny() ? nullptr : std::malloc(std::max<std::size_t>(size, 1));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return deny() ? nullptr : std::malloc(std::max<std::size_t>(size, 1));
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, const std::nothrow_t&) noexcept { std::free(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept { std::free(at); }

namespace tensorshelf::testing {

bool denying(std::int64_t nth, Denial denial, const std::function<void()>& call) {
  denied = false;
  once = denial == Denial::once;
  allowed = nth;
  try {
    call();
  } catch (const std::bad_alloc&) {
  } catch (const Error&) {
  }
  allowed = -1;
  return denied;
}

}  // namespace tensorshelf::testing
