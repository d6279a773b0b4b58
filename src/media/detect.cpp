// Which medium a file or device gets. Only the automatic tier chooses; an explicit one is obeyed or
// refused. The one fallback there is (no libpmem2 in this build) is named in the promises.
#include <fmt/format.h>

#include <utility>

#include <tensorshelf/error.hpp>

#include "media/file_system.hpp"
#include "media/media.hpp"

namespace tensorshelf {
namespace {

std::unique_ptr<Medium> choose_for_file(std::shared_ptr<ShelfFile> file,
                                        const OpenOptions& options) {
  const FileSystem system = probe_file_system(file->fd());
  const bool mappable = system.dax || system.tmpfs;
  if (mappable && pmem_supported()) return make_pmem_medium(std::move(file), options);
  std::string note;
  if (mappable) {
    note = fmt::format(
        "the file could be mapped ({}{}), but this build has no libpmem2: install libpmem2-dev and "
        "build again",
        system.name, system.dax ? ", DAX" : "");
  }
  return make_block_medium(std::move(file), options, std::move(note));
}

}  // namespace

std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options) {
  const bool dax_device = file->kind() == FileKind::dax_device;
  switch (options.tier) {
    case Tier::pmem:
      return make_pmem_medium(std::move(file), options);
    case Tier::block:
      if (dax_device) {
        throw Error(
            Errc::unsupported,
            fmt::format("{} is a DevDAX device, which can only be mapped", file->path().native()),
            "leave the tier automatic, or use tier=\"pmem\"");
      }
      break;
    case Tier::automatic:
      if (dax_device) return make_pmem_medium(std::move(file), options);
      if (file->kind() == FileKind::regular) return choose_for_file(std::move(file), options);
      break;
  }
  return make_block_medium(std::move(file), options);
}

}  // namespace tensorshelf
