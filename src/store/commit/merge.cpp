// Chunks of which an assignment changes a part.
#include <algorithm>
#include <cstring>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/commit/stager.hpp"
#include "store/io/chunk_io.hpp"
#include "store/io/unreadable.hpp"

namespace tensorshelf {

using format::ChunkRecord;

// What the attempt has of the chunk so far, be it spoiled: who assigns it all need not read it.
ChunkRecord Stager::present_record(const StoredTensor& tensor, std::uint64_t chunk) const {
  const bool staged = tensor.attempt == state_.open->sequence && tensor.written.contains(chunk);
  return staged ? tensor.staged[chunk] : state_.open->base->tree.record(tensor.cell(chunk));
}

// Whether that slot has the chunk as it is now, of which `whole` then is a copy. Its own bytes are
// looked at, whatever was verified before: they get a checksum of their own.
bool Stager::slot_has(StoredTensor& tensor, unsigned slot, const MergedChunk& merged,
                      const ChunkRecord& now) {
  const auto& [chunk, whole, offset, size, in_slot] = merged;
  if (tensor.label(slot, chunk) != format::chunk_version(now)) return false;
  try {
    const auto there = fetch_chunk(*state_.medium, tensor, slot, chunk, whole);
    if (!there.lie_in(whole) && !there.copy_into(whole)) return false;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    return false;
  }
  const std::uint64_t seed = tensor.chunk_seed(state_.seeds, chunk);
  return hash_bytes(whole, seed) == now.checksum || planted(Bug::patched_over_rot);
}

// A chunk of which only a part is new: the rest is its present value. That gets a checksum of its
// own now, so it is looked at whatever was verified before: rot must not be made good.
void Stager::merge_chunk(StoredTensor& tensor, MergedChunk& merged,
                         std::span<const std::byte> bytes) {
  const auto& [chunk, whole, offset, size, in_slot] = merged;
  const RecordedChunk now{tensor, chunk, present_record(tensor, chunk),
                          state_.open->base->number()};
  if (now.is_stored() && !planted(Bug::merge_left_out)) {
    if (tensor.whole()) {
      const bool open = tensor.attempt == state_.open->sequence;
      const auto slot = open ? tensor.working : free_.find(tensor, 0);
      if (slot && slot_has(tensor, *slot, merged, now.record)) {
        merged.in_slot = slot;
        ++state_.counters.verified;
      }
    }
    if (!merged.in_slot) {
      if (planted(Bug::merge_not_verified)) {
        chunks_.copy_out(now, whole, 0);
      } else {
        chunks_.read_sound(now, whole);
      }
    }
  } else {
    std::memset(whole.data(), 0, whole.size());
  }
  std::memcpy(whole.data() + offset, bytes.data(), bytes.size());
}

// Writes the chunk; where the slot has its present value, the pages that are new are enough.
void Stager::write_merged(StoredTensor& tensor, const MergedChunk& merged, const FoundSlot& found) {
  const auto& [chunk, whole, offset, size, in_slot] = merged;
  if (!tensor.whole() || in_slot != tensor.working) {
    return write_chunk(tensor, chunk, whole, found);
  }
  const unsigned slot = tensor.working;
  const std::uint64_t begin = offset / kPageBytes * kPageBytes;
  const std::uint64_t end =
      std::min<std::uint64_t>(round_up(offset + size, kPageBytes), whole.size());
  tensor.clear_verified(slot, chunk);  // as in ChunkCopy
  tensor.label(slot, chunk) = 0;
  note_ticket(state_, state_.medium->write(tensor.chunk_at(slot, chunk) + begin,
                                           whole.subspan(begin, end - begin), 0));
  tensor.set_verified(slot, chunk);
  note_written(tensor, chunk, slot, hash_bytes(whole, tensor.chunk_seed(state_.seeds, chunk)));
}

}  // namespace tensorshelf
