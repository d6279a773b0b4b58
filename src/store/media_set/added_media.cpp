// Media beside the first for who may write, as a shelf is opened: mended, and added.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/planted.hpp"
#include "base/random_bytes.hpp"
#include "store/io/medium_headers.hpp"
#include "store/manifest/attempt.hpp"
#include "store/media_set/further_media.hpp"
#include "store/media_set/mirror_filling.hpp"
#include "store/media_set/older_first.hpp"
#include "store/places/heap.hpp"

namespace tensorshelf {

using format::MirrorStamp;

namespace {

std::uint64_t whole_pages(std::uint64_t bytes) { return bytes / kPageBytes * kPageBytes; }

unsigned first_free(MediumSet taken, const std::string& path) {
  const unsigned index = taken.first_missing();
  if (index < kMaxMedia) return index;
  throw Error(Errc::full, fmt::format("{}: a shelf has {} media at most", path, kMaxMedia),
              "Remove one first, or use a second shelf.");
}

// That a version or a medium has.
MediumSet indices_of(const Versions& used, const std::vector<AttachedMedium>& attached) {
  MediumSet taken;
  taken.add(0);
  for (const auto& version : used) {
    for (const auto& named : version->tree.media()) taken.add(named.index);
  }
  for (const AttachedMedium& each : attached) taken.add(each.index);
  return taken;
}

[[noreturn]] void throw_old_mirror(const std::string& path) {
  throw Error(
      Errc::not_a_shelf,
      fmt::format("{} is a mirror that the shelf gave up, and its number is another's", path),
      "Give it by mirror=, to be one again, or delete it.");
}

class MediaAdder {
 public:
  MediaAdder(MediaParts& parts, const OpenedShelf& shelf) : parts_(parts), shelf_(shelf) {}

  void settle();

 private:
  using Offered = OfferedMedia::Offered;

  void check_may_mirror(unsigned of, const std::string& path) const;
  bool mend(const AttachedMedium& medium, std::uint64_t newest);
  bool may_adopt(const Offered& offered, std::uint64_t newest) const;
  void take(Offered& offered);
  void add(Offered& offered, unsigned index, bool adopted);

  MediaParts& parts_;
  const OpenedShelf& shelf_;
};

// Whether anything was written.
bool MediaAdder::mend(const AttachedMedium& medium, std::uint64_t newest) {
  const MediumHeaders headers = read_medium_headers(parts_.media, medium.index);
  const bool whole = headers.copies[0] && headers.copies[1];
  if (!whole) {
    write_missing_headers(parts_.media, medium.index,
                          {parts_.superblock.shelf_id, medium.id, medium.mirrors}, headers);
  }
  const Stamps stamps = read_stamps(parts_.media, medium.index, medium.id);
  const auto last = std::max(stamps[0], stamps[1]);
  if (!last) {
    parts_.notes.push_back(
        fmt::format("{}: which version wrote to medium {} last is lost; its chunks "
                    "tell by their checksums whether it is that of this shelf",
                    medium.path, medium.index));
  }
  // Also where one is the older: the newer may be in a cache alone (I12).
  const bool agree = last && stamps[0] == stamps[1];
  if (!agree) mend_stamps(parts_.media, medium.index, medium.id, last.value_or(newest), stamps);
  return !whole || !agree;
}

// An attempt may have added it and failed: then it bears its header, and no version names it. A
// mirror that was given up is taken again likewise.
bool MediaAdder::may_adopt(const Offered& offered, std::uint64_t newest) const {
  if (!offered.header) return false;
  Medium& medium = *offered.given.found.medium;
  refuse_older_first({stamped_last(medium, 0, offered.header->medium_id), offered.given.path},
                     newest, parts_.superblock.slot_count);
  return true;
}

void MediaAdder::check_may_mirror(unsigned of, const std::string& path) const {
  const auto there = parts_.attached.find(of);
  const bool plain = of == 0 || (there && !there->mirrors && !there->retired);
  const bool taken = parts_.attached.is_mirrored(of);
  if (plain && !taken) return;
  throw Error(Errc::bad_argument,
              fmt::format("{} is to mirror medium {}, which {}", path, of,
                          taken    ? "has a mirror"
                          : !there ? "the shelf does not have"
                                   : "is a mirror itself, or was removed"),
              "info() lists the media of the shelf; 0 is its own.");
}

// Nothing names it yet: what it bears is durable before anything can.
void MediaAdder::add(Offered& offered, unsigned index, bool adopted) {
  AttachedMedium made{.index = index,
                      .id = {},
                      .path = offered.given.path,
                      .file = offered.given.found.file,
                      .offered = true,
                      .mirrors = offered.given.mirrors};
  if (adopted) made.mirrors = format::mirrored_by(*offered.header);
  if (made.mirrors) check_may_mirror(*made.mirrors, made.path);
  parts_.media.attach(index, std::move(offered.given.found.medium));
  const std::uint64_t end = parts_.media.reserve(place_on(index, format::kMediumHeapAt));
  if (adopted && !made.mirrors) {
    made.id = offered.header->medium_id;
    mend(made, 0);
    parts_.media.barrier();  // I1: before a version names it
  } else {
    // Written whatever is there: what an adding that failed left may be in a cache alone (I12). A
    // mirror counts as one whose filling came to no end, for the same reason.
    // What goes (mirrors.cpp) stays marked so.
    const bool goes =
        adopted && is_given_for_filling(parts_.media, index, offered.header->medium_id);
    const auto stamp = goes ? MirrorStamp::refilling : MirrorStamp::filling;
    if (adopted) made.id = offered.header->medium_id;
    if (!adopted) random_bytes(std::as_writable_bytes(std::span(made.id)));
    write_medium_anew(parts_.media, index, {parts_.superblock.shelf_id, made.id, made.mirrors},
                      made.mirrors ? static_cast<std::uint64_t>(stamp) : 0);
  }
  if (made.mirrors) {
    // No version says how far a medium goes that is added now.
    const std::uint64_t room = shelf_.heap.capacity_bytes(*made.mirrors);
    parts_.media.reserve(place_on(index, format::kMirrorAt + room));
    const std::string note = fill_mirror(parts_.media, made, shelf_.seeds, shelf_.versions);
    if (!note.empty()) parts_.notes.push_back(note);
  }
  if (made.path.size() > format::kMaxPathBytes) {
    parts_.notes.push_back(
        fmt::format("{}: a path of more than {} bytes is not remembered: give it by "
                    "also= whenever the shelf is opened",
                    made.path, format::kMaxPathBytes));
  }
  if (offered.given.unnamed) offered.given.unnamed->publish();
  // Nothing is placed on a mirror.
  shelf_.heap.add_medium(index, made.mirrors ? format::kMediumHeapAt : whole_pages(offset_of(end)));
  parts_.attached.add(std::move(made));
  tie_mirrors(parts_);
}

void MediaAdder::take(Offered& offered) {
  const std::string& path = offered.given.path;
  if (parts_.superblock.format_version < format::kFirstOfManyMedia) {
    throw Error(Errc::unsupported,
                fmt::format("{}: a shelf of format {} has one medium", path,
                            parts_.superblock.format_version),
                "snapshot() makes a shelf of today's format of it.");
  }
  const MediumSet taken = indices_of(shelf_.versions, parts_.attached.all());
  const bool adopted =
      may_adopt(offered, shelf_.versions.back()->number()) && !taken.has(offered.header->index);
  const bool mirrored = offered.header && format::mirrored_by(*offered.header);
  if (mirrored && !adopted && !offered.given.mirrors) throw_old_mirror(path);
  add(offered, adopted ? offered.header->index : first_free(taken, path), adopted);
}

void MediaAdder::settle() {
  const std::uint64_t newest = shelf_.versions.back()->number();
  bool mended = false;
  for (const AttachedMedium& each : parts_.attached.all()) {
    if (each.absent) continue;
    if (each.mirrors && !each.tied) {
      parts_.notes.push_back(
          fmt::format("{}: medium {} is no mirror of medium {} any more, and stays as "
                      "it is",
                      each.path, each.index, *each.mirrors));
      continue;
    }
    refuse_older_first({stamped_last(parts_.media, each.index, each.id), each.path}, newest,
                       parts_.superblock.slot_count);
    mended = mend(each, newest) || mended;
    // Nothing is the shelf's yet on one that only a version named which was not accepted.
    if (shelf_.heap.capacity_bytes(each.index) == 0) {
      shelf_.heap.add_medium(each.index, format::kMediumHeapAt);
    }
  }
  if (mended) parts_.media.barrier();  // I12: a header or stamp may have lain in a cache alone
  // Those that may be mirrored come first.
  auto& offered = parts_.offered.all();
  std::stable_partition(offered.begin(), offered.end(),
                        [](const Offered& one) { return !one.given.mirrors; });
  for (Offered& each : offered) {
    if (each.is_left()) take(each);
  }
  offered.clear();
}

}  // namespace

void FurtherMedia::settle(const OpenedShelf& shelf) { MediaAdder(parts_, shelf).settle(); }

}  // namespace tensorshelf
