#include "store/commit/stager.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/planted.hpp"
#include "store/io/chunk_io.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

namespace {

std::span<const std::byte> zero_chunk() {
  static const auto zeros = std::make_unique<std::byte[]>(kChunkBytes);
  return {zeros.get(), kChunkBytes};
}

// Calls visit(chunk, offset in the chunk, size, offset in the range) for each chunk of the range.
template <typename Visit>
void each_chunk(std::uint64_t offset, std::uint64_t size, Visit visit) {
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t at = offset + done;
    const std::uint64_t within = at % kChunkBytes;
    const std::uint64_t piece = std::min(kChunkBytes - within, size - done);
    visit(at / kChunkBytes, within, piece, done);
    done += piece;
  }
}

// As if the attempt had never written it: what it had there is gone, and is no version's (I3).
void forget_written(StoredTensor& tensor, std::uint64_t chunk) {
  if (!tensor.written.contains(chunk)) return;
  tensor.written.erase(chunk);
  if (tensor.whole() && !planted(Bug::unchanged_label_kept)) {
    tensor.label(tensor.working, chunk) = 0;
  }
}

}  // namespace

bool Stager::begin_write(const std::shared_ptr<StoredTensor>& tensor, const FoundSlot& found) {
  if (tensor->attempt == state_.open->sequence) {
    if (tensor->carried && !planted(Bug::carried_for_good)) {
      tensor->carried = false;
      std::lock_guard lock(state_.dirty_mutex);
      --state_.open->carried;
    }
    return false;
  }
  if (!planted(Bug::dirty_bit_lost)) {
    std::lock_guard lock(state_.dirty_mutex);
    state_.open->dirty.push_back(tensor);
  }
  tensor->carried = false;
  tensor->working = tensor->whole() ? found.slot.value_or(0) : 0;
  tensor->written.clear();
  tensor->attempt = state_.open->sequence;
  return true;
}

void Stager::write_chunk(StoredTensor& tensor, std::uint64_t chunk,
                         std::span<const std::byte> bytes, const FoundSlot& found,
                         Handing handing) {
  const unsigned slot = free_.next(tensor, chunk, found);
  note_written(tensor, chunk, slot, put_chunk(state_, tensor, slot, chunk, bytes, handing));
}

void Stager::note_written(StoredTensor& tensor, std::uint64_t chunk, unsigned slot,
                          std::uint64_t checksum) {
  const std::uint64_t version = state_.open->version();
  tensor.staged[chunk] = {checksum, format::chunk_state(ChunkKind::stored, slot, version)};
  tensor.written.insert(chunk);
  if (tensor.whole()) tensor.label(slot, chunk) = version;
}

// What an assignment changes in part, with all of their bytes as they will be.
struct Stager::Edges {
  std::array<MergedChunk, 2> chunks;  // at most the first and the last
  unsigned count = 0;
  std::unique_ptr<std::byte[]> second;  // the bytes of the first are this thread's scratch
};

Stager::Edges Stager::merge_edges(StoredTensor& tensor, std::span<const std::byte> bytes,
                                  std::uint64_t offset) {
  Edges edges;
  each_chunk(
      offset, bytes.size(),
      [&](std::uint64_t chunk, std::uint64_t within, std::uint64_t size, std::uint64_t done) {
        const std::uint64_t whole = tensor.chunk_bytes(chunk);
        if (size == whole) return;
        if (edges.count == 1)
          edges.second = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
        std::byte* const room = edges.second ? edges.second.get() : chunk_scratch().data();
        MergedChunk& merged = edges.chunks[edges.count++];
        merged = {chunk, {room, whole}, within, size};
        merge_chunk(tensor, merged, bytes.subspan(done, size));
      });
  return edges;
}

// What it changes in part is merged before anything is written, so that a chunk that is damaged, or
// no memory for it, leaves the tensor as it was. The others, where they are many, are copied by
// several threads: a failure finds all of them touched.
void Stager::write(StoredTensor& tensor, std::span<const std::byte> bytes, std::uint64_t offset,
                   UndoLog& log, Handing handing) {
  tensor.check_range(offset, bytes.size());
  std::unique_lock lock(tensor.mutex);
  const FoundSlot found = free_.await(tensor, offset, bytes.size(), lock);
  const Edges edges = merge_edges(tensor, bytes, offset);
  const std::vector<char> unchanged = find_unchanged(tensor, bytes, offset);
  const unsigned threads = threads_for(state_, bytes.size());
  const bool shared = threads > 1;
  std::vector<ChunkCopy> copies;
  if (shared) copies.reserve(bytes.size() / kChunkBytes + 1);
  log.begin(bytes, offset, found);
  const MergedChunk* edge = edges.chunks.data();
  each_chunk(offset, bytes.size(),
             [&](std::uint64_t chunk, std::uint64_t, std::uint64_t size, std::uint64_t done) {
               log.touch(chunk);
               const auto piece = bytes.subspan(done, size);
               if (!unchanged.empty() && unchanged[chunk - offset / kChunkBytes] != 0) {
                 if (!planted(Bug::unchanged_stage_kept)) forget_written(tensor, chunk);
                 log.keep(size);
                 state_.counters.unchanged += size;
               } else if (size != tensor.chunk_bytes(chunk)) {
                 write_merged(tensor, *edge++, found);
               } else if (shared) {
                 copies.emplace_back(tensor, free_.next(tensor, chunk, found), chunk, piece,
                                     handing);
               } else {
                 write_chunk(tensor, chunk, piece, found, handing);
               }
             });
  if (shared) run_all(state_, tensor, copies, threads);
  for (const ChunkCopy& copy : copies) {
    note_written(tensor, copy.chunk(), copy.slot(), copy.done(tensor));
  }
  state_.counters.staged += bytes.size();
}

// Whether the working slot of a tensor that is placed whole lacks what the attempt leaves as it is.
bool Stager::lacks(const StoredTensor& tensor, std::uint64_t chunk) const {
  if (tensor.written.contains(chunk)) return false;
  const ChunkRecord now = state_.open->base->tree.record(tensor.cell(chunk));
  if (format::chunk_kind(now) != ChunkKind::stored) return true;
  const std::uint64_t label = tensor.label(tensor.working, chunk);
  if (planted(Bug::inactive_slot_trusted) && label == 0) return false;
  if (planted(Bug::stale_chunks_forgotten) && label != 0) return false;
  return label != format::chunk_version(now);
}

void Stager::complete(StoredTensor& tensor) {
  if (!tensor.whole() || planted(Bug::copy_forward_left_out)) return;
  for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
    if (!lacks(tensor, chunk)) continue;
    if (tensor.leases[tensor.working].load() > 0) throw_leased(tensor);  // of an assignment undone
    const ChunkRecord now = state_.open->base->tree.record(tensor.cell(chunk));
    if (format::chunk_kind(now) == ChunkKind::stored) {
      copy_forward(tensor, tensor.working, chunk);
    } else {
      write_chunk(tensor, chunk, zero_chunk().first(tensor.chunk_bytes(chunk)), {});
    }
  }
}

}  // namespace tensorshelf
