// From a root to what it names: the manifest, copied to memory once and validated, and the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

#include "format/format.hpp"
#include "media/media.hpp"
#include "store/manifest/attempt.hpp"
#include "store/recovery/page_reader.hpp"

namespace tensorshelf {

class FurtherMedia;

struct LoadedRoot {
  std::shared_ptr<Version> version;
  std::vector<PageRepair> repairs;
  Unread unread;  // copies whose twin served
};

// The tensors of versions that were loaded before, by their ids: versions share them.
using KnownTensors = std::map<std::uint64_t, Named>;

// Errc::corrupt where a page is lost in both copies, or where pages contradict each other: counts,
// bounds, names are all checked, whoever wrote them, and what the version of one tensor says
// against what is known of it. Of pages that are known the medium is not asked.
// The media that it names are attached by `further`, whose errors come here; null: there are none.
LoadedRoot load_root(Medium& medium, const format::Seeds& seeds, const format::Root& root,
                     KnownPages& known, const KnownTensors& tensors = {},
                     FurtherMedia* further = nullptr);

// Errc::corrupt where a slot that the older one names lies elsewhere in the newer one, which
// retains it: it was in use.
void check_places(const Version& older, const Version& newer);

// What versions name, each thing once, one version after the other.
class ClaimList {
 public:
  // What `version`, as it was loaded, names beside those before.
  Claims add(const std::shared_ptr<const Version>& version);

 private:
  std::shared_ptr<const Version> last_;
  std::vector<const void*> seen_;  // sorted; of those before the last
};

}  // namespace tensorshelf
