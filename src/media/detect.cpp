// Which medium a file or device gets: the first in the table that takes it and is in this build.
// Only the automatic tier chooses; an explicit one is obeyed or refused. The one fallback there is
// (no libpmem2 in this build) is named in the promises.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

#include "media/block/medium.hpp"
#include "media/file_system.hpp"
#include "media/media.hpp"
#include "media/pmem/medium.hpp"

namespace tensorshelf {
namespace {

struct Place {
  bool dax_device = false;
  FileSystem system = {};  // of a regular file

  bool mappable() const { return dax_device || system.dax || system.tmpfs; }
};

struct Kind {
  Tier tier;
  bool (*takes)(const Place& place);
  bool (*built)();
  std::unique_ptr<Medium> (*make)(std::shared_ptr<ShelfFile> file, const OpenOptions& options,
                                  std::string note);
};

constexpr std::array kKinds = {
    Kind{Tier::pmem, [](const Place& place) { return place.mappable(); }, pmem_supported,
         make_pmem_medium},
    Kind{Tier::block, [](const Place& place) { return !place.dax_device; }, [] { return true; },
         make_block_medium},
};

const Kind& kind_for(const Place& place) {
  const Kind* taken = nullptr;  // though not built: then making it says so
  for (const Kind& kind : kKinds) {
    if (!kind.takes(place)) continue;
    if (kind.built()) return kind;
    if (taken == nullptr) taken = &kind;
  }
  return *taken;
}

std::string note_of(const Kind& kind, const Place& place) {
  if (kind.tier != Tier::block || !place.mappable()) return {};
  return fmt::format(
      "the file could be mapped ({}{}), but this build has no libpmem2: install libpmem2-dev and "
      "build again",
      place.system.name, place.system.dax ? ", DAX" : "");
}

}  // namespace

std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options) {
  Place place{.dax_device = file->kind() == FileKind::dax_device};
  if (options.tier == Tier::automatic) {
    if (file->kind() == FileKind::regular) place.system = probe_file_system(file->fd());
    const Kind& kind = kind_for(place);
    return kind.make(std::move(file), options, note_of(kind, place));
  }
  if (options.tier == Tier::block && place.dax_device) {
    throw Error(
        Errc::unsupported,
        fmt::format("{} is a DevDAX device, which can only be mapped", file->path().native()),
        "leave the tier automatic, or use tier=\"pmem\"");
  }
  const auto* const asked = std::ranges::find(kKinds, options.tier, &Kind::tier);
  TENSORSHELF_ASSERT(asked != kKinds.end());  // each tier but the automatic one has a kind
  return asked->make(std::move(file), options, {});
}

}  // namespace tensorshelf
