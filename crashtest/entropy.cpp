// getrandom() of this program, in place of the C library's: a shelf draws its id from it, and a run
// must be repeatable to the byte. Linked into the explorer only.
#include "entropy.hpp"

#include <sys/random.h>

#include <cstring>

#include "rng.hpp"

thread_local std::uint64_t tensorshelf::crash::entropy_salt = 0;

extern "C" ssize_t getrandom(void* buffer, size_t length, unsigned /*flags*/) {
  auto* bytes = static_cast<unsigned char*>(buffer);
  for (size_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<unsigned char>(tensorshelf::mixed(i + tensorshelf::crash::entropy_salt));
  }
  return static_cast<ssize_t>(length);
}
