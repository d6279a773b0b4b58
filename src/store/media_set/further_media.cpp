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
    : parts_{media, OfferedMedia(std::move(offered), std::move(find)), AttachedMedia(media)},
      path_hash_(path_hash),
      without_(std::move(without)) {}

void FurtherMedia::begin(const format::Superblock& superblock, Purpose purpose) {
  parts_.superblock = superblock;
  purpose_ = purpose;
  for (std::string& note : parts_.offered.classify(superblock.shelf_id, reads(purpose))) {
    parts_.notes.push_back(std::move(note));
  }
}

MirrorOfFirst offered_mirror(const OfferedMedia::Offered& offered) {
  Medium& medium = *offered.given.found.medium;
  MirrorOfFirst there{medium, format::kMirrorAt, medium.size(), offered.given.path, {}};
  if (there.has_heads()) there.stamp = stamped_last(medium, 0, offered.header->medium_id);
  return there;
}

// One that was cut short within its heads is none.
std::optional<MirrorOfFirst> FurtherMedia::mirror_of_first() const {
  if (parts_.mirror_of_first) {
    const bool serves = parts_.mirror_of_first->has_heads() || planted(Bug::short_mirror_asked);
    return serves ? parts_.mirror_of_first : std::nullopt;
  }
  for (const auto& each : parts_.offered.all()) {
    if (!each.is_left() || !each.mirrors_first()) continue;
    if (const MirrorOfFirst there = offered_mirror(each); there.has_heads()) return there;
  }
  return {};
}

void FurtherMedia::check_age(const Version& version) {
  const auto all = parts_.attached.all();
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
    const auto there = stamped_last(parts_.media, each.index, each.id);
    if (!there || *there >= newest[each.index]) continue;
    if (mirrors_read_.contains(each.index)) {  // chunk by chunk, by their checksums
      parts_.notes.push_back(
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

void tie_mirrors(MediaParts& parts) {
  for (const AttachedMedium& each : parts.attached.all()) {
    if (!each.mirrors || each.absent || each.retired || parts.attached.is_mirrored(*each.mirrors))
      continue;
    if (!parts.media.is_attached(*each.mirrors)) continue;  // of a version that is looked at later
    parts.media.mirror(*each.mirrors, each.index, format::kMirrorAt);
    if (*each.mirrors == 0) {
      parts.mirror_of_first.emplace(
          MirrorOfFirst{parts.media, place_on(each.index, format::kMirrorAt),
                        place_on(each.index, parts.media.size_of(each.index)), each.path,
                        stamped_last(parts.media, each.index, each.id)});
    }
    parts.attached.tie(each.index);
  }
}

std::vector<std::string> FurtherMedia::take_notes() { return std::exchange(parts_.notes, {}); }

}  // namespace tensorshelf
