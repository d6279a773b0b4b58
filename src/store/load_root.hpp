// Everything that a root names, read once, checked, and from then on used from memory only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/shelf.hpp>

#include "store/manifest.hpp"
#include "store/page_reader.hpp"
#include "store/tensor.hpp"

namespace tensorshelf {

struct LoadedRoot {
  Manifest manifest;
  std::vector<std::shared_ptr<StoredTensor>> tensors;
  std::vector<Extent> used;  // by pages and slots
  std::vector<PageRepair> repairs;
  Unread unread;
};

// Errc::corrupt where a page has no good copy or the pages contradict each other: counts, bounds,
// overlaps and names are all checked, whoever wrote them. Of pages that are `known` (which may be
// null) the medium is not asked.
LoadedRoot load_root(Medium& medium, const format::Seeds& seeds, const format::Root& root,
                     KnownPages* known = nullptr);

// Reads every chunk that the root names; the first damaged one, in words, if there is one.
std::optional<std::string> find_damage(Medium& medium, const format::Seeds& seeds,
                                       const LoadedRoot& loaded, const Progress& progress);

}  // namespace tensorshelf
