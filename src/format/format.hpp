// Meaning of the bytes in layout.hpp: checksums, encoding, validation. No I/O, no state.
// What comes from a medium is a RawPage; what has been validated is a struct, or a Page (but for
// SuperblockRead::stated, which tells of a format that we do not know).
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/tensor.hpp>

#include "base/small_vector.hpp"
#include "format/layout.hpp"
#include "format/medium_set.hpp"

namespace tensorshelf::format {

// Seeds of checksums: the shelf, folded once, and what is checked within it.
class Seeds {
 public:
  explicit Seeds(const ShelfId& id);
  std::uint64_t page(std::uint64_t at) const;
  std::uint64_t chunk(std::uint64_t tensor_id, std::uint64_t chunk_index) const;

 private:
  std::uint64_t shelf_;
};

Superblock new_superblock(const ShelfId& id, unsigned slot_count);
Page encode_superblock(Superblock superblock, unsigned copy);
enum class SuperblockState { good, damaged, newer, older, foreign, zero };
struct SuperblockRead {
  SuperblockState state = SuperblockState::zero;
  std::optional<Superblock> superblock = {};  // where it is good
  Superblock stated = {};                     // newer or older: what to say of it, and no more
};
SuperblockRead read_superblock(const RawPage& page, unsigned copy);

Page encode_incarnation(std::uint64_t incarnation, const Seeds& seeds, unsigned copy);
std::optional<std::uint64_t> read_incarnation(const RawPage& page, const Seeds& seeds,
                                              unsigned copy);
// The same of its first bytes, which are the record.
struct RawIncarnation {
  std::array<std::byte, sizeof(IncarnationRecord)> bytes;
};
std::optional<std::uint64_t> read_incarnation(const RawIncarnation& bytes, const Seeds& seeds,
                                              unsigned copy);

// A mark that nothing is prepared, or that an attempt is; `id` is of kMaxIdBytes at most.
PreparedMark empty_mark(std::uint64_t counter);
PreparedMark void_mark(const PreparedMark& last);  // the next; it names the attempt that it ends
PreparedMark prepared_mark(std::uint64_t counter, const Root& root, std::string_view id);
bool marks_left(const PreparedMark& last);  // for one of an attempt, and the one that ends it
inline std::string_view mark_id(const PreparedMark& mark) {
  return {mark.id.data(), mark.id_bytes};
}
Page encode_mark(PreparedMark mark, const Seeds& seeds, unsigned copy);
std::optional<PreparedMark> read_mark(const RawPage& page, const Seeds& seeds, unsigned copy);

// The word of version `version` as that attempt, and no other, writes it (I5).
std::uint64_t attempt_word(std::uint64_t version, std::uint64_t incarnation,
                           std::uint64_t sequence);

// Slots of a tensor, and root homes: what the shelf was made for, in how the root splits it.
inline unsigned slot_count(const Root& root) { return 1U + root.keep + root.in_flight; }
inline unsigned home_of(const Root& root) {
  return home_of(word_version(root.word), slot_count(root));
}

// The user's step; none where none was ever stated.
inline std::optional<std::uint64_t> stated_step(const Root& root) {
  if (root.step == kNoStep) return std::nullopt;
  return root.step;
}

// Sets root.checksum for the copy in its home, over root.word as it will be after the flip.
void seal_root(Root& root, const Seeds& seeds, unsigned copy);
struct RootPlace {
  unsigned home;
  unsigned copy;
  unsigned slot_count;  // K of the shelf
};
// Whether all that they say is the same, whichever copies they are: of one attempt, and not of two
// that have the same numbers by going on twice from one state.
bool is_same_root(const Root& a, const Root& b);
// The root, when the checksum and every bound that needs no other page hold.
std::optional<Root> read_root(const RawPage& page, const Seeds& seeds, const RootPlace& place);
// The same of a root that is described as `version` and not flipped, under whatever old word; it
// gets its own.
std::optional<Root> read_described(const RawPage& page, std::uint64_t version, const Seeds& seeds,
                                   const RootPlace& place);
std::uint64_t root_word(const RawPage& page);
std::uint64_t root_time(const RawPage& page);  // Root::time_ns, of whatever lies there
bool blank_but_for_its_word(const RawPage& page);

Page as_page(const Root& root);
void set_root_word(Page& page, std::uint64_t word);
// The word at `offset` of a page, a multiple of 8.
std::uint64_t word_at(const Page& page, std::size_t offset);

// A tensor as its record describes it.
struct TensorLayout {
  std::string name;
  SmallVector<std::int64_t, 4> shape;
  // What assigning asks for, beside what the store keeps behind it: few cache lines, all cold.
  std::uint64_t tensor_id = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t first_cell = 0;
  SmallVector<std::uint64_t, 4> slot_at;  // K of them; of a striped one, K times `stripes`
  Placement placement = Placement::whole;
  DType dtype = DType::uint8;
  std::uint8_t stripes = 1;

  std::uint64_t chunk_count() const { return (size_bytes + kChunkBytes - 1) / kChunkBytes; }
  std::uint64_t cell_count() const { return size_bytes == 0 ? 1 : chunk_count(); }
  unsigned slot_count() const { return static_cast<unsigned>(slot_at.size() / stripes); }
  // The bytes of each place in slot_at.
  std::uint64_t extent_bytes() const {
    return stripes == 1 ? size_bytes : (chunk_count() + stripes - 1) / stripes * kChunkBytes;
  }
  Extent slot(unsigned index) const { return {slot_at[index], size_bytes}; }  // not striped
  // How far behind the begin of its place a chunk lies.
  std::uint64_t within_place(std::uint64_t chunk) const { return chunk / stripes * kChunkBytes; }
  std::uint64_t chunk_at(unsigned slot, std::uint64_t chunk) const {
    return slot_at[slot * stripes + chunk % stripes] + within_place(chunk);
  }
  MediumSet media() const;  // that it lies on
};

// A medium beside the first, as a version names it.
struct MediumLayout {
  unsigned index = 0;
  ShelfId id = {};
  std::uint64_t capacity_bytes = 0;
  std::string path;                      // where it was last
  std::optional<unsigned> mirrors = {};  // the number of the one that it mirrors

  friend bool operator==(const MediumLayout&, const MediumLayout&) = default;
};
using MediaTable = std::vector<MediumLayout>;  // by index, rising

// The page of these media, which has room for all entries; a path that is too long is left out.
// `path_hash`: MediaPage::path_hash.
Page media_page(const MediaTable& media, std::uint64_t path_hash);
std::uint64_t path_hash(const Page& page);
// False where an entry cannot be believed, with the reason.
[[nodiscard]] bool read_media(const Page& page, MediaTable& media, std::string& reason);

// What a medium beside the first bears.
MediumHeader sealed(MediumHeader header, unsigned copy);  // as it lies there
Page encode_medium_header(const MediumHeader& header, unsigned copy);
std::optional<MediumHeader> read_medium_header(const RawPage& page, unsigned copy);
std::optional<unsigned> mirrored_by(const MediumHeader& header);  // the medium that it mirrors
// Whether a page is blank, or has nothing but some words of a header of that shelf's, as a power
// loss while it was written may leave it.
bool may_be_torn_header(const RawPage& page, const ShelfId& shelf_id);
// Whether the beginning of a medium bears, beside its two headers, stamps at most.
bool has_headers_at_most(std::span<const std::byte> bytes);
std::uint64_t medium_stamp(const ShelfId& medium_id, std::uint64_t version);
Page encode_stamp(const MediumStamp& stamp);
// What tells an opening, or what goes on in it from a number once more, from every other, by the
// first attempt of it: not 0.
std::uint64_t opening_of(const Root& attempt);
// The version that wrote there last, by the first word of a stamp.
struct RawStamp {
  std::array<std::byte, sizeof(std::uint64_t)> bytes = {};
};
std::optional<std::uint64_t> stamped_version(const ShelfId& medium_id, const RawStamp& stamp);

// Whether the checksum holds that whoever names a page of the manifest states for it.
[[nodiscard]] bool verifies(const RawPage& raw, const PageRef& ref, const Seeds& seeds);
// The same; where it does, the page is taken over.
[[nodiscard]] bool take_verified(const RawPage& raw, const PageRef& ref, const Seeds& seeds,
                                 Page& page);

Page empty_page(PageKind kind, std::uint32_t index, unsigned level = 0);
PageHead page_head(const Page& page);
// False where the record does not fit into what is left of the page.
[[nodiscard]] bool append_record(Page& page, const TensorLayout& layout);
bool fits_record(const Page& page, const TensorLayout& layout);
void remove_record(Page& page, std::uint64_t tensor_id);
// Where the slots of one of its tensors lie, which are as many as before.
void move_slots(Page& page, std::uint64_t tensor_id, std::span<const std::uint64_t> slot_at);
// Every record of the page, behind those that are there; false where one cannot be believed, with
// the reason.
[[nodiscard]] bool read_records(const Page& page, unsigned slot_count,
                                std::vector<TensorLayout>& layouts, std::string& reason);

ChunkRecord cell(const Page& page, unsigned index);
void set_cell(Page& page, unsigned index, const ChunkRecord& record);
PageRef directory_ref(const Page& page, unsigned index);
void set_directory_ref(Page& page, unsigned index, const PageRef& ref);

// Where tensor names may come from users and from hostile files alike: 1 to kMaxNameBytes of valid
// UTF-8 without NUL. Returns what is wrong, or nothing.
std::optional<std::string> name_problem(std::string_view name);

}  // namespace tensorshelf::format
