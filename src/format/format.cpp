#include "format/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "base/planted.hpp"

namespace tensorshelf::format {
namespace {

// Odd constants of XXH64 (Yann Collet, xxHash specification, "XXH64 algorithm"): they spread
// positions over the seed; the hash does the mixing.
constexpr std::uint64_t kSpread1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t kSpread2 = 0xC2B2AE3D27D4EB4FULL;

template <typename T>
T load(const RawPage& page, std::size_t offset = 0) {
  static_assert(kStorable<T>);
  TENSORSHELF_ASSERT(offset + sizeof(T) <= sizeof(Page));
  T value;
  std::memcpy(&value, page.bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void store(Page& page, const T& value, std::size_t offset = 0) {
  static_assert(kStorable<T>);
  TENSORSHELF_ASSERT(offset + sizeof(T) <= sizeof(Page));
  std::memcpy(page.bytes.data() + offset, &value, sizeof(T));
}

std::uint64_t superblock_checksum(const RawPage& page, unsigned copy) {
  return hash_bytes(std::span(page.bytes).first(offsetof(Superblock, checksum)),
                    superblock_at(copy));
}

std::uint64_t root_checksum(Root root, std::uint64_t seed) {
  root.checksum = 0;
  if (planted(Bug::word_not_covered)) root.word = 0;
  return hash_bytes(std::as_bytes(std::span(&root, 1)), seed);
}

}  // namespace

Seeds::Seeds(const ShelfId& id) : shelf_(hash_bytes(std::as_bytes(std::span(id)), 0)) {}

std::uint64_t Seeds::page(std::uint64_t at) const { return shelf_ ^ (at * kSpread1); }

std::uint64_t Seeds::chunk(std::uint64_t tensor_id, std::uint64_t chunk_index) const {
  return shelf_ + (tensor_id * kSpread1 ^ (chunk_index + 1) * kSpread2);
}

Superblock new_superblock(const ShelfId& id, unsigned slot_count) {
  Superblock superblock{};
  superblock.magic = kMagic;
  superblock.format_version = kFormatVersion;
  superblock.slot_count = slot_count;
  superblock.shelf_id = id;
  superblock.page_bytes = kPageBytes;
  superblock.chunk_bytes = kChunkBytes;
  superblock.medium_count = 1;
  superblock.media[0].medium_id = id;
  return superblock;
}

Page encode_superblock(Superblock superblock, unsigned copy) {
  Page page{};
  store(page, superblock);
  superblock.checksum = superblock_checksum(page, copy);
  store(page, superblock);
  return page;
}

SuperblockRead read_superblock(const RawPage& page, unsigned copy) {
  const auto superblock = load<Superblock>(page);
  if (superblock.magic != kMagic) {
    for (std::byte b : page.bytes) {
      if (b != std::byte{0}) return {SuperblockState::foreign, superblock};
    }
    return {SuperblockState::zero, superblock};
  }
  const bool intact = superblock.checksum == superblock_checksum(page, copy);
  // A later format may keep its checksum elsewhere, so its version is believed without one.
  if (superblock.format_version > kFormatVersion) return {SuperblockState::newer, superblock};
  if (!intact) return {SuperblockState::damaged, superblock};
  if (superblock.format_version < kFormatVersion) return {SuperblockState::older, superblock};
  if (superblock.incompat_features != 0 || superblock.slot_count < kMinSlots ||
      superblock.slot_count > kMaxSlots || superblock.medium_count != 1 ||
      superblock.page_bytes != kPageBytes || superblock.chunk_bytes != kChunkBytes) {
    return {SuperblockState::newer, superblock};
  }
  return {SuperblockState::good, superblock};
}

Page encode_incarnation(std::uint64_t incarnation, const Seeds& seeds, unsigned copy) {
  Page page{};
  store(page, IncarnationRecord{incarnation, hash_bytes(std::as_bytes(std::span(&incarnation, 1)),
                                                        seeds.page(incarnation_at(copy)))});
  return page;
}

std::optional<std::uint64_t> read_incarnation(const RawPage& page, const Seeds& seeds,
                                              unsigned copy) {
  return read_incarnation(load<RawIncarnation>(page), seeds, copy);
}

std::optional<std::uint64_t> read_incarnation(const RawIncarnation& bytes, const Seeds& seeds,
                                              unsigned copy) {
  const auto record = std::bit_cast<IncarnationRecord>(bytes);
  const auto expected = hash_bytes(std::as_bytes(std::span(&record.incarnation, 1)),
                                   seeds.page(incarnation_at(copy)));
  if (record.checksum != expected || record.incarnation == 0 || record.incarnation > kMaxCounter) {
    return std::nullopt;
  }
  return record.incarnation;
}

namespace {

std::uint64_t mark_checksum(const PreparedMark& mark, const Seeds& seeds, unsigned copy) {
  return hash_bytes(std::as_bytes(std::span(&mark, 1)).first(offsetof(PreparedMark, checksum)),
                    seeds.page(mark_at(copy)));
}

}  // namespace

PreparedMark empty_mark(std::uint64_t counter) {
  PreparedMark mark{};
  mark.counter = counter;
  mark.format_version = kFormatVersion;
  return mark;
}

PreparedMark void_mark(const PreparedMark& last) {
  PreparedMark mark = empty_mark(last.counter + 1);
  mark.incarnation = last.incarnation;
  mark.sequence = last.sequence;
  return mark;
}

PreparedMark prepared_mark(std::uint64_t counter, const Root& root, std::string_view id) {
  TENSORSHELF_ASSERT(id.size() <= kMaxIdBytes);
  PreparedMark mark = empty_mark(counter);
  mark.version = word_version(root.word);
  mark.incarnation = root.incarnation;
  mark.sequence = root.sequence;
  mark.id_bytes = static_cast<std::uint32_t>(id.size());
  std::copy(id.begin(), id.end(), mark.id.begin());  // of an empty one there may be no data
  return mark;
}

bool marks_left(const PreparedMark& last) { return last.counter + 2 <= kMaxCounter; }

Page encode_mark(PreparedMark mark, const Seeds& seeds, unsigned copy) {
  mark.checksum = mark_checksum(mark, seeds, copy);
  Page page{};
  store(page, mark);
  return page;
}

std::optional<PreparedMark> read_mark(const RawPage& page, const Seeds& seeds, unsigned copy) {
  const auto mark = load<PreparedMark>(page);
  if (mark.checksum != mark_checksum(mark, seeds, copy)) return std::nullopt;
  if (mark.format_version != kFormatVersion || mark.id_bytes > kMaxIdBytes) return std::nullopt;
  if (mark.counter == 0 || mark.counter > kMaxCounter) return std::nullopt;
  if (mark.version != 0 && mark.counter == kMaxCounter) return std::nullopt;  // it must end
  if (mark.version >= kMaxVersion || mark.incarnation > kMaxCounter) return std::nullopt;
  return mark;
}

std::uint64_t attempt_word(std::uint64_t version, std::uint64_t incarnation,
                           std::uint64_t sequence) {
  const std::array attempt = {incarnation,
                              planted(Bug::tag_by_incarnation) ? std::uint64_t{0} : sequence};
  const std::uint64_t tag = hash_bytes(std::as_bytes(std::span(attempt)), 0);
  return tagged_word(version, planted(Bug::tag_of_old_word) ? tag % 4 : tag);
}

void seal_root(Root& root, const Seeds& seeds, unsigned copy) {
  root.checksum = root_checksum(root, seeds.page(root_at(home_of(root), copy)));
}

std::optional<Root> read_root(const RawPage& page, const Seeds& seeds, const RootPlace& place) {
  const auto root = load<Root>(page);
  if (root.word == 0) return std::nullopt;
  if (root.checksum != root_checksum(root, seeds.page(root_at(place.home, place.copy))) &&
      !planted(Bug::root_checksum_ignored)) {
    return std::nullopt;
  }
  const std::uint64_t version = word_version(root.word);
  if (slot_count(root) != place.slot_count || root.in_flight == 0) return std::nullopt;
  if (home_of(version, place.slot_count) != place.home) return std::nullopt;
  if (version == kMaxVersion) return std::nullopt;  // marks unused homes
  // The word is the body's own, which the checksum says too.
  if (!planted(Bug::word_not_covered)) {
    if (attempt_word(version, root.incarnation, root.sequence) != root.word) return std::nullopt;
    if (root.floor > version || version - root.floor > root.keep) return std::nullopt;
  }
  if (root.incarnation > kMaxCounter || root.next_tensor_id > kMaxCounter) return std::nullopt;
  if (root.capacity_bytes < kHeapAt || root.capacity_bytes % kPageBytes != 0) return std::nullopt;
  if (root.leaf_count > kMaxLeaves) return std::nullopt;
  return root;
}

std::optional<Root> read_described(const RawPage& page, std::uint64_t version, const Seeds& seeds,
                                   const RootPlace& place) {
  const auto body = load<Root>(page);
  Page flipped{page};
  store(flipped, attempt_word(version, body.incarnation, body.sequence));
  return read_root(flipped, seeds, place);
}

std::uint64_t root_word(const RawPage& page) { return load<std::uint64_t>(page); }

void set_root_word(Page& page, std::uint64_t word) { store(page, word); }

std::uint64_t word_at(const Page& page, std::size_t offset) {
  return load<std::uint64_t>(page, offset);
}

Page as_page(const Root& root) {
  Page page;
  store(page, root);
  return page;
}

Page empty_page(PageKind kind, std::uint32_t index, unsigned level) {
  Page page{};
  const bool records = kind == PageKind::records;
  store(page, PageHead{kind, index,
                       records ? static_cast<std::uint32_t>(sizeof(PageHead))
                               : static_cast<std::uint32_t>(kPageBytes),
                       level});
  return page;
}

std::optional<Page> verified(const RawPage& raw, const PageRef& ref, const Seeds& seeds) {
  const bool holds = hash_bytes(raw.bytes, seeds.page(ref.at[0])) == ref.checksum;
  if (!holds && !planted(Bug::page_checksum_ignored)) return std::nullopt;
  return Page{raw};
}

PageHead page_head(const Page& page) { return load<PageHead>(page); }

namespace {

std::size_t record_bytes(const TensorLayout& layout) {
  return sizeof(TensorRecord) + layout.slot_at.size() * sizeof(SlotRecord) +
         layout.shape.size() * sizeof(std::int64_t) + round_up(layout.name.size(), 8);
}

}  // namespace

bool fits_record(const Page& page, const TensorLayout& layout) {
  return page_head(page).used_bytes + record_bytes(layout) <= kPageBytes;
}

bool append_record(Page& page, const TensorLayout& layout) {
  auto head = page_head(page);
  TENSORSHELF_ASSERT(head.kind == PageKind::records);
  if (!fits_record(page, layout)) return false;
  TensorRecord record{};
  record.tensor_id = layout.tensor_id;
  record.size_bytes = layout.size_bytes;
  record.first_cell = layout.first_cell;
  record.dtype = static_cast<std::uint16_t>(layout.dtype);
  record.dim_count = static_cast<std::uint16_t>(layout.shape.size());
  record.name_bytes = static_cast<std::uint16_t>(layout.name.size());
  record.slot_count = static_cast<std::uint16_t>(layout.slot_at.size());
  record.placement = layout.placement;
  record.record_bytes = static_cast<std::uint32_t>(record_bytes(layout));
  std::size_t offset = head.used_bytes;
  store(page, record, offset);
  offset += sizeof(TensorRecord);
  for (std::uint64_t at : layout.slot_at) {
    store(page, SlotRecord{at, 0, 0}, offset);
    offset += sizeof(SlotRecord);
  }
  for (std::int64_t dim : layout.shape) {
    store(page, dim, offset);
    offset += sizeof(dim);
  }
  std::memset(page.bytes.data() + offset, 0, round_up(layout.name.size(), 8));
  std::memcpy(page.bytes.data() + offset, layout.name.data(), layout.name.size());
  head.used_bytes += record.record_bytes;
  store(page, head);
  return true;
}

void remove_record(Page& page, std::uint64_t tensor_id) {
  auto head = page_head(page);
  for (std::size_t offset = sizeof(PageHead); offset < head.used_bytes;) {
    const auto record = load<TensorRecord>(page, offset);
    if (record.tensor_id == tensor_id) {
      const std::size_t next = offset + record.record_bytes;
      std::byte* base = page.bytes.data();
      std::memmove(base + offset, base + next, head.used_bytes - next);
      head.used_bytes -= record.record_bytes;
      std::memset(base + head.used_bytes, 0, record.record_bytes);
      store(page, head);
      return;
    }
    offset += record.record_bytes;
  }
  constexpr bool record_is_on_the_page_of_its_tensor = false;
  TENSORSHELF_ASSERT(record_is_on_the_page_of_its_tensor);
}

namespace {

// One record at `offset`, with everything checked that the page alone can tell.
std::optional<TensorLayout> read_record(const Page& page, std::size_t offset, std::size_t end,
                                        unsigned slot_count, std::uint32_t& record_bytes,
                                        std::string& reason) {
  if (offset + sizeof(TensorRecord) > end) {
    reason = "a tensor record is cut off";
    return std::nullopt;
  }
  const auto record = load<TensorRecord>(page, offset);
  record_bytes = record.record_bytes;
  const std::size_t expected = sizeof(TensorRecord) + record.slot_count * sizeof(SlotRecord) +
                               record.dim_count * sizeof(std::int64_t) +
                               round_up(record.name_bytes, 8);
  if (record.slot_count != slot_count || record.dim_count > kMaxDims ||
      record.record_bytes != expected || offset + expected > end) {
    reason = fmt::format("the record of tensor {} has impossible counts", record.tensor_id);
    return std::nullopt;
  }
  TensorLayout layout;
  layout.tensor_id = record.tensor_id;
  if (record.placement != Placement::whole && record.placement != Placement::by_chunk) {
    reason = fmt::format("tensor {} is placed in no way that there is", record.tensor_id);
    return std::nullopt;
  }
  layout.placement = record.placement;
  layout.slot_at.resize(slot_count);
  layout.dtype = static_cast<DType>(record.dtype);
  layout.size_bytes = record.size_bytes;
  layout.first_cell = record.first_cell;
  offset += sizeof(TensorRecord);
  for (std::uint64_t& at : layout.slot_at) {
    const auto slot = load<SlotRecord>(page, offset);
    if (slot.medium != 0) {
      reason = fmt::format("tensor {} names medium {}", record.tensor_id, slot.medium);
      return std::nullopt;
    }
    at = slot.at;
    offset += sizeof(SlotRecord);
  }
  for (unsigned i = 0; i < record.dim_count; ++i, offset += sizeof(std::int64_t)) {
    layout.shape.push_back(load<std::int64_t>(page, offset));
  }
  layout.name.assign(reinterpret_cast<const char*>(page.bytes.data()) + offset, record.name_bytes);
  if (auto problem = name_problem(layout.name)) {
    reason = fmt::format("the name of tensor {} {}", record.tensor_id, *problem);
    return std::nullopt;
  }
  if (tensor_bytes(layout.dtype, layout.shape) != layout.size_bytes) {
    reason = fmt::format("tensor '{}' has a dtype and shape that do not make {} bytes", layout.name,
                         layout.size_bytes);
    return std::nullopt;
  }
  return layout;
}

}  // namespace

std::optional<std::vector<TensorLayout>> read_records(const Page& page, unsigned slot_count,
                                                      std::string& reason) {
  const auto head = page_head(page);
  if (head.used_bytes < sizeof(PageHead) || head.used_bytes > kPageBytes) {
    reason = "a page of tensor records has an impossible length";
    return std::nullopt;
  }
  std::vector<TensorLayout> layouts;
  for (std::size_t offset = sizeof(PageHead); offset < head.used_bytes;) {
    std::uint32_t record_bytes = 0;
    auto layout = read_record(page, offset, head.used_bytes, slot_count, record_bytes, reason);
    if (!layout) return std::nullopt;
    layouts.push_back(std::move(*layout));
    offset += record_bytes;
  }
  return layouts;
}

ChunkRecord cell(const Page& page, unsigned index) {
  return load<ChunkRecord>(page, offsetof(CellsPage, cells) + index * sizeof(ChunkRecord));
}

void set_cell(Page& page, unsigned index, const ChunkRecord& record) {
  store(page, record, offsetof(CellsPage, cells) + index * sizeof(ChunkRecord));
}

PageRef directory_ref(const Page& page, unsigned index) {
  return load<PageRef>(page, offsetof(DirectoryPage, pages) + index * sizeof(PageRef));
}

void set_directory_ref(Page& page, unsigned index, const PageRef& ref) {
  store(page, ref, offsetof(DirectoryPage, pages) + index * sizeof(PageRef));
}

}  // namespace tensorshelf::format
