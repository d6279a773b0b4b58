// What is compared with its checksum whatever was asked for when the shelf was opened.
#include <mutex>
#include <optional>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/io/chunk_io.hpp"
#include "store/io/unreadable.hpp"
#include "store/reading/elsewhere.hpp"
#include "store/reading/overtaken.hpp"
#include "store/reading/reader.hpp"
#include "store/state/kept_places.hpp"

namespace tensorshelf {

// Chunk by chunk: commits go on in between, and a tensor that they flip is from there on looked at
// as it is then. Callbacks are called with nothing held: they may use the shelf, or close it.
VerifyReport Reader::verify(const Progress& progress, const OnDamage& on_damage) {
  VerifyReport report;
  std::shared_ptr<const Names> names;  // and not their version: see state_.versions.in_flight
  std::uint64_t total = 0;
  {
    const Use use(state_);
    const auto lock = state_.lock_usable();
    names = state_.versions.retained.back()->names;
    total = state_.versions.retained.back()->tensor_bytes;
    report.version = state_.version;
  }
  const std::uint64_t begun = report.version;
  std::uint64_t done = 0;
  for (const auto& [name, named] : *names) {
    StoredTensor& tensor = *named.tensor;
    const std::uint64_t chunks = tensor.layout.chunk_count();
    for (std::uint64_t chunk = 0; chunk == 0 || chunk < chunks; ++chunk) {
      const std::size_t known = report.damage.size();
      const auto seen_in = verify_chunk(tensor, chunk, report);
      if (!seen_in) break;
      if (report.damage.size() > known) {
        {
          const Use use(state_);
          throw_if_overtaken(state_, planted(Bug::damage_doubted_at_its_begin) ? begun : *seen_in);
        }
        if (on_damage) on_damage(report.damage.back());
      }
      if (chunks == 0) break;
      done += tensor.chunk_bytes(chunk);
      std::optional<QueueScope> held;
      if (planted(Bug::callback_while_locked))
        held.emplace(state_.turns, *state_.waiters, Patience());
      if (progress) progress(done, total);
    }
  }
  if (!report.damage.empty()) {
    const Use use(state_);
    throw_if_overtaken(state_, report.version);
  }
  return report;
}

// The version that it looked at: where that is overtaken, what it found is no damage. None where
// nothing of the tensor is committed (any more). Chunk 0 counts the tensor, also where it has no
// bytes.
std::optional<std::uint64_t> Reader::verify_chunk(StoredTensor& tensor, std::uint64_t chunk,
                                                  VerifyReport& report) {
  const Use use(state_);
  std::lock_guard lock(tensor.mutex);
  std::string called;  // in the version
  RecordedChunk recorded{tensor, chunk, {}};
  {
    std::lock_guard structure(state_.structure);
    const Version& newest = *state_.versions.retained.back();
    if (!has(newest, tensor)) return std::nullopt;
    called = *name_in(*newest.names, tensor);
    recorded.seen_in = newest.number();
    recorded.record = newest.tree.record(tensor.cell(chunk));
  }
  report.tensors += chunk == 0;
  if (chunk >= tensor.layout.chunk_count()) return recorded.seen_in;
  const Extent extent = recorded.extent();
  ++report.chunks;
  ++state_.counters.verified;
  report.bytes += extent.size_bytes;
  const auto held = keep_places_of(state_, tensor);
  try {
    const bool intact = chunk_intact(*state_.medium, state_.seeds, recorded);
    if (intact && !mirror_lacks(*state_.medium, state_.seeds, recorded, chunk_scratch())) {
      return recorded.seen_in;
    }
    report.damage.push_back({called, recorded.version(), recorded.slot(), chunk, extent});
    report.damage.back().in_mirror = intact;
    report.damage.back().healable = intact;
    if (intact) return recorded.seen_in;
    tensor.clear_verified(recorded.slot(), chunk);
    report.damage.back().healable =
        read_elsewhere(*state_.medium, state_.seeds, recorded, chunk_scratch());
    report.damage.back().intact_in = intact_in(state_, tensor, chunk);
    return recorded.seen_in;
  } catch (const Error& error) {
    if (is_cut_off(error)) throw_if_overtaken(state_, recorded.seen_in);
    throw;
  }
}

// Neighbours in a slot are read at once, where the medium is not mapped. What is looked at is the
// copy: mapped bytes may be gone, or others, a moment later.
Reader::Piece Reader::piece(StoredTensor& tensor, Of which, std::uint64_t offset,
                            std::span<std::byte> room) {
  const Use use(state_);
  std::lock_guard lock(tensor.mutex);
  const std::uint64_t chunk = offset / kChunkBytes;
  const std::uint64_t left = tensor.layout.size_bytes - offset;
  const std::uint64_t most = std::min<std::uint64_t>(left, room.size());
  const RecordedChunks now = records(tensor, offset, most, which);
  const RecordedChunk recorded = now[chunk];
  if (!recorded.is_stored()) return {recorded.size_bytes()};
  if (const std::uint64_t run = run_length(now, chunk, most); run > 1) {
    const auto bytes = room.first(std::min(run * kChunkBytes, left));
    try {
      state_.medium->read(recorded.at(), bytes);
      check_all(now, chunk, bytes);
      return {bytes.size(), bytes};
    } catch (const Error& error) {
      // Else one by one, which says which it is, or asks the mirror.
      if (error.code() != Errc::corrupt && !is_unreadable(error) && !is_cut_off(error)) throw;
    }
  }
  const auto bytes = room.first(recorded.size_bytes());
  if (planted(Bug::resized_over_rot)) {
    chunks_.copy_out(recorded, bytes, 0);
  } else {
    chunks_.read_sound(recorded, bytes);
  }
  return {bytes.size(), bytes};
}

void Reader::check_all(const RecordedChunks& records, std::uint64_t first,
                       std::span<const std::byte> bytes) {
  for (std::uint64_t at = 0, chunk = first; at < bytes.size(); ++chunk) {
    const RecordedChunk recorded = records[chunk];
    const std::uint64_t size = recorded.size_bytes();
    ++state_.counters.verified;
    const bool same = recorded.matches(bytes.subspan(at, size), state_.seeds);
    if (!same && !planted(Bug::resized_over_rot)) chunks_.throw_damaged(recorded);
    at += size;
  }
}

}  // namespace tensorshelf
