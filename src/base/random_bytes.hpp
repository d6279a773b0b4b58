// What nobody can foresee: ids, and names of temporary files.
#pragma once

#include <cstddef>
#include <span>

namespace tensorshelf {

// Throws Errc::io where the system gives none: a filter of system calls may forbid it.
void random_bytes(std::span<std::byte> into);

}  // namespace tensorshelf
