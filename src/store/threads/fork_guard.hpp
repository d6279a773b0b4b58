// Tells a forked child from the process that opened the shelf, at the cost of one load: a number on
// a page that the kernel wipes in the child (MADV_WIPEONFORK, Linux 4.14). A child must never
// commit. The page is the process's, and not each shelf's, for mapping one costs as much as the
// rest of opening a small shelf; it is never given back.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

class ForkGuard {
 public:
  ForkGuard() : number_(page()), mine_(this_process(number_)) {}
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool in_child() const { return number_.load(std::memory_order_relaxed) != mine_; }

 private:
  using Number = std::atomic<std::uint64_t>;  // 0: wiped, and this process opened nothing yet
  static_assert(Number::is_always_lock_free);

  static Number& page() {
    static Number& number = [&]() -> Number& {
      constexpr std::size_t bytes = 4096;
      void* page =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (page == MAP_FAILED) throw std::bad_alloc();
      if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) {
        const int os_error = errno;
        ::munmap(page, bytes);
        throw Error(Errc::unsupported,
                    "the kernel does not clear a page in forked children (MADV_WIPEONFORK), so "
                    "that a child could not be kept from committing",
                    "use Linux 4.14 or later, where no sandbox refuses it", os_error);
      }
      return *new (page) Number(0);
    }();
    return number;
  }

  // Another than that of any ancestor: a child goes on counting where its parent was.
  static std::uint64_t this_process(Number& number) {
    static Number last = 0;
    std::uint64_t now = number.load();
    if (now != 0) return now;
    const std::uint64_t fresh = ++last;
    return number.compare_exchange_strong(now, fresh) ? fresh : now;
  }

  Number& number_;
  std::uint64_t mine_;
};

}  // namespace tensorshelf
