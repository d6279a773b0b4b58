#include "store/media_set/further_media.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/io/medium_headers.hpp"
#include "store/manifest/attempt.hpp"
#include "store/places/heap.hpp"

namespace tensorshelf {

ShelfMedia shelf_media(std::unique_ptr<Medium> first, std::vector<OfferedMedium> offered,
                       FindMedium find, std::uint64_t path_hash, std::vector<unsigned> without) {
  auto all = std::make_shared<GuardedMedium>(std::move(first));
  auto further = std::make_shared<FurtherMedia>(*all, std::move(offered), std::move(find),
                                                path_hash, std::move(without));
  return {std::move(all), std::move(further)};
}

FurtherMedia::FurtherMedia(GuardedMedium& media, std::vector<OfferedMedium> offered,
                           FindMedium find, std::uint64_t path_hash, std::vector<unsigned> without)
    : media_(media),
      offered_(std::move(offered), std::move(find)),
      path_hash_(path_hash),
      without_(std::move(without)),
      attached_(media) {}

void FurtherMedia::begin(const format::Superblock& superblock, Purpose purpose) {
  superblock_ = superblock;
  purpose_ = purpose;
  for (std::string& note : offered_.classify(superblock.shelf_id, reads(purpose))) {
    notes_.push_back(std::move(note));
  }
}

void FurtherMedia::check_age(const Version& version) {
  const auto all = attached_.all();
  if (all.empty() || purpose_ == Purpose::salvage || planted(Bug::medium_age_ignored)) return;
  std::array<std::uint64_t, kMaxMedia> newest = {};
  for (const auto& loaded : version.loaded) {
    const StoredTensor& tensor = *loaded.tensor;
    const MediumSet media = tensor.layout.media();
    if (!media.has_further()) continue;
    std::uint64_t last = 0;
    for (std::uint64_t chunk = 0; chunk < tensor.layout.cell_count(); ++chunk) {
      last = std::max(last, format::chunk_version(version.tree.record(tensor.cell(chunk))));
    }
    for (const AttachedMedium& each : all) {
      if (media.has(each.index)) newest[each.index] = std::max(newest[each.index], last);
    }
  }
  for (const AttachedMedium& each : all) {
    if (newest[each.index] == 0) continue;
    const auto there = stamped_last(media_, each.index, each.id);
    if (!there || *there >= newest[each.index]) continue;
    if (mirrors_read_.contains(each.index)) {  // chunk by chunk, by their checksums
      notes_.push_back(
          fmt::format("{} is an older copy of medium {}: its mirror is read where they "
                      "differ",
                      each.path, each.index));
      continue;
    }
    throw Error(Errc::medium_missing,
                fmt::format("{} is an older copy of medium {}: version {} was the last to write to "
                            "it, and version {} did",
                            each.path, each.index, *there, newest[each.index]),
                kGiveMedium);
  }
}

std::vector<std::string> FurtherMedia::take_notes() { return std::exchange(notes_, {}); }

}  // namespace tensorshelf
