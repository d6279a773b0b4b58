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
  std::string (*absent)(const Place& place);  // the note of what was chosen in its place
  std::unique_ptr<Medium> (*make)(std::shared_ptr<ShelfFile> file, const OpenOptions& options,
                                  std::string note);
};

std::string no_libpmem2(const Place& place) {
  return fmt::format(
      "the file could be mapped ({}{}), but this build has no libpmem2: install libpmem2-dev and "
      "build again",
      place.system.name, place.system.dax ? ", DAX" : "");
}

constexpr std::array kKinds = {
    Kind{Tier::pmem, [](const Place& place) { return place.mappable(); }, pmem_supported,
         no_libpmem2, make_pmem_medium},
    Kind{Tier::block, [](const Place& place) { return !place.dax_device; }, [] { return true; },
         nullptr, make_block_medium},
};

struct Choice {
  const Kind* kind;
  std::string note;
};

Choice choose(const Place& place) {
  const Kind* taken = nullptr;  // though not built: where nothing else is, making it says so
  for (const Kind& kind : kKinds) {
    if (!kind.takes(place)) continue;
    if (kind.built()) return {&kind, taken == nullptr ? "" : taken->absent(place)};
    if (taken == nullptr) taken = &kind;
  }
  TENSORSHELF_ASSERT(taken != nullptr);
  return {taken, {}};
}

Place place_of(const ShelfFile& file) {
  Place place{.dax_device = file.kind() == FileKind::dax_device};
  if (file.kind() == FileKind::regular) place.system = probe_file_system(file.fd());
  return place;
}

}  // namespace

std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options) {
  if (options.tier == Tier::automatic) {
    auto [kind, note] = choose(place_of(*file));
    return kind->make(std::move(file), options, std::move(note));
  }
  const auto* const asked = std::ranges::find(kKinds, options.tier, &Kind::tier);
  TENSORSHELF_ASSERT(asked != kKinds.end());  // each tier but the automatic one has a kind
  return asked->make(std::move(file), options, {});
}

}  // namespace tensorshelf
