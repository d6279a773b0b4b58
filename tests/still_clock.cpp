// clock_gettime() of this program, in place of the C library's: a root says when it was made, and a
// run must be repeatable to the byte. The time of day stands still, all other clocks go.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_REALTIME) return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  *time = {.tv_sec = 1'700'000'000, .tv_nsec = 0};
  return 0;
}
