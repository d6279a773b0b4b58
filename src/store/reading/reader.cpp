#include "store/reading/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/io/chunk_io.hpp"
#include "store/io/unreadable.hpp"
#include "store/reading/elsewhere.hpp"
#include "store/state/kept_places.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

namespace {

constexpr std::uint64_t kRunChunks = 16;  // read at once, at most

[[noreturn]] void throw_not_there(const StoredTensor& tensor) {
  throw Error(Errc::unknown_name, fmt::format("'{}' is not there any more", tensor.name()),
              "Look it up again by its name.");
}

}  // namespace

// What is said of the chunks of that range; of kind none for the zeros of a tensor that was never
// written. Errc::unknown_name where the tensor is not there.
RecordedChunks Reader::records(StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                               Of which) const {
  const bool with_staged = which.kind() == Of::Kind::staged;
  if (with_staged) tensor.check_there();
  const std::uint64_t first = offset / kChunkBytes;
  const std::uint64_t count = size == 0 ? 0 : (offset + size - 1) / kChunkBytes - first + 1;
  RecordedChunks records(tensor, first, count);
  const auto lock = state_.lock_usable();
  const Version& version = state_.version_of(which);
  if (!(with_staged && state_.open) && !has(version, tensor)) {
    tensor.check_there();
    if (!state_.open) throw_not_there(tensor);  // in what a reader has gone on to
    throw Error(Errc::unknown_name, fmt::format("'{}' has no committed value yet", tensor.name()),
                "persist() first.");
  }
  const bool dirty = with_staged && state_.open && tensor.attempt == state_.open->sequence;
  if (dirty) tensor.check_not_spoiled(state_.open->sequence);
  records.are_of(version.number());
  for (std::uint64_t chunk = first; chunk < first + count; ++chunk) {
    const bool staged = dirty && tensor.written.contains(chunk);
    const ChunkRecord record =
        staged ? tensor.staged[chunk] : version.tree.record(tensor.cell(chunk));
    // One that was created and is gone: it comes to be marked so.
    if (format::chunk_kind(record) == ChunkKind::none && !dirty) throw_not_there(tensor);
    records.add(record);
  }
  return records;
}

// How many whole chunks from `first` on lie side by side in one slot, of `size` bytes asked for.
std::uint64_t Reader::run_length(const RecordedChunks& records, std::uint64_t first,
                                 std::uint64_t size) const {
  const RecordedChunk begin = records[first];
  const std::uint64_t at = begin.at();
  if (state_.medium->is_mapped(at) || !begin.is_stored()) return 0;  // memory gains nothing
  std::uint64_t count = 0;
  for (std::uint64_t end = 0; count < kRunChunks; ++count) {
    const std::uint64_t chunk = first + count;
    if (chunk == begin.tensor.layout.chunk_count() || end == size) break;
    const RecordedChunk next = records[chunk];
    if (!next.is_stored() || next.at() != at + count * kChunkBytes) break;
    end += next.size_bytes();
    if (end > size) break;
  }
  return count;
}

// Reads such a run at once, and then checks each chunk: a drive keeps several requests in flight
// for one long read, and one for a short one. False where it has to be read chunk by chunk.
bool Reader::read_run(const RecordedChunks& records, std::uint64_t first,
                      std::span<std::byte> target) {
  try {
    state_.medium->read(records[first].at(), target);
  } catch (const Error& error) {
    if (!is_unreadable(error) && !is_cut_off(error)) throw;
    return false;
  }
  if (!chunks_.checks()) return true;
  std::uint64_t chunk = first;
  for (std::uint64_t at = 0; at < target.size(); ++chunk) {
    const RecordedChunk recorded = records[chunk];
    const auto bytes = target.subspan(at, recorded.size_bytes());
    try {
      chunks_.check_sum(recorded, hash_bytes(bytes, recorded.seed(state_.seeds)));
    } catch (const Error& error) {
      if (!read_healed(state_, error, recorded, bytes)) throw;
    }
    at += bytes.size();
  }
  return true;
}

// Reads on in one chunk, or through a run of them; returns the bytes that were read.
std::uint64_t Reader::read_next(const RecordedChunks& records, std::uint64_t offset,
                                std::span<std::byte> bytes) {
  const std::uint64_t chunk = offset / kChunkBytes;
  const std::uint64_t within = offset % kChunkBytes;
  if (within == 0) {
    const std::uint64_t run = run_length(records, chunk, bytes.size());
    const std::uint64_t left = records.tensor().layout.size_bytes - offset;
    const std::uint64_t size = std::min(run * kChunkBytes, left);
    if (run > 1 && read_run(records, chunk, bytes.first(size))) return size;
  }
  const RecordedChunk now = records[chunk];
  const auto target = bytes.first(std::min(now.size_bytes() - within, bytes.size()));
  const bool trusted = planted(Bug::zeros_taken_for_stored) && now.kind() == ChunkKind::zeros;
  if (!now.is_stored() && !trusted) {
    std::memset(target.data(), 0, target.size());
    return target.size();
  }
  const bool whole = target.size() == now.size_bytes();
  const auto room = whole ? target : chunk_scratch();
  try {
    const auto source = chunks_.compared(now, room);
    if (!source.lie_in(target) && !source.part(within, target.size()).copy_into(target)) {
      chunks_.copy_out(now, target, within);  // says why
    }
  } catch (const Error& error) {
    if (!read_healed(state_, error, now, room)) throw;
    if (!whole) std::memcpy(target.data(), room.data() + within, target.size());
  }
  return target.size();
}

void Reader::read_locked(const RecordedChunks& records, std::uint64_t offset,
                         std::span<std::byte> bytes) {
  for (std::uint64_t done = 0; done < bytes.size();) {
    done += read_next(records, offset + done, bytes.subspan(done));
  }
  state_.counters.read += bytes.size();
}

void Reader::read(StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t offset,
                  Of which) {
  tensor.check_range(offset, bytes.size());
  const Use use(state_);
  std::lock_guard lock(tensor.mutex);
  const auto holding = keep_places_of(state_, tensor);
  const RecordedChunks now = records(tensor, offset, bytes.size(), which);
  std::unique_lock names(state_.structure, std::defer_lock);
  if (planted(Bug::names_held_by_reads)) names.lock();
  read_locked(now, offset, bytes);
}

}  // namespace tensorshelf
