// The media of a shelf beside its first: what was offered when it was opened, what its versions
// name, what is attached. Each bears the shelf's id, its own and its index, and the newest version
// that wrote to it, so that one that is missing, exchanged or an older copy is told by name; paths
// bind nobody. (Whatever lies there, chunks are compared with their checksums.)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "base/planted.hpp"
#include "format/format.hpp"
#include "media/media.hpp"
#include "store/io/purpose.hpp"
#include "store/media_set/attached_media.hpp"
#include "store/media_set/offered_media.hpp"

namespace tensorshelf {

class Heap;
class Tree;
struct RootScan;
struct Version;
using Versions = std::vector<std::shared_ptr<Version>>;

// What recovery has chosen.
struct Chosen {
  const Versions& versions;  // and what is prepared
  const RootScan& scan;
  std::uint64_t newest;  // that is committed
  bool degraded;         // a newer one is damaged
  bool mirrored;         // a root of them is the mirror's: the first's is damaged
};

// What is opened, for who may write.
struct OpenedShelf {
  const Versions& versions;  // and what is prepared
  Heap& heap;
  const format::Seeds& seeds;
};

// The mirror of the first medium: byte b of that lies at `from` + b. Valid until the next medium is
// attached.
struct MirrorOfFirst {
  Medium& medium;
  std::uint64_t from;
  std::uint64_t end;  // of what is there
  std::string path;
  std::optional<std::uint64_t> stamp;

  bool has(std::uint64_t at, std::uint64_t size_bytes) const {
    return at < end - from && size_bytes <= end - from - at;
  }
  bool has_heads() const { return end >= from + format::kHeapAt; }
  // Its last filling came to its end.
  bool filled() const { return format::is_stamp(stamp, format::MirrorStamp::filled); }
  // What is there may go.
  bool goes() const { return format::is_stamp(stamp, format::MirrorStamp::refilling); }
};

// What those share who find media, tie them, fill and add them.
struct MediaParts {
  GuardedMedium& media;
  OfferedMedia offered;
  AttachedMedia attached;
  format::Superblock superblock = {};
  std::vector<std::string> notes = {};                // for who opens
  std::optional<MirrorOfFirst> mirror_of_first = {};  // as it was when it was tied
};

// Mirrors that are attached get what is written on what they mirror.
void tie_mirrors(MediaParts& parts);
// What was offered as a mirror of the first medium, and bears its header.
MirrorOfFirst offered_mirror(const OfferedMedia::Offered& offered);

// attached() may be called by any thread; the rest is for who opens, or shows a reader
// another version, one at a time: of those mirror_of_first() by several threads at once, too.
class FurtherMedia {
 public:
  // `path_hash`: of the shelf (MediaPage::path_hash). 0: it has none, or that is not known.
  // `without`: mirrors that a writer gives up where they are missing.
  FurtherMedia(GuardedMedium& media, std::vector<OfferedMedium> offered, FindMedium find,
               std::uint64_t path_hash, std::vector<unsigned> without);

  // The shelf, whose superblock was read: what was offered and belongs to another is refused.
  // Errc::medium_missing; Errc::not_a_shelf where something else lies there; newer_format.
  // For reading one of a medium and its mirror is enough; for salvage what is missing passes for a
  // medium of which nothing can be read.
  void begin(const format::Superblock& superblock, Purpose purpose);
  // What a mirror lacks of what the versions name is copied to it (mirror_filling.hpp). For who may
  // write, before anything else is written but what settle_lone() does. Durable when it returns.
  //
  // A mirror of the first medium may show a version beyond the one that was opened. Where a power
  // loss left a flip on it alone, it is filled as any other. Else nothing is written to it: where
  // the first was opened `degraded` the mirror is given up, and stays as it is; where it was not,
  // the first is an older copy, which is Errc::medium_missing.
  void fill_mirrors(const format::Seeds& seeds, const Chosen& chosen);
  // Attached or offered; nothing where none is at hand.
  std::optional<MirrorOfFirst> mirror_of_first() const;

  // Attaches what the version names and is not attached, and ties mirrors to what they mirror.
  // Where it was last holds only where the shelf is where it was: else a copy would write to the
  // media of what it was copied from. Errc::medium_missing, truncated, and stale where a medium has
  // another's number by now.
  void need(const Version& version);
  // Errc::medium_missing where the version names what was written there later than the medium says.
  void check_age(const Version& version);
  // For who may write. Second copies of headers and stamps are written anew, and what was offered
  // and is of no shelf is attached, under an index that no version has. Durable when it
  // returns. Errc::unsupported where the shelf is of a format with one medium; full; bad_argument
  // where what it is to mirror is none.
  void settle(const OpenedShelf& shelf);

  AttachedMedia& attached() { return parts_.attached; }
  const AttachedMedia& attached() const { return parts_.attached; }
  std::uint64_t path_hash() const { return path_hash_; }
  // A mirror that may be missing: a version, or who opens, goes on without it.
  bool is_given_up(unsigned index) const {
    if (!newest_named_->media.has(index) && !planted(Bug::given_up_mirror_needed)) return true;
    return std::find(without_.begin(), without_.end(), index) != without_.end();
  }
  std::vector<std::string> take_notes();

 private:
  std::unique_ptr<Medium> stand_in(const format::MediumLayout& named, bool served, const char* how);
  void attach(const format::MediumLayout& named, bool moved, bool mirrored);

  MediaParts parts_;
  const std::uint64_t path_hash_;
  Purpose purpose_ = Purpose::write;
  const std::vector<unsigned> without_;
  std::map<unsigned, std::shared_ptr<Medium>> mirrors_read_;  // by what they mirror
  struct NamedMedia {
    std::uint64_t version = 0;
    MediumSet media;
  };
  std::optional<NamedMedia> newest_named_;  // of the versions that were looked at
};

// The media of a shelf, and who knows of those beside the first.
struct ShelfMedia {
  std::shared_ptr<GuardedMedium> all;
  std::shared_ptr<FurtherMedia> further;
};
ShelfMedia shelf_media(std::unique_ptr<Medium> first, std::vector<OfferedMedium> offered = {},
                       FindMedium find = {}, std::uint64_t path_hash = 0,
                       std::vector<unsigned> without = {});

}  // namespace tensorshelf
