#include "store/media_set/offered_media.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "store/io/head.hpp"
#include "store/io/medium_headers.hpp"

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

void UnnamedFile::publish() const {
  for (int tries = 0;; ++tries) {
    try {
      return file->publish(replaces, look_again);
    } catch (const Error& error) {
      if (error.code() != Errc::busy || tries == 100) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void throw_no_medium(Medium& medium, const std::string& path) {
  std::string shelf;
  try {
    shelf = id_text(read_head(medium).superblock.shelf_id);
  } catch (const Error&) {  // none, or one that is of no use either
    throw Error(Errc::not_a_shelf, fmt::format("{} is no medium of a shelf, and not empty", path),
                "Check the path. Only what is empty, or does not exist, is made one: wipe it first "
                "where it is to be.");
  }
  throw Error(Errc::not_a_shelf,
              fmt::format("{} is a shelf by itself ({}), and not a medium of another", path, shelf),
              "Check the path.");
}

OfferedMedia::OfferedMedia(std::vector<OfferedMedium> given, FindMedium find)
    : find_(std::move(find)) {
  for (OfferedMedium& each : given) offered_.push_back({std::move(each), std::nullopt});
}

std::vector<std::string> OfferedMedia::classify(const format::ShelfId& shelf_id,
                                                bool spares_mirrors) {
  std::vector<std::string> notes;
  shelf_id_ = shelf_id;
  for (Offered& each : offered_) {
    if (!each.is_left() || each.given.anew) continue;
    try {
      classify(each);
    } catch (const Error& error) {
      const bool spared = spares_mirrors && each.given.mirrors &&
                          (error.code() == Errc::not_a_shelf || error.code() == Errc::truncated);
      if (!spared) throw;
      notes.push_back(fmt::format("{} is not read as a mirror: {}", each.given.path, error.what()));
      each.given.found = {};
    }
  }
  refuse_doubles();
  return notes;
}

// A copy of a medium would be taken for one more, and written over.
void OfferedMedia::refuse_doubles() const {
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

void OfferedMedia::classify(Offered& offered) const {
  const std::string& path = offered.given.path;
  Medium& medium = *offered.given.found.medium;
  const MediumHeaders headers = read_medium_headers(medium, 0, shelf_id_);
  offered.header = headers.best();
  const auto file = offered.given.found.file.lock();
  if (may_become_medium(medium, headers, file.get())) return;
  if (!offered.header) throw_no_medium(medium, path);
  check_header(*offered.header, path);
  if (offered.header->shelf_id == shelf_id_) return check_mirror(offered.given, *offered.header);
  throw Error(
      Errc::medium_missing,
      fmt::format("{} is medium {} of the shelf {}, and this is {}", path, offered.header->index,
                  id_text(offered.header->shelf_id), id_text(shelf_id_)),
      "Give the media of this shelf by also=.");
}

const OfferedMedia::Offered* OfferedMedia::find(const format::ShelfId& medium_id) const {
  for (const Offered& each : offered_) {
    if (each.header && each.header->medium_id == medium_id) return &each;
  }
  return nullptr;
}

FoundMedium OfferedMedia::take_given(const format::ShelfId& medium_id) {
  for (Offered& each : offered_) {
    // Its writer may have made it a medium since.
    if (each.is_left() && !each.header && !each.given.anew) {
      each.header = read_medium_headers(*each.given.found.medium, 0).best();
    }
    if (!each.is_left() || !each.header || each.header->medium_id != medium_id) continue;
    FoundMedium found = std::move(each.given.found);
    found.path = each.given.path;
    return found;
  }
  return {};
}

OfferedMedia::Search OfferedMedia::take(const format::MediumLayout& named, bool moved,
                                        bool needed) {
  if (FoundMedium given = take_given(named.id); given.medium) return {std::move(given), {}};
  if (!find_ || named.path.empty()) return {};
  try {
    FoundMedium found = find_(named.path, named.mirrors.has_value());
    const auto header = found.medium ? read_medium_headers(*found.medium, 0).best() : std::nullopt;
    if (!header || header->medium_id != named.id || header->shelf_id != shelf_id_) {
      return {{}, fmt::format("{} is another, or empty, or its header is damaged", found.path)};
    }
    if (moved && found.path == named.path) {
      return {{},
              "the shelf was moved or copied since, and takes it from there only where also= says "
              "so"};
    }
    return {std::move(found), {}};
  } catch (const Error& error) {
    if (error.code() != Errc::not_found && needed) throw;
  }
  return {};
}

}  // namespace tensorshelf
