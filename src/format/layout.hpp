// Every byte of a shelf that is ever stored, in one place: the byte map, the structs, their
// asserts. (A pool has a table of its own around these bytes: media/pool/table.hpp.) All integers
// little-endian and fixed width; no pointer, no padding without a name.
//
//   0x00000  header copy 0        superblock   +0x00000
//                                 incarnation  +0x01000
//                                 mark         +0x02000   of an attempt that is prepared
//                                 root homes   +0x10000   home h at +0x10000 + h * 4 KiB, h < 16
//   0x20000  header copy 1        the same
//   0x40000  heap                 manifest pages (4 KiB, two copies each) and slots, 4 KiB-aligned
//
// A medium beside the first has none of that:
//
//   0x00000  header copy 0        whose it is
//   0x01000  stamp copy 0         the newest version that wrote there, and since when they rise; of
//                                 a mirror, how far it is filled
//   0x10000  header copy 1        the same
//   0x11000  stamp copy 1
//   0x20000  slots                or, of a mirror, all that the other medium has
//
// A leaf holds tensor records or chunk records. A root names its leaves itself while they are few;
// where there are more, it names directory pages, which name them, and where there are more still,
// directories of directories. Every name of a page carries its checksum, so a root vouches for its
// whole manifest, and no checksum below the root lies inside the page it protects. Version v has
// its root in home v % K. The capacity that the root states bounds everything it names.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include <tensorshelf/extent.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf::format {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr std::array<char, 8> kMagic = {'T', 'S', 'H', 'E', 'L', 'F', '\r', '\n'};
// In 2 no root names its leaves itself; in 2 and 3 there is one medium; 1 was never released. A
// shelf keeps the number with which it was made, and what is written there stays within it.
inline constexpr std::uint32_t kFormatVersion = 4;
inline constexpr std::uint32_t kFirstOfManyMedia = 4;
inline constexpr std::uint32_t kOldestFormat = 2;

inline constexpr unsigned kCopies = 2;    // of all metadata
inline constexpr unsigned kMinSlots = 2;  // K: slots of a tensor, and root homes
inline constexpr unsigned kMaxSlots = 16;

inline constexpr std::uint64_t kHeaderBytes = 0x20000;
inline constexpr std::uint64_t kIncarnationAt = 0x01000;
inline constexpr std::uint64_t kMarkAt = 0x02000;
inline constexpr std::uint64_t kRootsAt = 0x10000;
inline constexpr std::uint64_t kHeapAt = kCopies * kHeaderBytes;

constexpr unsigned other_copy(unsigned copy) { return 1 - copy; }
constexpr std::uint64_t superblock_at(unsigned copy) { return copy * kHeaderBytes; }
constexpr std::uint64_t incarnation_at(unsigned copy) {
  return copy * kHeaderBytes + kIncarnationAt;
}
constexpr std::uint64_t mark_at(unsigned copy) { return copy * kHeaderBytes + kMarkAt; }
constexpr std::uint64_t root_at(unsigned home, unsigned copy) {
  return copy * kHeaderBytes + kRootsAt + home * kPageBytes;
}

// Bytes as they came from a medium, of which nothing is known.
struct alignas(64) RawPage {
  std::array<std::byte, kPageBytes> bytes;
};
// A page that was verified, or is being built from one, or from nothing: never bytes off a medium
// of which nothing is known. src/format alone sees within, and take_verified() alone makes one of
// the other. (A tree changes a copy of what was verified: what is built and what is verified are
// one type.)
class alignas(64) Page {
 public:
  std::span<const std::byte, kPageBytes> bytes() const { return bytes_; }  // to be written

 private:
  using Bytes = std::array<std::byte, kPageBytes>;
  friend Bytes& within(Page& page);  // format/bytes.hpp

  Bytes bytes_ = {};
};
static_assert(sizeof(Page) == kPageBytes);
static_assert(!std::is_constructible_v<Page, RawPage> && !std::is_convertible_v<Page&, RawPage&>);

using ShelfId = std::array<std::uint8_t, 16>;

// The version word: a version, tagged with a hash of the attempt that wrote it, so that the body
// which another attempt at the same version left can never verify under it (I5).
// 40 bits of version last 35 years at 1,000 commits a second.
inline constexpr unsigned kVersionBits = 40;
inline constexpr std::uint64_t kMaxVersion = (1ULL << kVersionBits) - 1;
constexpr std::uint64_t word_version(std::uint64_t word) { return word & kMaxVersion; }
constexpr std::uint64_t word_tag(std::uint64_t word) { return word >> kVersionBits; }
constexpr std::uint64_t tagged_word(std::uint64_t version, std::uint64_t tag) {
  return (tag << kVersionBits) | version;
}
constexpr unsigned home_of(std::uint64_t version, unsigned slot_count) {
  return static_cast<unsigned>(version % slot_count);
}
// Counters stay far below the end of their range: a hostile file must not make one wrap.
inline constexpr std::uint64_t kMaxCounter = 1ULL << 62;

// The words of homes without a root, which are zeros but for it: of one that was never used, and of
// one that was wiped, so that nobody looks for `version` there.
inline constexpr std::uint64_t kUnusedHomeWord = tagged_word(kMaxVersion, 0);
inline constexpr std::uint64_t kWipedTag = 1;  // no word is 0
constexpr std::uint64_t wiped_home_word(std::uint64_t version, unsigned slot_count) {
  return version < slot_count ? kUnusedHomeWord : tagged_word(version - slot_count, kWipedTag);
}
static_assert(wiped_home_word(0, 2) == kUnusedHomeWord && wiped_home_word(2, 2) != 0);

// Checksums are XXH3-64, seeded with where they belong, so that a block that went astray does not
// pass for what should lie there. The shelf's seed is XXH3-64 of its id, with seed 0. The odd
// constants are those of XXH64 (Yann Collet, xxHash specification, "XXH64 algorithm"): they spread
// positions over the seed; the hash does the mixing.
//
//   superblock   all before its checksum, seeded with its place
//   incarnation  all before its checksum, seeded with page_seed() of its place; marks alike
//   header       of a medium beside the first: all before its checksum, seeded with its place there
//   root         the whole page, with 0 as its checksum, seeded with page_seed() of its place
//   page         the whole page, seeded with page_seed() of the place of its first copy
//   chunk        its bytes, seeded with chunk_seed()
//   stamp        the id of that medium, 16 bytes, with the version as seed: its low 24 bits
//   tag          incarnation and sequence of the attempt, 16 bytes, with seed 0: its low 24 bits
inline constexpr std::uint64_t kSpread1 = 0x9E3779B185EBCA87;
inline constexpr std::uint64_t kSpread2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t page_seed(std::uint64_t shelf_seed, std::uint64_t at) {
  return shelf_seed ^ (at * kSpread1);
}
constexpr std::uint64_t chunk_seed(std::uint64_t shelf_seed, std::uint64_t tensor_id,
                                   std::uint64_t chunk_index) {
  return shelf_seed + (tensor_id * kSpread1 ^ (chunk_index + 1) * kSpread2);
}

struct MediumRecord {
  ShelfId medium_id;
  std::uint64_t size_bytes;
  std::uint64_t reserved;
};
static_assert(sizeof(MediumRecord) == sizeof(ShelfId) + 16);

// Written when the shelf is made, and a damaged copy anew; the first 12 bytes keep their meaning in
// every format.
struct Superblock {
  std::array<char, 8> magic;
  std::uint32_t format_version;
  std::uint32_t slot_count;          // K
  std::uint64_t incompat_features;   // unknown bit: refuse to open
  std::uint64_t ro_compat_features;  // unknown bit: refuse to write
  std::uint64_t compat_features;     // unknown bit: ignore
  ShelfId shelf_id;
  std::uint32_t page_bytes;
  std::uint32_t chunk_bytes;
  std::uint32_t medium_count;  // 1: all others stand in the manifest (MediaPage)
  std::uint32_t reserved;
  std::array<MediumRecord, kMaxMedia> media;
  std::uint64_t checksum;  // of all above, seeded with the position
};

struct IncarnationRecord {
  std::uint64_t incarnation;
  std::uint64_t checksum;
};

// That an attempt is prepared: durable, and flipped or abandoned by none but who asked for it
// (I14). The copies are written one behind the other, a barrier between them: one is always whole,
// and the one with the higher counter counts.
inline constexpr std::size_t kMaxIdBytes = 256;
inline constexpr std::uint32_t kMarkFormat = 2;  // of the mark itself, in shelves of every format
struct PreparedMark {
  std::uint64_t counter;      // of marks, from 1
  std::uint64_t version;      // 0: nothing is prepared
  std::uint64_t incarnation;  // of the attempt; or of the one that was abandoned last
  std::uint64_t sequence;
  std::uint32_t format_version;
  std::uint32_t id_bytes;
  std::array<char, kMaxIdBytes> id;  // of whoever asked for it; zeros behind it
  std::uint64_t checksum;            // of all above, seeded with shelf id and position
};

// Names a page: the places of its two copies, and the checksum of their content, seeded with the
// shelf id and the place of the first copy.
struct PageRef {
  std::array<std::uint64_t, kCopies> at;  // {0, 0}: no page
  std::uint64_t checksum;

  friend bool operator==(const PageRef&, const PageRef&) = default;
};

inline constexpr std::uint64_t kNoStep = ~0ULL;
inline constexpr unsigned kRootRefs = 165;
inline constexpr std::uint64_t kLeavesInRoot = 1;  // the root names leaves, and no directory

struct Root {
  std::uint64_t word;  // the version word: stored last, alone. Of a home that was never used it is
                       // kUnusedHomeWord; 0 lies in none.
  std::uint64_t checksum;  // of the whole page but this field, seeded with shelf id and position
  std::uint64_t incarnation;
  std::uint64_t sequence;    // of the attempt within its incarnation
  std::uint64_t step;        // the user's, or kNoStep
  std::uint64_t floor;       // the oldest version whose slots later attempts spare
  std::uint64_t time_ns;     // since 1970, of the writer's clock: information only
  std::uint64_t data_bytes;  // that the attempt wrote
  std::uint64_t capacity_bytes;
  std::uint64_t next_tensor_id;
  std::uint64_t tensor_count;
  std::uint32_t leaf_count;
  std::uint16_t keep;                    // versions retained beside the newest
  std::uint16_t in_flight;               // attempts at once. K = 1 + keep + in_flight.
  std::array<PageRef, kRootRefs> pages;  // of the topmost level: root_levels()
  std::uint64_t flags;                   // kLeavesInRoot
  std::array<std::uint64_t, 4> reserved;
};

enum class PageKind : std::uint32_t { directory = 1, records = 2, cells = 3, media = 4 };

struct PageHead {
  PageKind kind;
  std::uint32_t index;       // of the page among those of its kind
  std::uint32_t used_bytes;  // records: end of the last one. Others: kPageBytes.
  std::uint32_t level;       // directories: 1 names leaves, 2 names directories. Others: 0.
};
static_assert(sizeof(PageHead) == 16);

inline constexpr unsigned kDirectoryRefs = (kPageBytes - sizeof(PageHead)) / sizeof(PageRef);

struct DirectoryPage {
  PageHead head;
  std::array<PageRef, kDirectoryRefs> pages;
};

// How many leaves a root leads to through so many levels of directories. Without any there is room
// for 41 GiB of chunks, with one for 6.8 TiB, with two for more than 1 PiB.
constexpr std::uint64_t leaves_through(unsigned levels) {
  std::uint64_t leaves = kRootRefs;
  for (; levels > 0; --levels) leaves *= kDirectoryRefs;
  return leaves;
}
inline constexpr unsigned kMaxLevels = 2;
// Levels of directories below the root: none where it says so, else as many as it takes, and one
// at least.
constexpr unsigned root_levels(const Root& root) {
  if ((root.flags & kLeavesInRoot) != 0) return 0;
  return root.leaf_count <= leaves_through(1) ? 1 : 2;
}
// Pages of a level; of level 0, the leaves.
constexpr std::uint64_t level_pages(std::uint64_t leaf_count, unsigned level) {
  for (; level > 0; --level) leaf_count = (leaf_count + kDirectoryRefs - 1) / kDirectoryRefs;
  return leaf_count;
}
inline constexpr std::uint64_t kMaxLeaves = leaves_through(kMaxLevels);

// What a version says of one chunk: the XXH3-64 of its bytes, seeded with shelf id, tensor id and
// chunk index, and where they lie. The seed leaves the slot out on purpose: a chunk that is copied
// from slot to slot keeps its checksum, so the copy checks it.
struct ChunkRecord {
  std::uint64_t checksum;
  std::uint64_t state;  // the version that wrote it, slot << 40, ChunkKind << 48

  friend bool operator==(const ChunkRecord&, const ChunkRecord&) = default;
};
enum class ChunkKind : std::uint8_t { none = 0, stored = 1, zeros = 2 };

constexpr std::uint64_t chunk_state(ChunkKind kind, unsigned slot, std::uint64_t version) {
  return version | std::uint64_t{slot} << kVersionBits |
         static_cast<std::uint64_t>(kind) << (kVersionBits + 8);
}
constexpr std::uint64_t chunk_version(const ChunkRecord& record) {
  return record.state & kMaxVersion;
}
constexpr unsigned chunk_slot(const ChunkRecord& record) {
  return static_cast<unsigned>(record.state >> kVersionBits) & 0xFF;
}
constexpr ChunkKind chunk_kind(const ChunkRecord& record) {
  return static_cast<ChunkKind>(record.state >> (kVersionBits + 8));
}

// A tensor owns a run of cells, one for each chunk, and one where it has none; a cell is a chunk
// record, and zero where no tensor of the version owns it.
inline constexpr unsigned kPageCells = (kPageBytes - sizeof(PageHead)) / sizeof(ChunkRecord);
struct CellsPage {
  PageHead head;
  std::array<ChunkRecord, kPageCells> cells;
};

// The media beside the first: at most one leaf of a manifest, with what the version says of them.
inline constexpr std::size_t kMaxPathBytes = 512;
inline constexpr unsigned kFurtherMedia = kMaxMedia - 1;
struct MediumEntry {
  ShelfId medium_id;
  std::uint64_t capacity_bytes;  // of it is the shelf's
  std::uint32_t index;           // from 1; 0: no entry
  std::uint16_t path_bytes;
  std::uint16_t mirrors;                 // 1 + the number of the one that it mirrors; 0: none
  std::array<char, kMaxPathBytes> path;  // where it was last, which binds nobody; zeros behind it
};
struct MediaPage {
  PageHead head;
  std::array<MediumEntry, kFurtherMedia> media;  // by index, rising; empty ones behind
  std::uint64_t path_hash;  // XXH3-64 of the shelf's path, where the paths above held; 0: of none
};

// Such a medium has slots, and bears whose it is: a header in two copies, written when it is added,
// and behind each the stamp, two words: the newest version that wrote to it, tagged with a hash of
// it and the medium's id; and a hash of the attempt since which these numbers rise: the first that
// wrote there in an opening, or over a number that was abandoned. A version that names a chunk
// there which a later one wrote is not the one that the medium belongs to.
inline constexpr std::array<char, 8> kMediumMagic = {'T', 'S', 'H', 'E', 'L', 'F', '+', '\n'};
inline constexpr std::uint64_t kMediumHeaderBytes = 0x10000;  // with its stamp, of each copy
inline constexpr std::uint64_t kMediumStampAt = 0x1000;       // behind its header
inline constexpr std::uint64_t kMediumHeapAt = 0x20000;
constexpr std::uint64_t medium_header_at(unsigned copy) { return copy * kMediumHeaderBytes; }
constexpr std::uint64_t medium_stamp_at(unsigned copy) {
  return medium_header_at(copy) + kMediumStampAt;
}
struct MediumStamp {
  std::uint64_t word;
  std::uint64_t opening;  // 0: nothing was written there since it was added, or mended
};
struct MediumHeader {
  std::array<char, 8> magic;
  std::uint32_t format_version;
  std::uint32_t index;
  std::uint64_t incompat_features;  // unknown bit: refuse to open
  ShelfId shelf_id;
  ShelfId medium_id;
  std::uint64_t checksum;  // of all above, seeded with the position

  friend bool operator==(const MediumHeader&, const MediumHeader&) = default;
};

// One that mirrors another has no slots of its own: behind its header and stamp lies what the other
// has from its beginning on, its headers and roots too, each byte so much further on.
inline constexpr std::uint64_t kMirrorAt = kMediumHeapAt;
// The features of such a header: a bit, and in a byte of its own the number of the other.
inline constexpr std::uint64_t kMirrorFeature = 1;
constexpr std::uint64_t mirror_features(unsigned of) { return kMirrorFeature | of << 8U; }
// In its stamp, in the place of a version: how far it is filled with what the other has.
enum class MirrorStamp : std::uint64_t {
  filled = 0,
  filling = 1,  // what it had can be read until its roots go
  // A filling came to no end before: anything may be under way. Or a flip that it alone shows, of
  // the next version, is to go.
  refilling = 2,
};
constexpr bool is_stamp(std::optional<std::uint64_t> stamp, MirrorStamp which) {
  return stamp == static_cast<std::uint64_t>(which);
}

struct SlotRecord {
  std::uint64_t at;
  std::uint32_t medium;  // 0: the first; else an index of the MediaPage
  std::uint32_t reserved;
};

// Followed by slot_count SlotRecords, dim_count int64 dimensions, and the name, padded with zeros
// to a multiple of 8. Where it is striped over n media, each slot has n SlotRecords: chunk c lies
// c / n chunks behind the (c mod n)th of them.
struct TensorRecord {
  std::uint64_t tensor_id;  // never reused within a shelf
  std::uint64_t size_bytes;
  std::uint64_t first_cell;  // of its run, counted over all cells pages
  std::uint32_t record_bytes;
  std::uint16_t dtype;
  std::uint16_t dim_count;
  std::uint16_t name_bytes;
  std::uint16_t slot_count;
  Placement placement;
  std::uint16_t stripe_count;  // n, from 2; 0: it is not striped
};

template <typename T>
inline constexpr bool kStorable =
    std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;
static_assert(kStorable<Superblock> && sizeof(Superblock) == 336);
static_assert(kStorable<IncarnationRecord> && sizeof(IncarnationRecord) == 16);
static_assert(kStorable<PreparedMark> && sizeof(PreparedMark) == 304);
static_assert(kStorable<PageRef> && sizeof(PageRef) == 24);
static_assert(kStorable<ChunkRecord> && sizeof(ChunkRecord) == 16);
static_assert(kStorable<Root> && sizeof(Root) == kPageBytes);
static_assert(offsetof(Root, word) == 0, "the version word is one aligned 8-byte store");
static_assert(kStorable<DirectoryPage> && sizeof(DirectoryPage) == kPageBytes);
static_assert(kStorable<CellsPage> && sizeof(CellsPage) == kPageBytes);
static_assert(kStorable<SlotRecord> && sizeof(SlotRecord) == 16);
static_assert(kStorable<MediumEntry> && sizeof(MediumEntry) == 544);
static_assert(kStorable<MediaPage> && sizeof(MediaPage) <= kPageBytes);
static_assert(kStorable<MediumHeader> && sizeof(MediumHeader) == 64);
static_assert(kStorable<MediumRecord> && kStorable<PageHead>);
static_assert(kStorable<TensorRecord> && sizeof(TensorRecord) == 40);
static_assert(kMaxDims == 64 && kMaxNameBytes == 1024, "a record of such a tensor is valid");
static_assert(sizeof(TensorRecord) + kMaxSlots * kMaxMedia * sizeof(SlotRecord) + kMaxDims * 8 +
                      kMaxNameBytes <=
                  kPageBytes - sizeof(PageHead),
              "the largest record has room in an empty page");
static_assert(root_at(kMaxSlots - 1, 0) + kPageBytes <= kHeaderBytes);
static_assert(sizeof(MediumHeader) <= kMediumStampAt);
static_assert(kStorable<MediumStamp> &&
              sizeof(MediumStamp) == 16);  // within a sector, which lands whole
static_assert(medium_stamp_at(kCopies - 1) + kPageBytes <= kMediumHeapAt);

// What the public headers name, and what is stored too.
static_assert(kPageBytes == 4096 && kChunkBytes == 1 << 20);
static_assert(static_cast<int>(Placement::whole) == 1 &&
              static_cast<int>(Placement::by_chunk) == 2);
inline constexpr std::array kDTypesByCode = {  // from 1 on
    DType::boolean,         DType::uint8,           DType::int8,
    DType::uint16,          DType::int16,           DType::uint32,
    DType::int32,           DType::uint64,          DType::int64,
    DType::float16,         DType::bfloat16,        DType::float32,
    DType::float64,         DType::complex32,       DType::complex64,
    DType::complex128,      DType::float8_e4m3fn,   DType::float8_e5m2,
    DType::float8_e4m3fnuz, DType::float8_e5m2fnuz, DType::float8_e8m0fnu};
static_assert([] {
  int code = 0;
  for (const DType dtype : kDTypesByCode) {
    if (static_cast<int>(dtype) != ++code) return false;
  }
  return true;
}());

}  // namespace tensorshelf::format
