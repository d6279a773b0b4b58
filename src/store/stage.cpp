// Bytes into slots. Staging writes only the working slot, which no retained root names
// and no reader pins (I3). While a tensor is dirty, each of its chunks is in one of two states:
// written to the working slot, or `missing`, its next value being still the committed one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/chunk_io.hpp"
#include "store/store.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kForwardChunks = 8;  // read at once, at most

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

}  // namespace

void Store::note_ticket(const Ticket& ticket) {
  std::uint64_t seen = last_ticket_.load(std::memory_order_relaxed);
  while (seen < ticket.sequence && !last_ticket_.compare_exchange_weak(seen, ticket.sequence)) {
  }
}

void Store::begin_write(const std::shared_ptr<StoredTensor>& tensor) {
  tensor->check_there();
  const unsigned slot = tensor->working();
  if (const int leases = tensor->pins[slot].load();
      leases > 0 && !planted(Bug::leased_slot_written) &&
      !(planted(Bug::leased_stage_written) && tensor->dirty)) {
    throw Error(Errc::leased,
                fmt::format("'{}' has {} live view{} of the slot that this write needs",
                            tensor->layout.name, leases, leases == 1 ? "" : "s"),
                "Delete what numpy(copy=False) or torch(copy=False) gave (in C++, the Lease); a "
                "traceback, or _ at a prompt, may hold it. Or take a copy, with numpy().");
  }
  if (tensor->dirty) return;
  tensor->missing = tensor->stale;
  tensor->written.clear();
  if (!planted(Bug::dirty_bit_lost)) {
    std::lock_guard lock(dirty_mutex_);
    dirty_.push_back(tensor);
  }
  tensor->dirty = true;  // last: what throws before leaves the tensor clean
}

void Store::write_chunk(StoredTensor& tensor, std::uint64_t chunk,
                        std::span<const std::byte> bytes) {
  const unsigned slot = tensor.working();
  tensor.verified[slot].erase(chunk);  // where the write fails half-way, it is neither value
  Ticket ticket;
  try {
    ticket = medium_->write(tensor.chunk_at(slot, chunk), bytes,
                            seeds_.chunk(tensor.layout.tensor_id, chunk));
  } catch (const Error& error) {
    // The source is damaged, not the medium; what stood in the chunk was not staged, or is lost.
    if (error.code() == Errc::corrupt && !tensor.missing.contains(chunk)) fail(error.what());
    throw;
  }
  note_ticket(ticket);
  tensor.sums[slot][chunk] = ticket.checksum;
  tensor.verified[slot].insert(chunk);
  tensor.missing.erase(chunk);
}

// A chunk of which only a part is new, in `whole`: the rest is its present value. That gets a
// checksum of its own now, so it is looked at whatever was verified before: rot must not be made
// good.
void Store::merge_chunk(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes,
                        std::uint64_t offset, std::span<std::byte> whole) {
  if (const auto slot = slot_of(tensor, chunk, false); slot && !planted(Bug::merge_left_out)) {
    copy_out(tensor, *slot, chunk, whole, 0);
    ++counters_.verified;
    const std::uint64_t seed = seeds_.chunk(tensor.layout.tensor_id, chunk);
    if (hash_bytes(whole, seed) != tensor.sums[*slot][chunk] && !planted(Bug::merge_not_verified)) {
      throw_damaged(tensor, *slot, chunk);
    }
  } else {
    std::memset(whole.data(), 0, whole.size());
  }
  std::memcpy(whole.data() + offset, bytes.data(), bytes.size());
}

// At most the first and the last chunk are new in part. They are merged before anything is written,
// so that one that is damaged, or no memory for it, leaves the tensor as it was.
void Store::write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
                  std::uint64_t offset) {
  check_writable();
  tensor->check_range(offset, bytes.size());
  WriterScope scope(*gate_);
  check_writable();
  look_for_rival();
  std::lock_guard lock(tensor->mutex);
  begin_write(tensor);
  std::array<std::span<std::byte>, 2> merged;
  std::unique_ptr<std::byte[]> second;
  unsigned edges = 0;
  const auto is_whole = [&](std::uint64_t chunk, std::uint64_t size) {
    return size == tensor->chunk_bytes(chunk);
  };
  each_chunk(
      offset, bytes.size(),
      [&](std::uint64_t chunk, std::uint64_t within, std::uint64_t size, std::uint64_t done) {
        if (is_whole(chunk, size)) return;
        if (edges == 1) second = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
        std::byte* const room = edges == 0 ? chunk_scratch().data() : second.get();
        merged[edges] = {room, tensor->chunk_bytes(chunk)};
        merge_chunk(*tensor, chunk, bytes.subspan(done, size), within, merged[edges++]);
      });
  edges = 0;
  each_chunk(offset, bytes.size(),
             [&](std::uint64_t chunk, std::uint64_t, std::uint64_t size, std::uint64_t done) {
               const bool whole = is_whole(chunk, size);
               write_chunk(*tensor, chunk, whole ? bytes.subspan(done, size) : merged[edges++]);
               tensor->written.insert(chunk);
             });
  counters_.staged += bytes.size();
  staged_now_ += bytes.size();
}

// Copies neighbouring chunks from the committed slot to the working one. Each copy is checked
// against the recorded checksum, for rot must not be made good.
void Store::copy_forward(StoredTensor& tensor, std::uint64_t first, std::uint64_t count,
                         std::span<std::byte> scratch) {
  const unsigned from = *tensor.committed;
  std::span<const std::byte> bytes;
  try {
    bytes = count == 1 ? fetch_chunk(tensor, from, first, scratch)
                       : fetch_chunks(*medium_, tensor, from, first, count, scratch);
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    const std::uint64_t end = first + count;  // then one by one, to name the one that it is
    for (std::uint64_t chunk = first; chunk < end; ++chunk) {
      copy_forward(tensor, chunk, 1, scratch);
    }
    return;
  }
  for (std::uint64_t chunk = first; chunk < first + count; ++chunk) {
    const std::uint64_t size = tensor.chunk_bytes(chunk);
    const std::uint64_t expected = tensor.sums[from][chunk];
    try {
      write_chunk(tensor, chunk, bytes.subspan((chunk - first) * kChunkBytes, size));
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
      throw_damaged(tensor, from, chunk, fmt::format("cannot be read ({})", error.what()));
    }
    if (tensor.sums[tensor.working()][chunk] != expected) {
      tensor.missing.insert(chunk);
      throw_damaged(tensor, from, chunk);
    }
    counters_.forward += size;
  }
}

// Brings the rest of the working slot up to date: chunks that nobody assigned since the slot was
// last current. A run of them is read at once, which is what drives are fast at.
void Store::complete(StoredTensor& tensor) {
  if (tensor.missing.empty() || planted(Bug::copy_forward_left_out)) return;
  const std::uint64_t chunks = tensor.layout.chunk_count();
  const std::uint64_t most = promises_.mapped ? 1 : std::min(chunks, kForwardChunks);
  std::unique_ptr<std::byte[]> run;
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    if (!tensor.missing.contains(chunk)) continue;
    if (!tensor.committed) {
      write_chunk(tensor, chunk, zero_chunk().first(tensor.chunk_bytes(chunk)));
      continue;
    }
    std::uint64_t end = chunk + 1;
    while (end < chunks && end - chunk < most && tensor.missing.contains(end)) ++end;
    if (most > 1 && !run) run.reset(new std::byte[most * kChunkBytes]);
    const auto scratch = run ? std::span(run.get(), most * kChunkBytes) : chunk_scratch();
    copy_forward(tensor, chunk, end - chunk, scratch);
    const bool full = most > 1 && end - chunk == most;
    chunk = full && planted(Bug::forward_run_edge) ? end : end - 1;
  }
}

}  // namespace tensorshelf
