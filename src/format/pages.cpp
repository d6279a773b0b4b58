// Pages of the manifest: directories, tensor records, cells (format.hpp).
#include <fmt/format.h>

#include <algorithm>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "format/bytes.hpp"
#include "format/format.hpp"

namespace tensorshelf::format {

Page empty_page(PageKind kind, std::uint32_t index, unsigned level) {
  Page page;
  const bool records = kind == PageKind::records;
  store(page, PageHead{kind, index,
                       records ? static_cast<std::uint32_t>(sizeof(PageHead))
                               : static_cast<std::uint32_t>(kPageBytes),
                       level});
  return page;
}

bool verifies(const RawPage& raw, const PageRef& ref, const Seeds& seeds) {
  const bool holds = hash_bytes(raw.bytes, seeds.page(ref.at[0])) == ref.checksum;
  return holds || planted(Bug::page_checksum_ignored);
}

bool take_verified(const RawPage& raw, const PageRef& ref, const Seeds& seeds, Page& page) {
  const bool good = verifies(raw, ref, seeds);
  if (good) within(page) = raw.bytes;
  return good;
}

PageHead page_head(const Page& page) { return load<PageHead>(page); }

namespace {

std::size_t record_bytes(std::size_t slots, std::size_t dims, std::size_t name_bytes) {
  return sizeof(TensorRecord) + slots * sizeof(SlotRecord) + dims * sizeof(std::int64_t) +
         round_up(name_bytes, 8);
}

std::size_t record_bytes(const TensorLayout& layout) {
  return record_bytes(layout.slot_at.size(), layout.shape.size(), layout.name.size());
}

}  // namespace

bool fits_record(const Page& page, const TensorLayout& layout) {
  return page_head(page).used_bytes + record_bytes(layout) <= kPageBytes;
}

namespace {

// Where the record of that tensor begins, which is on the page.
std::size_t find_record(const Page& page, std::uint64_t tensor_id) {
  const std::size_t end = page_head(page).used_bytes;
  for (std::size_t offset = sizeof(PageHead); offset < end;) {
    const auto record = load<TensorRecord>(page, offset);
    if (record.tensor_id == tensor_id) return offset;
    offset += record.record_bytes;
  }
  constexpr bool record_is_on_the_page_of_its_tensor = false;
  TENSORSHELF_ASSERT(record_is_on_the_page_of_its_tensor);
  return end;
}

void store_slots(Page& page, std::size_t offset, std::span<const std::uint64_t> slot_at) {
  for (const std::uint64_t at : slot_at) {
    store(page, SlotRecord{offset_of(at), medium_of(at), 0}, offset);
    offset += sizeof(SlotRecord);
  }
}

}  // namespace

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
  record.slot_count = static_cast<std::uint16_t>(layout.slot_count());
  record.stripe_count = layout.stripes == 1 ? std::uint16_t{0} : layout.stripes;
  record.placement = layout.placement;
  record.record_bytes = static_cast<std::uint32_t>(record_bytes(layout));
  std::size_t offset = head.used_bytes;
  store(page, record, offset);
  offset += sizeof(TensorRecord);
  store_slots(page, offset, {layout.slot_at.begin(), layout.slot_at.end()});
  offset += layout.slot_at.size() * sizeof(SlotRecord);
  for (std::int64_t dim : layout.shape) {
    store(page, dim, offset);
    offset += sizeof(dim);
  }
  std::byte* const name = within(page).data() + offset;
  std::memset(name, 0, round_up(layout.name.size(), 8));
  std::memcpy(name, layout.name.data(), layout.name.size());
  head.used_bytes += record.record_bytes;
  store(page, head);
  return true;
}

void remove_record(Page& page, std::uint64_t tensor_id) {
  auto head = page_head(page);
  const std::size_t offset = find_record(page, tensor_id);
  const auto size = load<TensorRecord>(page, offset).record_bytes;
  std::byte* const base = within(page).data();
  std::memmove(base + offset, base + offset + size, head.used_bytes - offset - size);
  head.used_bytes -= size;
  std::memset(base + head.used_bytes, 0, size);
  store(page, head);
}

void move_slots(Page& page, std::uint64_t tensor_id, std::span<const std::uint64_t> slot_at) {
  store_slots(page, find_record(page, tensor_id) + sizeof(TensorRecord), slot_at);
}

namespace {

bool read_slots(const Page& page, std::size_t offset, TensorLayout& layout) {
  for (std::uint64_t& at : layout.slot_at) {
    const auto slot = load<SlotRecord>(page, offset);
    if (slot.medium >= kMaxMedia || slot.at >= kMaxMediumBytes) return false;
    at = place_on(slot.medium, slot.at);
    offset += sizeof(SlotRecord);
  }
  return true;
}

// One record at `offset`, which moves behind it, with everything checked that the page alone can
// tell.
bool read_record(const Page& page, std::size_t& offset, std::size_t end, unsigned slot_count,
                 TensorLayout& layout, std::string& reason) {
  if (offset + sizeof(TensorRecord) > end) {
    reason = "a tensor record is cut off";
    return false;
  }
  const auto record = load<TensorRecord>(page, offset);
  const unsigned stripes = std::max<unsigned>(1, record.stripe_count);
  const auto expected = format::record_bytes(std::size_t{record.slot_count} * stripes,
                                             record.dim_count, record.name_bytes);
  if (record.slot_count != slot_count || record.dim_count > kMaxDims || stripes > kMaxMedia ||
      record.stripe_count == 1 || record.record_bytes != expected || offset + expected > end) {
    reason = fmt::format("the record of tensor {} has impossible counts", record.tensor_id);
    return false;
  }
  layout.tensor_id = record.tensor_id;
  const bool whole = record.placement == Placement::whole && stripes == 1;
  if (!whole && record.placement != Placement::by_chunk) {
    reason = fmt::format("tensor {} is placed in no way that there is", record.tensor_id);
    return false;
  }
  layout.placement = record.placement;
  layout.stripes = static_cast<std::uint8_t>(stripes);
  layout.slot_at.resize(std::size_t{slot_count} * stripes);
  layout.dtype = static_cast<DType>(record.dtype);
  layout.size_bytes = record.size_bytes;
  layout.first_cell = record.first_cell;
  const std::size_t next = offset + record.record_bytes;
  offset += sizeof(TensorRecord);
  if (!read_slots(page, offset, layout)) {
    reason = fmt::format("tensor {} names a place that no medium has", record.tensor_id);
    return false;
  }
  offset += layout.slot_at.size() * sizeof(SlotRecord);
  layout.shape.resize(record.dim_count);
  for (std::int64_t& dim : layout.shape) {
    dim = load<std::int64_t>(page, offset);
    offset += sizeof(dim);
  }
  layout.name.assign(reinterpret_cast<const char*>(page.bytes().data()) + offset,
                     record.name_bytes);
  if (auto problem = name_problem(layout.name)) {
    reason = fmt::format("the name of tensor {} {}", record.tensor_id, *problem);
    return false;
  }
  if (tensor_bytes(layout.dtype, layout.shape) != layout.size_bytes) {
    reason = fmt::format("tensor '{}' has a dtype and shape that do not make {} bytes", layout.name,
                         layout.size_bytes);
    return false;
  }
  offset = next;
  return true;
}

}  // namespace

bool read_records(const Page& page, unsigned slot_count, std::vector<TensorLayout>& layouts,
                  std::string& reason) {
  const auto head = page_head(page);
  if (head.used_bytes < sizeof(PageHead) || head.used_bytes > kPageBytes) {
    reason = "a page of tensor records has an impossible length";
    return false;
  }
  for (std::size_t offset = sizeof(PageHead); offset < head.used_bytes;) {
    TensorLayout& layout = layouts.emplace_back();
    if (!read_record(page, offset, head.used_bytes, slot_count, layout, reason)) return false;
  }
  return true;
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
