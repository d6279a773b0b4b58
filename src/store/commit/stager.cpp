#include "store/commit/stager.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
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

[[noreturn]] void throw_leased(const StoredTensor& tensor) {
  int leases = 0;
  for (unsigned slot = 0; slot < tensor.slot_count(); ++slot) leases += tensor.leases[slot].load();
  throw Error(Errc::leased,
              fmt::format("'{}' has {} live view{} of the slot that this write needs",
                          tensor.name(), leases, leases == 1 ? "" : "s"),
              "Delete what numpy(copy=False) or torch(copy=False) gave (in C++, the Lease); a "
              "traceback, or _ at a prompt, may hold it. Or take a copy, with numpy().");
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

// Where the next value of the chunk may go: of the slots that are free the one that lies lowest, so
// that what is assigned moves down by itself; nothing where every slot is named. The gate is open
// around us or closed by us: what is in flight can only become less.
std::optional<unsigned> Stager::free_slot(const StoredTensor& tensor, std::uint64_t chunk,
                                          Naming naming) {
  std::uint32_t named = 0;
  const auto note = [&](const Version& version) {
    const ChunkRecord record = version.tree.record(tensor.cell(chunk));
    if (format::chunk_kind(record) == ChunkKind::stored) named |= 1U << format::chunk_slot(record);
  };
  {
    std::lock_guard lock(state_.structure);
    // What failed may be on the medium all the same, and is in no list any more (I3).
    if (state_.health.failed() && !planted(Bug::failure_forgotten)) state_.throw_failed();
    if (planted(Bug::committed_slot_written)) {
      note(*state_.retained.back());
      return named == 0 ? 0 : static_cast<unsigned>(std::countr_zero(named));
    }
    for (const auto& version : state_.retained) {
      const bool beyond_keep = version->number() < state_.retained.back()->root.floor;
      if (beyond_keep && naming == Naming::kept) continue;
      const bool older = version != state_.retained.back();
      if (!older || !planted(Bug::retained_slot_written)) note(*version);
    }
    for (const auto& version : state_.in_flight)
      if (!planted(Bug::flight_slot_written)) note(*version);
  }
  std::optional<unsigned> lowest;
  for (unsigned slot = 0; slot < tensor.slot_count(); ++slot) {
    const bool leased = tensor.leases[slot].load() > 0 && !planted(Bug::leased_slot_written);
    if ((named >> slot & 1) != 0 || leased) continue;
    if (!lowest || tensor.chunk_at(slot, chunk) < tensor.chunk_at(*lowest, chunk)) lowest = slot;
  }
  return lowest;
}

// Whether every chunk of the range has a slot to go to, of which the last is `found`.
bool Stager::has_slots(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                       FoundSlot& found, Naming naming) {
  const bool open = tensor.attempt == state_.open->sequence;
  if (tensor.layout.size_bytes == 0) return true;
  if (tensor.whole()) return open || (found = {0, free_slot(tensor, 0, naming)}).slot.has_value();
  bool all = true;
  each_chunk(offset, size, [&](std::uint64_t chunk, std::uint64_t, std::uint64_t, std::uint64_t) {
    if (!all || (open && tensor.written.contains(chunk))) return;
    found = {chunk, free_slot(tensor, chunk, naming)};
    all = found.slot.has_value();
  });
  return all;
}

// Where the range can be written. A slot comes free when more is given back than was seen: with a
// version that is published, or held no longer. Lets go of the lock while it waits: others may read
// meanwhile.
FoundSlot Stager::await_slots(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                              std::unique_lock<FairMutex>& lock) {
  for (FoundSlot found;;) {
    tensor.check_there();
    if (tensor.attempt == state_.open->sequence && tensor.whole() &&
        tensor.leases[tensor.working].load() > 0 && !planted(Bug::leased_stage_written)) {
      throw_leased(tensor);
    }
    if (has_slots(tensor, offset, size, found)) return found;
    bool quiet = false;  // before another look: what is published meanwhile gives back
    bool undecided = false;
    std::uint64_t given_back = 0;
    {
      std::lock_guard structure(state_.structure);
      quiet = state_.in_flight.empty();
      undecided = state_.undecided();
      given_back = state_.given_back;
    }
    if (has_slots(tensor, offset, size, found)) return found;
    if (undecided) {
      state_.throw_unresolved(
          fmt::format("'{}' has no slot left of its {} (a shelf with a larger in_flight "
                      "has more)",
                      tensor.name(), tensor.slot_count()));
    }
    if (quiet && !has_slots(tensor, offset, size, found, Naming::kept)) throw_leased(tensor);
    lock.unlock();
    state_.await_given_back(given_back);
    state_.check_writable();
    lock.lock();
  }
}

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

// Where the open attempt has the chunk, or is to have it.
unsigned Stager::next_slot(const StoredTensor& tensor, std::uint64_t chunk,
                           const FoundSlot& found) {
  if (tensor.whole()) return tensor.working;
  if (tensor.written.contains(chunk)) return format::chunk_slot(tensor.staged[chunk]);
  const bool looked_at = found.chunk == chunk || planted(Bug::found_slot_misused);
  if (found.slot && looked_at) return *found.slot;
  return free_slot(tensor, chunk).value();
}

void Stager::write_chunk(StoredTensor& tensor, std::uint64_t chunk,
                         std::span<const std::byte> bytes, const FoundSlot& found,
                         Handing handing) {
  const unsigned slot = next_slot(tensor, chunk, found);
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
  const FoundSlot found = await_slots(tensor, offset, bytes.size(), lock);
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
                 copies.emplace_back(tensor, next_slot(tensor, chunk, found), chunk, piece,
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
