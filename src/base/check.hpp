// Asserts on our own mistakes. They stay on in release: a store that would rather go on than stop
// is no store.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TENSORSHELF_ASSERT(condition)                                                           \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      std::fprintf(stderr, "tensorshelf: assertion failed: %s (%s:%d)\n", #condition, __FILE__, \
                   __LINE__);                                                                   \
      std::abort();                                                                             \
    }                                                                                           \
  } while (false)
