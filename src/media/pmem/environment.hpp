// Environment variables of PMDK that weaken what persistent memory promises. They are honoured, for
// they serve tests and measurements, but never silently: promises() names each.
#pragma once

#include <string>
#include <vector>

#include "media/file_system.hpp"

namespace tensorshelf {

struct PmemEnvironment {
  std::vector<std::string> notes;
  bool flushes = true;  // false: libpmem2 was told not to flush, and the platform does not either
};

PmemEnvironment pmem_environment(PowerFailDomain domain);

}  // namespace tensorshelf
