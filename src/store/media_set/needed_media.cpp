// Media beside the first that a version names: found where they are now, attached, and tied to what
// they mirror.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/size_text.hpp"
#include "media/absent.hpp"
#include "media/shifted.hpp"
#include "store/io/medium_headers.hpp"
#include "store/manifest/attempt.hpp"
#include "store/media_set/further_media.hpp"

namespace tensorshelf {
namespace {

constexpr const char* kGiveUp =
    "Give its path by mirror=, wherever it is now. without={} gives this mirror up, in the next "
    "version. mode=\"r\" needs none.";
constexpr const char* kHasMirror =
    "Give its path by also=, wherever it is now. Without it, mode=\"r\" reads what was there from "
    "its mirror, and snapshot() makes a whole shelf of that.";

[[noreturn]] void throw_missing(const format::MediumLayout& named, const std::string& why,
                                bool mirrored) {
  throw Error(
      Errc::medium_missing,
      fmt::format("medium {} of the shelf ({}{}) is missing{}", named.index, id_text(named.id),
                  named.path.empty() ? "" : fmt::format(", last at {}", named.path),
                  why.empty() ? "" : fmt::format(": {}", why)),
      named.mirrors ? fmt::format(kGiveUp, named.index)
      : mirrored    ? kHasMirror
                    : kGiveMedium);
}

[[noreturn]] void throw_missing_to_older(const format::MediumLayout& named) {
  throw Error(
      Errc::medium_missing,
      fmt::format("medium {} of the shelf ({}{}) is missing: it was removed, and versions before "
                  "the newest have tensors there still",
                  named.index, id_text(named.id),
                  named.path.empty() ? "" : fmt::format(", last at {}", named.path)),
      "Give its path by also=, and persist() until keep= has none of these any more. Without it, "
      "mode=\"r\" shows the newest version, and snapshot() makes a new shelf of that.");
}

void check_span(const format::MediumLayout& named, std::uint64_t size, const std::string& path,
                bool mirrored) {
  if (size >= named.capacity_bytes) return;
  throw Error(
      Errc::truncated,
      fmt::format("{}: medium {} of the shelf spans {}, and only {} are there", path, named.index,
                  size_text(named.capacity_bytes), size_text(size)),
      named.mirrors
          ? fmt::format("The file was cut short: without={} gives this mirror up, in the next "
                        "version. mode=\"r\" needs none.",
                        named.index)
      : mirrored
          ? "The file was cut short: move it away. Without it, mode=\"r\" reads its mirror, and "
            "snapshot() makes a whole shelf of that."
          : "The file was cut short: restore it from a copy. Without it, mode=\"r\", salvage=True "
            "shows what the other media have.");
}

}  // namespace

// What takes the place of one that is not to be had, with a note of it; null where it is needed.
// `served`: by what it is paired with.
std::unique_ptr<Medium> FurtherMedia::stand_in(const format::MediumLayout& named, bool served,
                                               const char* how) {
  if (served && !named.mirrors) {
    parts_.notes.push_back(
        fmt::format("medium {} (last at {}) is {}: its mirror is read in its place", named.index,
                    named.path, how));
    return std::make_unique<ShiftedMedium>(mirrors_read_.at(named.index), format::kMirrorAt);
  }
  if (served) {
    parts_.notes.push_back(fmt::format("medium {} (last at {}), the mirror of medium {}, is {}",
                                       named.index, named.path, *named.mirrors, how));
    return std::make_unique<AbsentMedium>(named.capacity_bytes);
  }
  if (purpose_ != Purpose::salvage) return nullptr;
  parts_.notes.push_back(
      fmt::format("medium {} (last at {}) is {}: tensors that lie there cannot be read",
                  named.index, named.path, how));
  return std::make_unique<AbsentMedium>(named.capacity_bytes);
}

void FurtherMedia::attach(const format::MediumLayout& named, bool moved, bool mirrored) {
  const bool dispensable = reads(purpose_) || is_given_up(named.index);  // where it is a mirror
  const bool spared = named.mirrors && dispensable;
  // What the newest version gave up as a mirror is not looked for: it may be ahead.
  const bool given_up = named.mirrors && !newest_named_->media.has(named.index) &&
                        !planted(Bug::given_up_mirror_needed);
  auto [found, why_not] =
      given_up ? OfferedMedia::Search{parts_.offered.take_given(named.id), {}}
               : parts_.offered.take(named, moved, purpose_ != Purpose::salvage && !spared);
  auto& medium = found.medium;
  // What was cut short is as good as missing, where it can be spared.
  const bool cut = medium && medium->size() < named.capacity_bytes;
  const bool served = named.mirrors ? dispensable : mirrored && mirrors_read_.contains(named.index);
  bool absent = false;
  if (!medium || cut) {
    const char* const how = given_up ? "given up" : cut ? "cut short" : "missing";
    if (auto other = stand_in(named, served, how)) {
      medium = std::move(other);
      absent = served;
      found.path.clear();
      found.file = {};
    }
  }
  if (!medium) {
    if (!newest_named_->media.has(named.index)) throw_missing_to_older(named);
    throw_missing(named, mirrored && reads(purpose_) ? "its mirror is missing, too" : why_not,
                  mirrored && !reads(purpose_));
  }
  if (named.mirrors && reads(purpose_) && !absent) {
    const std::shared_ptr<Medium> shared = std::move(medium);
    mirrors_read_.emplace(*named.mirrors, shared);
    medium = std::make_unique<ShiftedMedium>(shared, 0);
  }
  const std::string path = found.path.empty() ? named.path : found.path;
  check_span(named, medium->size(), path, mirrored);
  parts_.media.attach(named.index, std::move(medium));
  parts_.attached.add({.index = named.index,
                       .id = named.id,
                       .path = path,
                       .file = found.file,
                       .offered = parts_.offered.has(named.id),
                       .mirrors = named.mirrors,
                       .absent = absent});
}

void FurtherMedia::need(const Version& version) {
  const std::uint64_t written_at = version.tree.path_hash();
  const bool moved = written_at != 0 && path_hash_ != 0 && written_at != path_hash_;
  format::MediaTable named = version.tree.media();
  if (!newest_named_ || version.number() >= newest_named_->version) {
    newest_named_.emplace(NamedMedia{version.number(), {}});
    for (const format::MediumLayout& each : named) newest_named_->media.add(each.index);
  }
  // Each may be read in the place of what it mirrors.
  std::stable_partition(named.begin(), named.end(),
                        [](const auto& each) { return each.mirrors.has_value(); });
  for (const format::MediumLayout& each : named) {
    if (!parts_.media.is_attached(each.index)) {
      const auto its = [&](const auto& other) { return other.mirrors == each.index; };
      attach(each, moved, std::ranges::any_of(named, its));
      continue;
    }
    const auto there = parts_.attached.find(each.index);
    if (there && there->id == each.id) {
      // Its writer made it grow.
      check_span(each, parts_.media.size_of(each.index), there->path,
                 parts_.attached.is_mirrored(each.index));
      continue;
    }
    throw Error(Errc::stale,
                fmt::format("medium {} of the shelf is another one by now", each.index),
                "Open the shelf again.");
  }
  tie_mirrors(parts_);
}

}  // namespace tensorshelf
