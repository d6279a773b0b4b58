// Every byte that is ever stored, in one place: the byte map, the structs, their asserts.
// All integers little-endian and fixed width; no pointer, no padding without a name.
//
//   0x00000  header copy 0        superblock   +0x00000
//                                 incarnation  +0x01000
//                                 prepared     +0x02000   room for the mark of a group commit
//                                 root homes   +0x10000   home h at +0x10000 + h * 4 KiB, h < 16
//   0x20000  header copy 1        the same
//   0x40000  heap                 manifest pages (4 KiB, two copies each) and slots, 4 KiB-aligned
//
// A root names directory pages, a directory page names leaves, a leaf holds tensor records or
// cells. Every name of a page carries its checksum, so a root vouches for its whole manifest, and
// no checksum below the root lies inside the page it protects. Version v has its root in home
// v % K. The capacity that the root states bounds everything it names.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tensorshelf/extent.hpp>

namespace tensorshelf::format {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr std::array<char, 8> kMagic = {'T', 'S', 'H', 'E', 'L', 'F', '\r', '\n'};
inline constexpr std::uint32_t kFormatVersion = 1;

inline constexpr unsigned kCopies = 2;    // of all metadata
inline constexpr unsigned kMinSlots = 2;  // K: slots of a tensor, and root homes
inline constexpr unsigned kMaxSlots = 16;
inline constexpr unsigned kSlots = 2;  // K of the shelves that this release makes and opens
inline constexpr unsigned kMaxMedia = 8;

inline constexpr std::uint64_t kHeaderBytes = 0x20000;
inline constexpr std::uint64_t kIncarnationAt = 0x01000;
inline constexpr std::uint64_t kPreparedAt = 0x02000;
inline constexpr std::uint64_t kRootsAt = 0x10000;
inline constexpr std::uint64_t kHeapAt = kCopies * kHeaderBytes;

constexpr std::uint64_t superblock_at(unsigned copy) { return copy * kHeaderBytes; }
constexpr std::uint64_t incarnation_at(unsigned copy) {
  return copy * kHeaderBytes + kIncarnationAt;
}
constexpr std::uint64_t root_at(unsigned home, unsigned copy) {
  return copy * kHeaderBytes + kRootsAt + home * kPageBytes;
}

// Bytes as they came from a medium, not validated. Only format.cpp looks inside.
struct alignas(64) Page {
  std::array<std::byte, kPageBytes> bytes;
};
static_assert(sizeof(Page) == kPageBytes);

using ShelfId = std::array<std::uint8_t, 16>;

// The version word: a version, tagged with its writer's incarnation so that the body of an
// abandoned attempt at the same version can never verify under another attempt's word (I5).
// 40 bits of version last 35 years at 1,000 commits a second.
inline constexpr unsigned kVersionBits = 40;
inline constexpr std::uint64_t kMaxVersion = (1ULL << kVersionBits) - 1;
constexpr std::uint64_t make_word(std::uint64_t version, std::uint64_t incarnation) {
  return (incarnation << kVersionBits) | version;
}
// Counters stay far below the end of their range: a hostile file must not make one wrap.
inline constexpr std::uint64_t kMaxCounter = 1ULL << 62;

// In homes that were never used, so that they can be told from homes that were wiped.
inline constexpr std::uint64_t kUnusedHomeWord = make_word(kMaxVersion, 0);
constexpr std::uint64_t word_version(std::uint64_t word) { return word & kMaxVersion; }

struct MediumRecord {
  ShelfId medium_id;
  std::uint64_t size_bytes;
  std::uint64_t reserved;
};

// Written once, when the shelf is made; the first 12 bytes keep their meaning in every format.
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
  std::uint32_t medium_count;  // 1: extents on other media come with a feature flag
  std::uint32_t reserved;
  std::array<MediumRecord, kMaxMedia> media;
  std::uint64_t checksum;  // of all above, seeded with the position
};

struct IncarnationRecord {
  std::uint64_t incarnation;
  std::uint64_t checksum;
};

// Names a page: the places of its two copies, and the checksum of their content, seeded with the
// shelf id and the place of the first copy.
struct PageRef {
  std::array<std::uint64_t, kCopies> at;  // {0, 0}: no page
  std::uint64_t checksum;

  friend bool operator==(const PageRef&, const PageRef&) = default;
};

inline constexpr std::uint64_t kNoStep = ~0ULL;
inline constexpr unsigned kRootDirectories = 167;

struct Root {
  std::uint64_t word;      // the version word: stored last, alone. 0: never written.
  std::uint64_t checksum;  // of the whole page but this field, seeded with shelf id and position
  std::uint64_t incarnation;
  std::uint64_t sequence;  // of the attempt within its incarnation
  std::uint64_t step;      // the user's, or kNoStep
  std::uint64_t capacity_bytes;
  std::uint64_t next_tensor_id;
  std::uint64_t tensor_count;
  std::uint32_t leaf_count;
  std::uint32_t directory_count;
  std::array<PageRef, kRootDirectories> directories;
  std::array<std::uint64_t, 2> reserved;
};

enum class PageKind : std::uint32_t { directory = 1, records = 2, cells = 3 };

struct PageHead {
  PageKind kind;
  std::uint32_t index;       // of the page among those of its kind
  std::uint32_t used_bytes;  // records: end of the last one. Others: kPageBytes.
  std::uint32_t reserved;
};

inline constexpr unsigned kDirectoryRefs = (kPageBytes - sizeof(PageHead)) / sizeof(PageRef);
inline constexpr unsigned kPageCells = (kPageBytes - sizeof(PageHead)) / sizeof(std::uint64_t);

struct DirectoryPage {
  PageHead head;
  std::array<PageRef, kDirectoryRefs> leaves;
};

// A tensor owns a run of 1 + chunks cells. The first: current slot and the version that wrote it;
// the others: the XXH3-64 of each chunk, seeded with shelf id, tensor id and chunk index. So a
// chunk copied from slot to slot keeps its checksum, and the copy checks it.
struct CellsPage {
  PageHead head;
  std::array<std::uint64_t, kPageCells> cells;
};

constexpr std::uint64_t make_state_cell(unsigned slot, std::uint64_t version) {
  return (std::uint64_t{slot} << 56) | version;
}
constexpr unsigned state_slot(std::uint64_t cell) { return static_cast<unsigned>(cell >> 56); }
constexpr std::uint64_t state_version(std::uint64_t cell) { return cell & ((1ULL << 56) - 1); }

struct SlotRecord {
  std::uint64_t at;
  std::uint32_t medium;  // index into Superblock::media
  std::uint32_t reserved;
};

// Followed by slot_count SlotRecords, dim_count int64 dimensions, and the name, padded with zeros
// to a multiple of 8.
struct TensorRecord {
  std::uint64_t tensor_id;  // never reused within a shelf
  std::uint64_t size_bytes;
  std::uint64_t first_cell;  // of its run, counted over all cells pages
  std::uint32_t record_bytes;
  std::uint16_t dtype;
  std::uint16_t dim_count;
  std::uint16_t name_bytes;
  std::uint16_t slot_count;
  std::uint32_t reserved;
};

template <typename T>
inline constexpr bool kStorable =
    std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;
static_assert(kStorable<Superblock> && sizeof(Superblock) == 336);
static_assert(kStorable<IncarnationRecord> && sizeof(IncarnationRecord) == 16);
static_assert(kStorable<PageRef> && sizeof(PageRef) == 24);
static_assert(kStorable<Root> && sizeof(Root) == kPageBytes);
static_assert(offsetof(Root, word) == 0, "the version word is one aligned 8-byte store");
static_assert(kStorable<DirectoryPage> && sizeof(DirectoryPage) == kPageBytes);
static_assert(kStorable<CellsPage> && sizeof(CellsPage) == kPageBytes);
static_assert(kStorable<SlotRecord> && sizeof(SlotRecord) == 16);
static_assert(kStorable<TensorRecord> && sizeof(TensorRecord) == 40);
static_assert(root_at(kMaxSlots - 1, 0) + kPageBytes <= kHeaderBytes);

}  // namespace tensorshelf::format
