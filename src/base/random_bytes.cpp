#include "base/random_bytes.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <system_error>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

void random_bytes(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::getrandom(into.data(), into.size(), 0);
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      const int os_error = got == 0 ? 0 : errno;
      throw Error(Errc::io,
                  fmt::format("the system gives no random bytes: {}",
                              std::generic_category().message(os_error)),
                  "allow getrandom(2) where a filter of system calls (seccomp) forbids it",
                  os_error);
    }
  }
}

}  // namespace tensorshelf
