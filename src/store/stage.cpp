// Bytes into and out of slots. Staging writes only the working slot, which no retained root names
// and no reader pins (I3). While a tensor is dirty, each of its chunks is in one of two states:
// written to the working slot, or `missing`, its next value being still the committed one.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
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

void check_range(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t end = tensor.layout.size_bytes;
  if (offset <= end && size <= end - offset) return;
  throw Error(Errc::layout,
              fmt::format("bytes {} to {} of '{}', which has {}", offset, offset + size,
                          tensor.layout.name, end),
              "Stay within the tensor, or replace() it with a larger one.");
}

void check_there(const StoredTensor& tensor) {
  if (!tensor.erased) return;
  throw Error(Errc::unknown_name, fmt::format("'{}' was erased or replaced", tensor.layout.name),
              "Look it up again by its name.");
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

struct Store::Pin {
  std::shared_ptr<GuardedMedium> medium;
  std::shared_ptr<StoredTensor> tensor;
  unsigned slot;

  Pin(std::shared_ptr<GuardedMedium> m, std::shared_ptr<StoredTensor> t, unsigned s)
      : medium(std::move(m)), tensor(std::move(t)), slot(s) {
    ++tensor->pins[slot];
  }
  ~Pin() { --tensor->pins[slot]; }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
};

void Store::note_ticket(const Ticket& ticket) {
  std::uint64_t seen = last_ticket_.load(std::memory_order_relaxed);
  while (seen < ticket.sequence && !last_ticket_.compare_exchange_weak(seen, ticket.sequence)) {
  }
}

void Store::begin_write(const std::shared_ptr<StoredTensor>& tensor) {
  check_there(*tensor);
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
  const Ticket ticket = medium_->write(tensor.chunk_at(slot, chunk), bytes,
                                       seeds_.chunk(tensor.layout.tensor_id, chunk));
  note_ticket(ticket);
  tensor.sums[slot][chunk] = ticket.checksum;
  tensor.verified[slot].insert(chunk);
  tensor.missing.erase(chunk);
}

// A chunk of which only a part is new: the rest is its present value. That gets a checksum of its
// own now, so it is looked at whatever was verified before: rot must not be made good.
void Store::merge_chunk(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes,
                        std::uint64_t offset) {
  const auto whole = chunk_scratch().first(tensor.chunk_bytes(chunk));
  if (const auto slot = slot_of(tensor, chunk, false); slot && !planted(Bug::merge_left_out)) {
    const auto now = fetch_chunk(tensor, *slot, chunk, whole);
    if (now.data() != whole.data()) std::memcpy(whole.data(), now.data(), now.size());
    ++counters_.verified;
    const std::uint64_t seed = seeds_.chunk(tensor.layout.tensor_id, chunk);
    if (hash_bytes(whole, seed) != tensor.sums[*slot][chunk] && !planted(Bug::merge_not_verified)) {
      throw_damaged(tensor, *slot, chunk);
    }
  } else {
    std::memset(whole.data(), 0, whole.size());
  }
  std::memcpy(whole.data() + offset, bytes.data(), bytes.size());
  write_chunk(tensor, chunk, whole);
}

void Store::write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
                  std::uint64_t offset) {
  check_writable();
  check_range(*tensor, offset, bytes.size());
  WriterScope scope(*gate_);
  check_writable();
  std::lock_guard lock(tensor->mutex);
  begin_write(tensor);
  each_chunk(
      offset, bytes.size(),
      [&](std::uint64_t chunk, std::uint64_t within, std::uint64_t size, std::uint64_t done) {
        const auto piece = bytes.subspan(done, size);
        if (size == tensor->chunk_bytes(chunk)) {
          write_chunk(*tensor, chunk, piece);
        } else {
          merge_chunk(*tensor, chunk, piece, within);
        }
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
    write_chunk(tensor, chunk, bytes.subspan((chunk - first) * kChunkBytes, size));
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

// Where the chunk's value lies; nothing for the zeros of a tensor that was never written.
std::optional<unsigned> Store::slot_of(const StoredTensor& tensor, std::uint64_t chunk,
                                       bool committed) const {
  if (!committed && tensor.dirty && !tensor.missing.contains(chunk)) return tensor.working();
  return tensor.committed;
}

void Store::throw_if_overtaken() {
  const std::uint64_t version = version_;
  if (writable_ || planted(Bug::overtaken_not_noticed)) return;
  if (newest_version(*medium_, seeds_) <= version && !planted(Bug::reader_always_stale)) return;
  throw Error(
      Errc::stale,
      fmt::format("version {} of {} was overwritten by its writer meanwhile", version, path_),
      "Open it again to read the newest version.");
}

void Store::throw_damaged(const StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                          const std::string& how, int os_error) {
  throw_if_overtaken();
  throw Error(
      Errc::corrupt,
      fmt::format("'{}' v{} slot {}: chunk {} {}; the other tensors of version {} can be read",
                  tensor.layout.name, tensor.version, slot == 0 ? 'A' : 'B', chunk, how,
                  version_.load()),
      "verify() lists all damage; assigning the whole tensor heals it.", os_error);
}

std::span<const std::byte> Store::fetch_chunk(const StoredTensor& tensor, unsigned slot,
                                              std::uint64_t chunk, std::span<std::byte> scratch) {
  try {
    if (writable_ || planted(Bug::reader_trusts_slot)) {
      return fetch_chunks(*medium_, tensor, slot, chunk, 1, scratch);
    }
    // A writer elsewhere may reuse the slot: what is checked must be what is returned.
    const auto copy = scratch.first(tensor.chunk_bytes(chunk));
    medium_->read(tensor.chunk_at(slot, chunk), copy);
    return copy;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    throw_damaged(tensor, slot, chunk, fmt::format("cannot be read ({})", error.what()),
                  error.os_error());
  }
}

std::span<const std::byte> Store::checked_chunk(StoredTensor& tensor, unsigned slot,
                                                std::uint64_t chunk, std::span<std::byte> scratch) {
  const auto bytes = fetch_chunk(tensor, slot, chunk, scratch);
  const bool ours = writable_ || planted(Bug::reader_trusts_slot);  // no one else writes there
  if (ours && promises_.mapped && tensor.verified[slot].contains(chunk)) return bytes;
  if ((verify_ == Verify::never && writable_) || planted(Bug::chunk_checksum_ignored)) return bytes;
  ++counters_.verified;
  if (hash_bytes(bytes, seeds_.chunk(tensor.layout.tensor_id, chunk)) != tensor.sums[slot][chunk]) {
    if (verify_ != Verify::never) throw_damaged(tensor, slot, chunk);
    throw_if_overtaken();
    return bytes;  // damaged, and asked for all the same
  }
  tensor.verified[slot].insert(chunk);
  return bytes;
}

void Store::read_locked(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                        bool committed) {
  if (planted(Bug::reader_always_stale)) throw_if_overtaken();
  if (committed && !tensor.committed) {
    check_there(tensor);  // its slots may be another tensor's by now
    throw Error(Errc::unknown_name,
                fmt::format("'{}' has no committed value yet", tensor.layout.name),
                "persist() first.");
  }
  each_chunk(
      offset, bytes.size(),
      [&](std::uint64_t chunk, std::uint64_t within, std::uint64_t size, std::uint64_t done) {
        const auto target = bytes.subspan(done, size);
        const auto slot = slot_of(tensor, chunk, committed);
        if (!slot) {
          std::memset(target.data(), 0, size);
          return;
        }
        const bool whole = size == tensor.chunk_bytes(chunk);
        const auto source = checked_chunk(tensor, *slot, chunk, whole ? target : chunk_scratch());
        if (source.data() != target.data())
          std::memcpy(target.data(), source.data() + within, size);
      });
  counters_.read += bytes.size();
}

void Store::read(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                 bool committed) {
  check_range(tensor, offset, bytes.size());
  const Use use(*this);
  std::unique_lock names(structure_, std::defer_lock);
  if (planted(Bug::names_held_by_reads)) names.lock();
  std::lock_guard lock(tensor.mutex);
  if (!committed) check_there(tensor);
  read_locked(tensor, bytes, offset, committed);
}

Lease Store::lease(const std::shared_ptr<StoredTensor>& tensor, bool committed) {
  const Use use(*this);
  std::lock_guard lock(tensor->mutex);
  if (!committed) check_there(*tensor);
  const std::uint64_t size = tensor->layout.size_bytes;
  const bool staged = !committed && tensor->dirty;
  const bool in_one_slot = staged ? tensor->missing.empty() : tensor->committed.has_value();
  if (promises_.mapped && writable_ && in_one_slot && size > 0) {
    const unsigned slot = staged ? tensor->working() : 1 - tensor->working();
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      checked_chunk(*tensor, slot, chunk, chunk_scratch());
    }
    return Lease(medium_->view(tensor->layout.slot(slot)), true,
                 std::make_shared<Pin>(medium_, tensor, slot));
  }
  std::shared_ptr<std::byte[]> copy(new std::byte[size]);
  const std::span<std::byte> bytes(copy.get(), size);
  read_locked(*tensor, bytes, 0, committed);
  return Lease(bytes, false, copy);
}

}  // namespace tensorshelf
