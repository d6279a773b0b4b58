#include "format/format.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "format/bytes.hpp"

namespace tensorshelf::format {
namespace {

std::uint64_t superblock_checksum(const Superblock& superblock, unsigned copy) {
  return hash_bytes(std::as_bytes(std::span(&superblock, 1)).first(offsetof(Superblock, checksum)),
                    superblock_at(copy));
}

// The hash of a root whose checksum is 0.
std::uint64_t hash_root(const Root& root, std::uint64_t seed) {
  if (planted(Bug::word_not_covered)) {
    Root without = root;
    without.word = 0;
    return hash_bytes(std::as_bytes(std::span(&without, 1)), seed);
  }
  return hash_bytes(std::as_bytes(std::span(&root, 1)), seed);
}

std::uint64_t root_checksum(Root root, std::uint64_t seed) {
  root.checksum = 0;
  return hash_root(root, seed);
}

}  // namespace

Seeds::Seeds(const ShelfId& id) : shelf_(hash_bytes(std::as_bytes(std::span(id)), 0)) {}

std::uint64_t Seeds::page(std::uint64_t at) const { return page_seed(shelf_, at); }

std::uint64_t Seeds::chunk(std::uint64_t tensor_id, std::uint64_t chunk_index) const {
  return chunk_seed(shelf_, tensor_id, chunk_index);
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
  superblock.checksum = superblock_checksum(superblock, copy);
  Page page;
  store(page, superblock);
  return page;
}

SuperblockRead read_superblock(const RawPage& page, unsigned copy) {
  const auto superblock = load<Superblock>(page);
  if (superblock.magic != kMagic) {
    return {all_zero(page.bytes) ? SuperblockState::zero : SuperblockState::foreign};
  }
  const bool intact = superblock.checksum == superblock_checksum(superblock, copy);
  // A later format may keep its checksum elsewhere, so its version is believed without one.
  if (superblock.format_version > kFormatVersion) {
    return {.state = SuperblockState::newer, .stated = superblock};
  }
  if (!intact) return {SuperblockState::damaged};
  if (superblock.format_version < kOldestFormat) {
    return {.state = SuperblockState::older, .stated = superblock};
  }
  if (superblock.incompat_features != 0 || superblock.slot_count < kMinSlots ||
      superblock.slot_count > kMaxSlots || superblock.medium_count != 1 ||
      superblock.page_bytes != kPageBytes || superblock.chunk_bytes != kChunkBytes) {
    return {.state = SuperblockState::newer, .stated = superblock};
  }
  return {SuperblockState::good, superblock};
}

Page encode_incarnation(std::uint64_t incarnation, const Seeds& seeds, unsigned copy) {
  Page page;
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
  mark.format_version = kMarkFormat;
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
  Page page;
  store(page, mark);
  return page;
}

std::optional<PreparedMark> read_mark(const RawPage& page, const Seeds& seeds, unsigned copy) {
  const auto mark = load<PreparedMark>(page);
  if (mark.checksum != mark_checksum(mark, seeds, copy)) return std::nullopt;
  if (mark.format_version != kMarkFormat || mark.id_bytes > kMaxIdBytes) return std::nullopt;
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
  root.checksum = 0;  // in place: 4 KiB that need not be copied
  root.checksum = hash_root(root, seeds.page(root_at(home_of(root), copy)));
}

namespace {

std::optional<Root> checked(const Root& root, const Seeds& seeds, const RootPlace& place) {
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
  if ((root.flags & ~kLeavesInRoot) != 0) return std::nullopt;
  if (root.leaf_count > leaves_through(root_levels(root))) return std::nullopt;
  return root;
}

}  // namespace

std::optional<Root> read_root(const RawPage& page, const Seeds& seeds, const RootPlace& place) {
  return checked(load<Root>(page), seeds, place);
}

std::optional<Root> read_described(const RawPage& page, std::uint64_t version, const Seeds& seeds,
                                   const RootPlace& place) {
  auto root = load<Root>(page);
  root.word = attempt_word(version, root.incarnation, root.sequence);
  return checked(root, seeds, place);
}

bool is_same_root(const Root& a, const Root& b) {
  Root copy = b;
  copy.checksum = a.checksum;  // which says which copy it is
  return std::memcmp(&a, &copy, sizeof a) == 0;
}

std::uint64_t root_word(const RawPage& page) { return load<std::uint64_t>(page); }

std::uint64_t root_time(const RawPage& page) {
  return load<std::uint64_t>(page, offsetof(Root, time_ns));
}

bool blank_but_for_its_word(const RawPage& page) {
  return all_zero(std::span(page.bytes).subspan(sizeof(Root::word)));
}

void set_root_word(Page& page, std::uint64_t word) { store(page, word); }

std::uint64_t word_at(const Page& page, std::size_t offset) {
  return load<std::uint64_t>(page, offset);
}

Page as_page(const Root& root) {
  Page page;
  store(page, root);
  return page;
}

}  // namespace tensorshelf::format
