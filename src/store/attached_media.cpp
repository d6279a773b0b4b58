// Media beside the first that a version names: found where they are now, attached, and tied to what
// they mirror.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/size_text.hpp"
#include "media/absent.hpp"
#include "media/shifted.hpp"
#include "store/attempt.hpp"
#include "store/further_media.hpp"
#include "store/medium_headers.hpp"

namespace tensorshelf {
namespace {

constexpr const char* kGiveUp =
    "Give its path by also=, wherever it is now. without= gives it up: the next version has no "
    "mirror there. mode=\"r\" needs none.";
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
      named.mirrors ? kGiveUp
      : mirrored    ? kHasMirror
                    : kGiveMedium);
}

void check_span(const format::MediumLayout& named, std::uint64_t size, const std::string& path) {
  if (size >= named.capacity_bytes) return;
  throw Error(
      Errc::truncated,
      fmt::format("{}: medium {} of the shelf spans {}, and only {} are there", path, named.index,
                  size_text(named.capacity_bytes), size_text(size)),
      "The file was cut short: restore it from a copy. Without it, mode=\"r\", salvage=True "
      "shows what the other media have.");
}

}  // namespace

// Null, with the reason in the path's place, where it is not to be found.
FoundMedium FurtherMedia::find(const format::MediumLayout& named, bool moved, std::string& path) {
  if (Offered* const there = find_offered(named.id);
      there != nullptr && there->given.found.medium) {
    path = there->given.path;
    return std::move(there->given.found);
  }
  path.clear();
  if (!find_ || named.path.empty()) return {};
  try {
    FoundMedium found = find_(named.path);
    const auto header = read_medium_headers(*found.medium, 0).best();
    const bool its =
        header && header->medium_id == named.id && header->shelf_id == superblock_.shelf_id;
    const bool its_own = !moved || found.path != named.path;
    path = !its       ? fmt::format("{} is another", named.path)
           : !its_own ? "the shelf was moved or copied since, and takes it from there only where "
                        "also= says so"
                      : found.path;
    if (its && its_own) return found;
  } catch (const Error& error) {
    const bool needed = !named.mirrors || !(reading_ || is_given_up(named.index));
    if (error.code() != Errc::not_found && !salvage_ && needed) throw;
  }
  return {};
}

void FurtherMedia::attach(const format::MediumLayout& named, bool moved, bool mirrored) {
  std::string path;
  auto [medium, file, at] = find(named, moved, path);
  // What was cut short is as good as missing.
  const bool cut = medium && medium->size() < named.capacity_bytes;
  const auto mirror = mirrored ? mirrors_read_.find(named.index) : mirrors_read_.end();
  const bool given_up = named.mirrors && is_given_up(named.index);
  const bool serves = mirror != mirrors_read_.end() || (named.mirrors && reading_) || given_up;
  if (cut && (salvage_ || serves)) medium.reset();
  const bool absent = !medium && serves;
  const char* const how = cut ? "cut short" : "missing";
  if (absent && !named.mirrors) {
    notes_.push_back(fmt::format("medium {} (last at {}) is {}: its mirror is read in its place",
                                 named.index, named.path, how));
    medium = std::make_unique<ShiftedMedium>(mirror->second, format::kMirrorAt);
  } else if (absent) {
    notes_.push_back(fmt::format("medium {} (last at {}), the mirror of medium {}, is {}",
                                 named.index, named.path, *named.mirrors,
                                 cut ? how : "not at hand"));
    medium = std::make_unique<AbsentMedium>(named.capacity_bytes);
  } else if (!medium && salvage_) {
    notes_.push_back(
        fmt::format("medium {} (last at {}) is {}: tensors that lie there cannot "
                    "be read",
                    named.index, named.path, how));
    medium = std::make_unique<AbsentMedium>(named.capacity_bytes);
  } else if (!medium) {
    throw_missing(named, mirrored && reading_ ? "its mirror is missing, too" : path,
                  mirrored && !reading_);
  } else if (named.mirrors && reading_) {
    const std::shared_ptr<Medium> shared = std::move(medium);
    mirrors_read_.emplace(*named.mirrors, shared);
    medium = std::make_unique<ShiftedMedium>(shared, 0);
  }
  check_span(named, medium->size(), path);
  media_.attach(named.index, std::move(medium));
  const std::lock_guard lock(mutex_);
  attached_.push_back({.index = named.index,
                       .id = named.id,
                       .path = absent || path.empty() ? named.path : path,
                       .file = file,
                       .offered = find_offered(named.id) != nullptr,
                       .mirrors = named.mirrors,
                       .absent = absent});
  std::ranges::sort(attached_, {}, &AttachedMedium::index);
  any_ = true;
}

void FurtherMedia::need(const Tree& version) {
  const std::uint64_t home = version.media_home();
  const bool moved = home != 0 && home != home_;
  format::MediaTable named = version.media();
  // Each may be read in the place of what it mirrors.
  std::ranges::stable_partition(named, [](const auto& each) { return each.mirrors.has_value(); });
  for (const format::MediumLayout& each : named) {
    if (!media_.is_attached(each.index)) {
      const auto its = [&](const auto& other) { return other.mirrors == each.index; };
      attach(each, moved, std::ranges::any_of(named, its));
      continue;
    }
    const auto all = attached();
    const auto there = std::ranges::find(all, each.index, &AttachedMedium::index);
    if (there != all.end() && there->id == each.id) {
      check_span(each, media_.size_of(each.index), there->path);  // its writer made it grow
      continue;
    }
    throw Error(Errc::stale,
                fmt::format("medium {} of the shelf is another one by now", each.index),
                "Open the shelf again.");
  }
  tie_mirrors();
}

void FurtherMedia::tie_mirrors() {
  for (const AttachedMedium& each : attached()) {
    if (!each.mirrors || each.absent || (tied_ >> *each.mirrors & 1U) != 0) continue;
    if (!media_.is_attached(*each.mirrors)) continue;  // of a version that is looked at later
    media_.mirror(*each.mirrors, each.index, format::kMirrorAt);
    tied_ |= 1U << *each.mirrors;
    const std::lock_guard lock(mutex_);
    std::ranges::find(attached_, each.index, &AttachedMedium::index)->tied = true;
  }
}

}  // namespace tensorshelf
