#include "store/media_set/mirror_filling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/io/chunk_io.hpp"
#include "store/io/medium_headers.hpp"
#include "store/io/page_io.hpp"
#include "store/io/unreadable.hpp"
#include "store/manifest/attempt.hpp"

namespace tensorshelf {

using format::MirrorStamp;

std::uint64_t head_bytes(unsigned medium) {
  return medium == 0 ? format::kHeapAt : format::kMediumHeapAt;
}

namespace {

// Where a mirror has what lies that far from the beginning of the other.
std::uint64_t on_mirror(unsigned index, std::uint64_t offset) {
  return place_on(index, format::kMirrorAt + offset);
}

class Filling {
 public:
  // `all`: also what is there.
  Filling(GuardedMedium& media, const format::Seeds& seeds, unsigned of, unsigned index, bool all)
      : media_(media), seeds_(seeds), of_(of), index_(index), all_(all) {}

  bool same_head() {
    format::RawPage there;
    format::RawPage mirrored;
    for (std::uint64_t at = 0; at < head_bytes(of_); at += kPageBytes) {
      const bool read =
          reads(place_on(of_, at), there.bytes) && reads(on_mirror(index_, at), mirrored.bytes);
      if (!read || there.bytes != mirrored.bytes) return false;
    }
    return true;
  }

  void take(const Version& version) {
    if (of_ == 0) version.tree.each_page([&](const PageNodePtr& page) { take_page(*page); });
    for (const auto& [name, named] : *version.names) {
      StoredTensor& tensor = *named.tensor;
      for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
        take_chunk(recorded_in(version, tensor, chunk));
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
    format::RawPage page;
    format::RawPage there;
    if (!reads(place_on(of_, at), page.bytes)) return;
    if (all_ || !reads(on_mirror(index_, at), there.bytes) || there.bytes != page.bytes) {
      copy_to_mirror(on_mirror(index_, at), page.bytes);
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
      // What the mirror alone has is not put at risk.
      if (std::ranges::any_of(page.ref.at, intact)) copy_to_mirror(to, raw.bytes);
    }
  }

  void take_chunk(const RecordedChunk& recorded) {
    if (!recorded.is_stored()) return;
    const std::uint64_t at = recorded.at();
    if (medium_of(at) != of_ || !seen_.insert(at).second) return;
    const auto bytes = chunk_scratch().first(recorded.size_bytes());
    const auto intact = [&](std::uint64_t place) {
      return reads(place, bytes) && recorded.matches(bytes, seeds_);
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

// The end of the medium, by what its versions span.
std::uint64_t end_of(const Versions& versions, unsigned medium) {
  std::uint64_t end = head_bytes(medium);
  for (const auto& version : versions) end = std::max(end, version->capacities().end[medium]);
  return end;
}

}  // namespace

void fill_behind_heads(GuardedMedium& media, const AttachedMedium& mirror,
                       const format::Seeds& seeds, const Versions& versions) {
  const unsigned of = *mirror.mirrors;
  if (planted(Bug::cut_mirror_left_so)) return;
  media.reserve(on_mirror(mirror.index, end_of(versions, of)));
  Filling filling(media, seeds, of, mirror.index, false);
  for (const auto& version : versions) filling.take(*version);
  media.barrier();  // I1, of the mirror by itself: before the first shows that its roots are whole
}

std::string fill_mirror(GuardedMedium& media, const AttachedMedium& mirror,
                        const format::Seeds& seeds, const Versions& versions) {
  const unsigned of = *mirror.mirrors;
  const std::uint64_t end = end_of(versions, of);
  // What the heads tell holds for one that had each commit, and all of its length.
  const bool cut = media.size_of(mirror.index) < offset_of(on_mirror(mirror.index, end));
  const auto named = versions.back()->tree.media();
  const bool missed =
      std::ranges::find(named, mirror.index, &format::MediumLayout::index) == named.end();
  const bool doubtful = (cut || missed) && !planted(Bug::mirror_believed);
  media.reserve(on_mirror(mirror.index, end));
  const auto last = stamped_last(media, mirror.index, mirror.id);
  const bool begun =
      !format::is_stamp(last, MirrorStamp::filled) && !planted(Bug::mirror_filling_forgotten);
  Filling filling(media, seeds, of, mirror.index, begun);
  if ((!begun && !doubtful && filling.same_head()) || planted(Bug::mirror_not_filled)) return "";
  const auto note = [&](MirrorStamp stamp) {
    stamp_mirror(media, mirror.index, mirror.id, stamp);
    if (planted(Bug::filling_marked_late)) return;
    media.barrier();  // I12: what comes behind is not there before it
  };
  note(begun ? MirrorStamp::refilling : MirrorStamp::filling);
  for (const auto& version : versions) filling.take(*version);
  if (!planted(Bug::mirror_head_first)) media.barrier();  // I1, of the mirror by itself
  filling.take_head();
  note(MirrorStamp::filled);
  return fmt::format("{}: what medium {} has and its mirror lacked was copied, {}", mirror.path, of,
                     size_text(filling.bytes_written()));
}

void give_for_filling(Medium& mirror, const format::ShelfId& medium_id) {
  stamp_mirror(mirror, 0, medium_id, MirrorStamp::refilling);
  mirror.barrier();  // I6: behind this the first need not show any more that a flip was torn
}

bool is_given_for_filling(Medium& medium, unsigned index, const format::ShelfId& medium_id) {
  return format::is_stamp(stamped_last(medium, index, medium_id), MirrorStamp::refilling);
}

}  // namespace tensorshelf
