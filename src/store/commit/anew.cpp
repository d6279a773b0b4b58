// Chunks that were damaged, written anew in the open attempt.
#include <mutex>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/commit/stager.hpp"
#include "store/io/chunk_io.hpp"

namespace tensorshelf {

using format::ChunkKind;

// Written also where the slot has those bytes already: what can be read there may be on no device,
// where a flush failed behind it (I1).
void Stager::write_anew(const std::shared_ptr<StoredTensor>& tensor, std::uint64_t chunk,
                        std::span<const std::byte> bytes, std::unique_lock<FairMutex>& lock) {
  FoundSlot found = free_.await(*tensor, chunk * kChunkBytes, bytes.size(), lock);
  if (planted(Bug::healed_in_place)) {
    found = {chunk, recorded_in(*state_.open->base, *tensor, chunk).slot()};
  }
  begin_write(tensor, found);
  state_.open->staged_bytes += bytes.size();
  state_.counters.staged += bytes.size();
  if (planted(Bug::healed_unwritten) && found.slot) {
    const std::uint64_t seed = tensor->chunk_seed(state_.seeds, chunk);
    return note_written(*tensor, chunk, *found.slot, hash_bytes(bytes, seed));
  }
  write_chunk(*tensor, chunk, bytes, found);
}

// A label says which value was written there, and not that it is there still: what rotted in a free
// slot would come into the version in place of what is sound. It is copied forward instead, which
// is checked.
void Stager::check_labels(StoredTensor& tensor) {
  if (!tensor.whole() || planted(Bug::healed_over_rot)) return;
  for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
    if (tensor.written.contains(chunk) || lacks(tensor, chunk)) continue;
    RecordedChunk there = recorded_in(*state_.open->base, tensor, chunk);
    there.record.state = format::chunk_state(ChunkKind::stored, tensor.working, there.version());
    ++state_.counters.verified;
    if (chunk_intact(*state_.medium, state_.seeds, there)) continue;
    tensor.clear_verified(tensor.working, chunk);
    tensor.label(tensor.working, chunk) = 0;
  }
}

}  // namespace tensorshelf
