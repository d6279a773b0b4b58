#include "store/io/head.hpp"

#include <fmt/format.h>

#include <array>

#include <tensorshelf/error.hpp>

#include "base/size_text.hpp"
#include "store/io/medium_headers.hpp"

namespace tensorshelf {

using format::kCopies;

namespace {

using SuperblockReads = std::array<format::SuperblockRead, kCopies>;

[[noreturn]] void throw_no_superblock(const SuperblockReads& reads, std::uint64_t size,
                                      const Unread& unread) {
  using format::SuperblockState;
  for (const auto& read : reads) {
    if (read.state != SuperblockState::newer) continue;
    throw Error(
        Errc::newer_format,
        fmt::format("the shelf is of format {} with features {:#x} and K = {}; this release "
                    "reads formats {} to {} with K = {} to {}",
                    read.stated.format_version, read.stated.incompat_features,
                    read.stated.slot_count, format::kOldestFormat, format::kFormatVersion,
                    format::kMinSlots, format::kMaxSlots),
        "Open it with the tensorshelf release that wrote it, or a later one.");
  }
  for (const auto& read : reads) {
    if (read.state != SuperblockState::older) continue;
    throw Error(
        Errc::unsupported,
        fmt::format("the shelf is of format {}, which was never released; this release "
                    "reads formats {} to {}",
                    read.stated.format_version, format::kOldestFormat, format::kFormatVersion),
        "Copy its tensors into a new shelf with the build that wrote it.");
  }
  for (const auto& read : reads) {
    if (read.state != SuperblockState::damaged) continue;
    throw Error(Errc::corrupt, "both copies of the superblock are damaged" + unread.reason(),
                "Restore the file from a copy.", unread.os_error);
  }
  throw Error(
      Errc::not_a_shelf,
      size < kPageBytes                         ? "it is too short for a shelf header"
      : reads[0].state == SuperblockState::zero ? "there is no shelf header (all zero)"
                                                : "there is no shelf header",
      "Where a shelf was, its header is lost, and neither salvage=True nor repair() finds the "
      "rest: restore the file from a copy. mode \"w\" makes a new shelf there and erases "
      "what there is.");
}

// One that belongs to a shelf beside its first.
void refuse_further_medium(Medium& medium) {
  const auto header = read_medium_headers(medium, 0).best();
  if (!header) return;
  const std::string id = id_text(header->shelf_id);
  const bool mirrors = format::mirrored_by(*header) == 0U;
  throw Error(
      Errc::not_a_shelf,
      fmt::format("it is medium {} of the shelf {}, and no shelf by itself", header->index, id),
      mirrors ? "It mirrors the shelf's own: open that. Where it is lost, mode=\"r\" opens its "
                "mirror, and snapshot() makes a new shelf of it."
              : "Open that shelf; also= tells where this medium is now.");
}

}  // namespace

ShelfHead read_head(Medium& medium) {
  const std::uint64_t size = medium.size();
  ShelfHead head;
  SuperblockReads reads = {};
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (format::superblock_at(copy) + kPageBytes > size) continue;
    const auto page = read_page(medium, format::superblock_at(copy), head.unread);
    reads[copy] = page ? format::read_superblock(*page, copy)
                       : format::SuperblockRead{format::SuperblockState::damaged};
  }
  const format::Superblock* good = nullptr;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (!reads[copy].superblock) {
      head.bad_copies.push_back(copy);
    } else if (good == nullptr) {
      good = &*reads[copy].superblock;
    }
  }
  if (good == nullptr) {
    refuse_further_medium(medium);
    throw_no_superblock(reads, size, head.unread);
  }
  if (size < format::kHeapAt) {
    throw Error(Errc::truncated,
                fmt::format("the headers of a shelf take {}, and only {} are there",
                            size_text(format::kHeapAt), size_text(size)),
                "The file was cut short: restore it from a copy.");
  }
  head.superblock = *good;
  head.writes_allowed = good->ro_compat_features == 0;
  return head;
}

}  // namespace tensorshelf
