// Media that mirror another: tied to it, and filled with what it has.
//
// What is written on a medium is written on its mirror by the same call, and settled by the same
// barrier, before the flip and after it. So a mirror that the newest version names, and whose
// headers and roots are those of its medium, byte for byte, has all that these name: who commits
// without it does not name it. Where it does not, or they differ (a power loss between two words,
// an older copy, a new mirror), or its end is lost, the mirror is filled: what versions name
// first, and behind a barrier the headers. Each page and chunk
// is compared with its checksum on both, so that rot on either is not taken for the value. What is
// there already is not written again, unless an earlier filling came to no end: then it may be
// there in a cache alone, its flush having failed (I12). The mirror's stamp says so.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <vector>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/attempt.hpp"
#include "store/chunk_io.hpp"
#include "store/further_media.hpp"
#include "store/medium_headers.hpp"
#include "store/page_io.hpp"
#include "store/root_scan.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {

using format::MirrorStamp;

namespace {

// As far as a medium's headers and roots reach.
std::uint64_t head_bytes(unsigned medium) {
  return medium == 0 ? format::kHeapAt : format::kMediumHeapAt;
}

// Of the other, from its beginning on.
std::uint64_t on_mirror(unsigned index, std::uint64_t offset) {
  return place_on(index, format::kMirrorAt + offset);
}

class Filling {
 public:
  // `all`: also what is there.
  Filling(GuardedMedium& media, const format::Seeds& seeds, unsigned of, unsigned index, bool all)
      : media_(media), seeds_(seeds), of_(of), index_(index), all_(all) {}

  bool same_head() {
    std::array<std::byte, kPageBytes> there;
    std::array<std::byte, kPageBytes> mirrored;
    for (std::uint64_t at = 0; at < head_bytes(of_); at += kPageBytes) {
      const bool read = reads(place_on(of_, at), there) && reads(on_mirror(index_, at), mirrored);
      if (!read || there != mirrored) return false;
    }
    return true;
  }

  void take(const Version& version) {
    if (of_ == 0) version.tree.each_page([&](const PageNodePtr& page) { take_page(*page); });
    for (const auto& [name, named] : *version.names) {
      const StoredTensor& tensor = *named.tensor;
      for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
        take_chunk(tensor, version.tree.record(tensor.cell(chunk)), chunk);
      }
    }
  }

  // Who opens the mirror alone finds the versions by these. Each half has a copy of all, and they
  // are never under way together.
  void take_head() {
    const std::uint64_t half = head_bytes(of_) / format::kCopies;
    for (unsigned copy = 0; copy < format::kCopies; ++copy) {
      for (std::uint64_t at = 0; at < half; at += kPageBytes) take_head_page(copy * half + at);
      media_.barrier();  // I6: a crash within finds one half as it was, or as it is to be
    }
  }

  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  bool reads(std::uint64_t at, std::span<std::byte> bytes) {
    try {
      media_.read(at, bytes);
      return true;
    } catch (const Error& error) {
      if (!is_unreadable(error)) throw;
      return false;
    }
  }

  void copy_to_mirror(std::uint64_t at, std::span<const std::byte> bytes) {
    media_.wait(media_.write(at, bytes, 0));
    bytes_written_ += bytes.size();
  }

  void take_head_page(std::uint64_t at) {
    std::array<std::byte, kPageBytes> bytes;
    std::array<std::byte, kPageBytes> there;
    if (!reads(place_on(of_, at), bytes)) return;
    if (all_ || !reads(on_mirror(index_, at), there) || there != bytes) {
      copy_to_mirror(on_mirror(index_, at), bytes);
    }
  }

  // Its copies are alike.
  void take_page(const PageNode& page) {
    format::RawPage raw;
    const auto intact = [&](std::uint64_t place) {
      return reads(place, raw.bytes) && format::verifies(raw, page.ref, seeds_);
    };
    for (const std::uint64_t at : page.ref.at) {
      if (!seen_.insert(at).second) continue;
      const std::uint64_t to = on_mirror(index_, offset_of(at));
      if (!all_ && intact(to)) continue;
      if (std::ranges::any_of(page.ref.at, intact) || intact(to)) copy_to_mirror(to, raw.bytes);
    }
  }

  void take_chunk(const StoredTensor& tensor, const format::ChunkRecord& record,
                  std::uint64_t chunk) {
    if (format::chunk_kind(record) != format::ChunkKind::stored) return;
    const std::uint64_t at = tensor.chunk_at(format::chunk_slot(record), chunk);
    if (medium_of(at) != of_ || !seen_.insert(at).second) return;
    const auto bytes = chunk_scratch().first(tensor.chunk_bytes(chunk));
    const auto intact = [&](std::uint64_t place) {
      return reads(place, bytes) &&
             hash_bytes(bytes, seeds_.chunk(tensor.layout.tensor_id, chunk)) == record.checksum;
    };
    const std::uint64_t to = on_mirror(index_, offset_of(at));
    if (!all_ && intact(to)) return;
    if (intact(at) || intact(to)) copy_to_mirror(to, bytes);
  }

  GuardedMedium& media_;
  const format::Seeds& seeds_;
  const unsigned of_;
  const unsigned index_;
  const bool all_;
  std::unordered_set<std::uint64_t> seen_;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace

// The newest version that a mirror of the first medium shows, 0 for none. Where that is more than K
// ahead of what was opened, the first is an older copy.
std::uint64_t FurtherMedia::newest_on(const MirrorPlace& mirror, const format::Seeds& seeds,
                                      std::uint64_t newest) const {
  if (mirror.end < mirror.from + head_bytes(0)) return 0;
  const auto roots =
      scan_homes(mirror.medium, mirror.from, seeds, superblock_.slot_count).candidates();
  const std::uint64_t there = roots.empty() ? 0 : format::word_version(roots.front().word);
  if (there <= newest + superblock_.slot_count) return there;
  throw Error(
      Errc::medium_missing,
      fmt::format("the shelf's own medium is an older copy: its mirror {} has version {}, and "
                  "version {} is the newest there is",
                  mirror.path, there, newest),
      "Give the newer one; or keep what the mirror has: mode=\"r\" opens it, and snapshot() makes "
      "a "
      "new shelf of it. To go on from this one, move the mirror away first.");
}

// What the mirror of the first medium has beyond what was opened may go where it is a flip that a
// power loss left on it alone, for nobody was told of it. Not so where the first is damaged: then
// it may be what was lost there.
void FurtherMedia::fill_mirrors(const format::Seeds& seeds, const Versions& versions,
                                std::uint64_t newest, bool degraded) {
  for (const AttachedMedium& each : attached()) {
    if (!each.tied) continue;
    std::uint64_t there = 0;
    if (*each.mirrors == 0 && !planted(Bug::mirror_written_over)) {
      const std::uint64_t end = place_on(each.index, media_.size_of(each.index));
      there = newest_on({media_, on_mirror(each.index, 0), end, each.path}, seeds, newest);
    }
    if (!degraded || there <= newest) {
      fill(each, seeds, versions);
      continue;
    }
    media_.give_up_mirror(*each.mirrors);
    notes_.push_back(fmt::format(
        "{} has a newer version than could be opened, and stays as it is: nothing is "
        "mirrored there any more. mode=\"r\" opens it, and snapshot() makes a new shelf "
        "of it",
        each.path));
    const std::lock_guard lock(mutex_);
    auto& given_up = *std::ranges::find(attached_, each.index, &AttachedMedium::index);
    given_up.tied = false;
    given_up.retired = true;
    any_retired_ = true;
    ++changes_;
  }
}

void FurtherMedia::fill(const AttachedMedium& mirror, const format::Seeds& seeds,
                        const Versions& versions) {
  const unsigned of = *mirror.mirrors;
  std::uint64_t end = head_bytes(of);
  for (const auto& version : versions) end = std::max(end, version->capacities().end[of]);
  // What the heads tell holds for one that had each commit, and all of its length.
  const bool cut = media_.size_of(mirror.index) < offset_of(on_mirror(mirror.index, end));
  const auto named = versions.back()->tree.media();
  const bool missed =
      std::ranges::find(named, mirror.index, &format::MediumLayout::index) == named.end();
  const bool doubtful = (cut || missed) && !planted(Bug::mirror_believed);
  media_.reserve(on_mirror(mirror.index, end));
  const auto last = stamped_last(media_, mirror.index, mirror.id);
  const bool begun =
      !format::is_stamp(last, MirrorStamp::filled) && !planted(Bug::mirror_filling_forgotten);
  Filling filling(media_, seeds, of, mirror.index, begun);
  if ((!begun && !doubtful && filling.same_head()) || planted(Bug::mirror_not_filled)) return;
  const auto note = [&](MirrorStamp stamp) {  // also over a damaged one
    mend_stamps(media_, mirror.index, mirror.id, static_cast<std::uint64_t>(stamp), {});
    media_.barrier();  // I12: what comes behind is not there before it
  };
  note(begun ? MirrorStamp::refilling : MirrorStamp::filling);
  for (const auto& version : versions) filling.take(*version);
  if (!planted(Bug::mirror_head_first)) media_.barrier();  // I1, of the mirror by itself
  filling.take_head();
  note(MirrorStamp::filled);
  notes_.push_back(fmt::format("{}: what medium {} has and its mirror lacked was copied, {}",
                               mirror.path, of, size_text(filling.bytes_written())));
}

}  // namespace tensorshelf
