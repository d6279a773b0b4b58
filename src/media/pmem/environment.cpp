// Which variables count was read off libpmem2 1.12: getenv in src/libpmem2/map.c and
// src/libpmem2/x86_64/init.c. PMEM_NO_CLWB, PMEM_NO_CLFLUSHOPT and PMEM_NO_MOVNT choose slower
// instructions that are as durable, and need no word here.
#include "media/pmem/environment.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <cstdlib>

namespace tensorshelf {
namespace {

bool is(const char* value, const char* word) { return ::strcasecmp(value, word) == 0; }

}  // namespace

PmemEnvironment pmem_environment(PowerFailDomain domain) {
  PmemEnvironment found;
  if (const char* forced = ::secure_getenv("PMEM2_FORCE_GRANULARITY")) {
    // BYTE is the truth where the platform flushes the caches itself (eADR).
    found.flushes = !is(forced, "BYTE") || domain == PowerFailDomain::cpu_cache;
    found.notes.push_back(fmt::format(
        "PMEM2_FORCE_GRANULARITY={} is set: {}; unset it", forced,
        found.flushes ? "flushing follows it and not the platform"
                      : "CPU caches are not flushed, so a power loss can lose acknowledged data"));
  }
  // Only libpmem and libpmemobj obey these two, but who sets them believes that durability is off.
  for (const char* name : {"PMEM_IS_PMEM_FORCE", "PMEM_NO_FLUSH"}) {
    const char* value = ::secure_getenv(name);
    if (value == nullptr || is(value, "0")) continue;
    found.notes.push_back(fmt::format(
        "{}={} is set: libpmem2 ignores it, so this shelf is still flushed, but libpmem and "
        "libpmemobj in this process are not durable; unset it",
        name, value));
  }
  return found;
}

}  // namespace tensorshelf
