// Which medium a file or device gets: the first in the table that takes it and is in this build.
// Only the automatic tier chooses; an explicit one is obeyed or refused. The one fallback there is
// (no libpmem2 in this build) is named in the promises.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

#include "media/block/medium.hpp"
#include "media/file_system.hpp"
#include "media/media.hpp"
#include "media/pmem/medium.hpp"
#include "media/pool/medium.hpp"
#include "media/pool/recognise.hpp"

namespace tensorshelf {
namespace {

struct Site {
  bool dax_device = false;
  FileSystem system = {};  // of a regular file

  bool mappable() const { return dax_device || system.dax || system.tmpfs; }
};

struct Kind {
  std::string_view name;  // by which it is asked for
  bool (*takes)(const Site& site);
  bool (*built)();
  // The note of what was chosen in its place; null where it is always there, or chosen by nobody.
  std::string (*absent)(const Site& site) = nullptr;
  std::unique_ptr<Medium> (*make)(std::shared_ptr<ShelfFile> file, const OpenOptions& options,
                                  std::string note);
  // A file that is for it alone, by what it begins with, and what such a one is called.
  bool (*owns)(const ShelfFile& file) = nullptr;
  std::string_view owned = {};
  bool (*describes)(const std::filesystem::path& path) = nullptr;  // a file that tells of its parts
};

std::string no_libpmem2(const Site& site) {
  return fmt::format(
      "the file could be mapped ({}{}), but this build has no libpmem2: install libpmem2-dev and "
      "build again",
      site.system.name, site.system.dax ? ", DAX" : "");
}

constexpr std::array kKinds = {
    Kind{.name = "pmem",
         .takes = [](const Site& site) { return site.mappable(); },
         .built = pmem_supported,
         .absent = no_libpmem2,
         .make = make_pmem_medium},
    Kind{.name = "block",
         .takes = [](const Site& site) { return !site.dax_device; },
         .built = [] { return true; },
         .make = make_block_medium},
    Kind{.name = "pool",
         .takes = [](const Site&) { return false; },
         .built = pool_supported,
         .make = make_pool_medium,
         .owns = is_pool,
         .owned = "a pool of libpmemobj",
         .describes = is_pool_set},
};

constexpr std::string_view kAutomatic = "auto";

struct Choice {
  const Kind* kind;
  std::string note;
};

Choice choose(const Site& site) {
  const Kind* taken = nullptr;  // though not built: where nothing else is, making it says so
  for (const Kind& kind : kKinds) {
    if (!kind.takes(site)) continue;
    if (kind.built()) return {&kind, taken == nullptr ? "" : taken->absent(site)};
    if (taken == nullptr) taken = &kind;
  }
  TENSORSHELF_ASSERT(taken != nullptr);
  return {taken, {}};
}

Site site_of(const ShelfFile& file) {
  Site site{.dax_device = file.kind() == FileKind::dax_device};
  if (file.kind() == FileKind::regular) site.system = probe_file_system(file.fd());
  return site;
}

const Kind* owner_of(const ShelfFile& file) {
  const auto owns = [&](const Kind& kind) { return kind.owns != nullptr && kind.owns(file); };
  const auto* const found = std::ranges::find_if(kKinds, owns);
  return found == kKinds.end() ? nullptr : found;
}

const Kind& kind_named(const std::string& tier) {
  const auto* const found = std::ranges::find(kKinds, tier, &Kind::name);
  if (found != kKinds.end()) return *found;
  throw Error(Errc::bad_argument, fmt::format("tier=\"{}\" is unknown", tier),
              fmt::format("Use one of \"{}\".", fmt::join(tiers(), "\", \"")));
}

}  // namespace

MadeAs made_as(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (is_block_file(status) || is_character_file(status)) return MadeAs::device;
  const auto described = [&](const Kind& kind) {
    return kind.describes != nullptr && kind.describes(path);
  };
  return std::ranges::any_of(kKinds, described) ? MadeAs::parts : MadeAs::file;
}

std::vector<std::string> tiers() {
  std::vector<std::string> names = {std::string(kAutomatic)};
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options) {
  const Kind* const owner = owner_of(*file);
  if (options.tier == kAutomatic) {
    auto [kind, note] = owner == nullptr ? choose(site_of(*file)) : Choice{owner, {}};
    return kind->make(std::move(file), options, std::move(note));
  }
  const Kind& kind = kind_named(options.tier);
  if (owner != nullptr && owner != &kind) {
    throw Error(Errc::unsupported,
                fmt::format("{} is {}, and tier=\"{}\" takes none", file->path().native(),
                            owner->owned, kind.name),
                "leave the tier automatic");
  }
  return kind.make(std::move(file), options, {});
}

}  // namespace tensorshelf
