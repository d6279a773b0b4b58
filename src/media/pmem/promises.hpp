// What the mapped medium promises, from what it found where it lies.
#pragma once

#include <cstdint>
#include <string>

#include <tensorshelf/medium.hpp>

#include "media/file.hpp"
#include "media/file_system.hpp"
#include "media/pmem/environment.hpp"

namespace tensorshelf {

struct PmemFacts {
  const FileSystem& system;  // of a file
  const PmemEnvironment& environment;
  PowerFailDomain domain = PowerFailDomain::unknown;
  bool is_device = false;
  std::uint64_t alignment = 0;  // unit that a device is mapped in
  bool unlocked = false;        // a writer on a device found no sysfs to lock it in
  bool needs_flush = false;     // stores rest in the CPU cache until flushed (ADR)
};

Promises pmem_promises(const PmemFacts& facts);

// Errc::not_dax, of a file on what this medium takes none from.
[[noreturn]] void throw_not_dax(const ShelfFile& file, const std::string& what);

}  // namespace tensorshelf
