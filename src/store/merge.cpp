// Chunks of which an assignment changes a part.
#include <algorithm>
#include <cstring>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/chunk_io.hpp"
#include "store/store.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

// What the attempt has of the chunk so far, be it spoiled: who assigns it all need not read it.
ChunkRecord Store::present_record(const StoredTensor& tensor, std::uint64_t chunk) const {
  const bool staged = tensor.attempt == open_->sequence && tensor.written.contains(chunk);
  return staged ? tensor.staged[chunk] : open_->base->tree.record(tensor.cell(chunk));
}

// Whether that slot has the chunk as it is now, of which `whole` then is a copy. Its own bytes are
// looked at, whatever was verified before: they get a checksum of their own.
bool Store::slot_has(StoredTensor& tensor, unsigned slot, const MergedChunk& merged,
                     const ChunkRecord& now) {
  const auto& [chunk, whole, offset, size, in_slot] = merged;
  if (tensor.label(slot, chunk) != format::chunk_version(now)) return false;
  try {
    const auto there = fetch_chunks(*medium_, tensor, slot, chunk, 1, whole);
    if (there.data() != whole.data() && !copy_mapped(whole, there)) return false;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    return false;
  }
  const std::uint64_t seed = seeds_.chunk(tensor.layout.tensor_id, chunk);
  return hash_bytes(whole, seed) == now.checksum || planted(Bug::patched_over_rot);
}

// A chunk of which only a part is new: the rest is its present value. That gets a checksum of its
// own now, so it is looked at whatever was verified before: rot must not be made good.
void Store::merge_chunk(StoredTensor& tensor, MergedChunk& merged,
                        std::span<const std::byte> bytes) {
  const auto& [chunk, whole, offset, size, in_slot] = merged;
  const Record now{present_record(tensor, chunk), open_->base->number()};
  if (format::chunk_kind(now) == ChunkKind::stored && !planted(Bug::merge_left_out)) {
    ++counters_.verified;
    if (tensor.whole()) {
      const bool open = tensor.attempt == open_->sequence;
      const auto slot = open ? tensor.working : free_slot(tensor, 0);
      if (slot && slot_has(tensor, *slot, merged, now)) merged.in_slot = slot;
    }
    if (!merged.in_slot) {
      copy_out(tensor, now, chunk, whole, 0);
      const std::uint64_t seed = seeds_.chunk(tensor.layout.tensor_id, chunk);
      if (hash_bytes(whole, seed) != now.checksum && !planted(Bug::merge_not_verified)) {
        throw_damaged(tensor, now, chunk);
      }
    }
  } else {
    std::memset(whole.data(), 0, whole.size());
  }
  std::memcpy(whole.data() + offset, bytes.data(), bytes.size());
}

// Of a chunk whose present value the slot has, the pages that are new are enough.
void Store::write_merged(StoredTensor& tensor, const MergedChunk& merged) {
  const auto& [chunk, whole, offset, size, in_slot] = merged;
  if (!tensor.whole() || in_slot != tensor.working) return write_chunk(tensor, chunk, whole);
  const unsigned slot = tensor.working;
  const std::uint64_t begin = offset / kPageBytes * kPageBytes;
  const std::uint64_t end =
      std::min<std::uint64_t>(round_up(offset + size, kPageBytes), whole.size());
  tensor.clear_verified(slot, chunk);  // as in put_chunk()
  tensor.label(slot, chunk) = 0;
  note_ticket(
      medium_->write(tensor.chunk_at(slot, chunk) + begin, whole.subspan(begin, end - begin), 0));
  tensor.set_verified(slot, chunk);
  note_written(tensor, chunk, slot,
               hash_bytes(whole, seeds_.chunk(tensor.layout.tensor_id, chunk)));
}

}  // namespace tensorshelf
