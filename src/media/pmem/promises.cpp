#include "media/pmem/promises.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

#include "base/size_text.hpp"
#include "media/mapped.hpp"

namespace tensorshelf {

Promises pmem_promises(const PmemFacts& facts) {
  Promises found;
  found.medium = "pmem";
  found.mapped = true;
  found.atomic_bytes = 8;
  found.notes = facts.environment.notes;
  if (facts.system.tmpfs) {
    found.detail = "file on tmpfs";
    found.survives = Survives::process_crash;
    found.notes.push_back(
        "tmpfs is memory: the shelf outlives a crash of the process, not a power loss or reboot; "
        "for those keep it on FS-DAX, DevDAX or a drive");
    return found;
  }
  if (facts.unlocked) {
    found.notes.push_back(
        "there is no sysfs: a writer at another node of this device is not kept out by a lock; "
        "mount sysfs");
  }
  found.detail = facts.is_device
                     ? fmt::format("DevDAX device, mapped by {}", size_text(facts.alignment))
                     : fmt::format("FS-DAX file on {}, MAP_SYNC", facts.system.name);
  found.needs_flush = facts.needs_flush;
  if (facts.is_device) {
    found.notes.push_back(
        "containers with a network namespace and a node of this device each do not see each "
        "other's lock: let one of them open it for writing");
  }
  if (facts.domain == PowerFailDomain::cpu_cache) found.detail += ", eADR";
  found.survives = facts.environment.flushes ? Survives::power_loss : Survives::process_crash;
  if (facts.domain == PowerFailDomain::none) {
    found.survives = Survives::process_crash;
    found.notes.push_back(kNoAdrNote);
  }
  return found;
}

void throw_not_dax(const ShelfFile& file, const std::string& what) {
  throw Error(Errc::not_dax, fmt::format("{} is {}", file.path().native(), what),
              "leave the tier automatic, or use tier=\"block\"; if it should be persistent memory, "
              "mount the file system with -o dax");
}

}  // namespace tensorshelf
