#include "store/further_media.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/attempt.hpp"
#include "store/heap.hpp"
#include "store/medium_headers.hpp"

namespace tensorshelf {

using format::MediumHeader;

namespace {

void check_header(const MediumHeader& header, const std::string& path) {
  const bool known = header.incompat_features == 0 || format::mirrored_by(header);
  if (header.format_version <= format::kFormatVersion && known) return;
  throw Error(
      Errc::newer_format,
      fmt::format("{} is a medium of format {} with features {:#x}; this release reads up "
                  "to {}",
                  path, header.format_version, header.incompat_features, format::kFormatVersion),
      "Open it with the tensorshelf release that wrote it, or a later one.");
}

// What is offered by a header of this shelf's.
void check_mirror(const OfferedMedium& given, const MediumHeader& header) {
  const auto bears = format::mirrored_by(header);
  if (!given.mirrors || bears == given.mirrors) return;
  throw Error(
      Errc::bad_argument,
      fmt::format("{} is to mirror medium {}, and is medium {} of the shelf, which mirrors {}",
                  given.path, *given.mirrors, header.index,
                  bears ? fmt::format("medium {}", *bears) : "none"),
      "Give it by also=, or another path by mirror=.");
}

}  // namespace

ShelfMedia shelf_media(std::unique_ptr<Medium> first, std::vector<OfferedMedium> offered,
                       FindMedium find, std::uint64_t home, std::vector<unsigned> without) {
  auto all = std::make_shared<GuardedMedium>(std::move(first));
  auto further = std::make_shared<FurtherMedia>(*all, std::move(offered), std::move(find), home,
                                                std::move(without));
  return {std::move(all), std::move(further)};
}

FurtherMedia::FurtherMedia(GuardedMedium& media, std::vector<OfferedMedium> offered,
                           FindMedium find, std::uint64_t home, std::vector<unsigned> without)
    : media_(media), find_(std::move(find)), home_(home), without_(std::move(without)) {
  for (OfferedMedium& each : offered) offered_.push_back({std::move(each), std::nullopt});
}

void FurtherMedia::begin(const format::Superblock& superblock, bool salvage, bool reading) {
  superblock_ = superblock;
  salvage_ = salvage;
  reading_ = reading;
  for (Offered& each : offered_) {
    if (each.given.found.medium && !each.given.anew) classify(each);
  }
  refuse_doubles();
}

// A copy of a medium would be taken for one more, and written over.
void FurtherMedia::refuse_doubles() const {
  for (auto one = offered_.begin(); one != offered_.end(); ++one) {
    const auto same = std::find_if(offered_.begin(), one, [&](const Offered& other) {
      return one->header && other.header && other.header->medium_id == one->header->medium_id;
    });
    if (same == one) continue;
    throw Error(Errc::medium_missing,
                fmt::format("{} and {} are both medium {} of the shelf", same->given.path,
                            one->given.path, one->header->index),
                "Give the one that the shelf was written with last.");
  }
}

void FurtherMedia::classify(Offered& offered) const {
  const std::string& path = offered.given.path;
  Medium& medium = *offered.given.found.medium;
  const MediumHeaders headers = read_medium_headers(medium, 0, superblock_.shelf_id);
  offered.header = headers.best();
  const auto file = offered.given.found.file.lock();
  if (may_become_medium(medium, headers, file.get())) return;
  if (!offered.header) throw_no_medium(medium, path);
  check_header(*offered.header, path);
  if (offered.header->shelf_id == superblock_.shelf_id)
    return check_mirror(offered.given, *offered.header);
  throw Error(
      Errc::medium_missing,
      fmt::format("{} is medium {} of the shelf {}, and this is {}", path, offered.header->index,
                  id_text(offered.header->shelf_id), id_text(superblock_.shelf_id)),
      "Give the media of this shelf by also=.");
}

FurtherMedia::Offered* FurtherMedia::find_offered(const format::ShelfId& id) {
  for (Offered& each : offered_) {
    if (each.header && each.header->medium_id == id) return &each;
  }
  return nullptr;
}

void FurtherMedia::check_age(const Version& version) {
  const auto all = attached();
  if (all.empty() || salvage_ || planted(Bug::medium_age_ignored)) return;
  std::array<std::uint64_t, kMaxMedia> newest = {};
  for (const auto& loaded : version.loaded) {
    const StoredTensor& tensor = *loaded.tensor;
    const unsigned media = tensor.layout.media();
    if (media == 1) continue;
    std::uint64_t last = 0;
    for (std::uint64_t chunk = 0; chunk < tensor.layout.cell_count(); ++chunk) {
      last = std::max(last, format::chunk_version(version.tree.record(tensor.cell(chunk))));
    }
    for (const AttachedMedium& each : all) {
      if ((media >> each.index & 1U) != 0) newest[each.index] = std::max(newest[each.index], last);
    }
  }
  for (const AttachedMedium& each : all) {
    if (newest[each.index] == 0) continue;
    const auto there = stamped_last(media_, each.index, each.id);
    if (!there || *there >= newest[each.index]) continue;
    throw Error(Errc::medium_missing,
                fmt::format("{} is an older copy of medium {}: version {} was the last to write to "
                            "it, and version {} did",
                            each.path, each.index, *there, newest[each.index]),
                kGiveMedium);
  }
}

void FurtherMedia::stamp(std::uint8_t bits, std::uint64_t version) {
  if (bits <= 1) return;
  for (const AttachedMedium& each : attached()) {
    if ((bits >> each.index & 1U) == 0 || planted(Bug::medium_not_stamped)) continue;
    stamp_medium(media_, each.index, each.id, version);
  }
}

std::vector<AttachedMedium> FurtherMedia::attached() const {
  const std::lock_guard lock(mutex_);
  return attached_;
}

bool FurtherMedia::is_mirrored(unsigned index) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      attached_, [&](const AttachedMedium& each) { return each.tied && each.mirrors == index; });
}

unsigned FurtherMedia::in_use() const {
  const std::lock_guard lock(mutex_);
  unsigned bits = 0;
  for (const AttachedMedium& each : attached_) bits |= unsigned{!each.retired} << each.index;
  return bits;
}

void FurtherMedia::check_names(unsigned which, bool lately) const {
  constexpr auto kLately = std::chrono::milliseconds(1);
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (const AttachedMedium& each : attached_) {
    if ((which >> each.index & 1U) == 0) continue;
    auto& asked = asked_[each.index];
    if (lately && now - asked < kLately && media_.is_settled(each.index)) continue;
    if (const auto file = each.file.lock()) file->check_name();
    asked = now;
  }
}

void FurtherMedia::retire(unsigned index, bool retired) {
  const std::lock_guard lock(mutex_);
  std::ranges::find(attached_, index, &AttachedMedium::index)->retired = retired;
  any_retired_ = true;
  ++changes_;
}

void FurtherMedia::revive(const Tree& open) noexcept {
  if (!any_retired_) return;
  try {
    const auto media = open.media();
    const std::lock_guard lock(mutex_);
    for (const auto& named : media) {
      auto& retired = std::ranges::find(attached_, named.index, &AttachedMedium::index)->retired;
      if (std::exchange(retired, false)) ++changes_;
    }
  } catch (const std::exception&) {  // no memory: nothing is placed there until it is opened again
  }
}

std::vector<std::string> FurtherMedia::take_notes() { return std::exchange(notes_, {}); }

}  // namespace tensorshelf
