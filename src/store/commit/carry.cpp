// Values that are copied from slot to slot. Of a tensor that is placed whole, what nobody assigns
// goes into the attempt's slot; and what lies far back, on its way down, into a slot in front of
// it. That changes no value: the record keeps version and checksum, and names another slot.
#include <fmt/format.h>

#include <mutex>
#include <optional>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/commit/stager.hpp"
#include "store/reading/elsewhere.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

// A chunk as it is under the attempt into another slot: from its own, or where that has rotted,
// from where it can be had. The copy is checked against the recorded checksum, for rot must not be
// made good.
void Stager::copy_forward(StoredTensor& tensor, unsigned slot, std::uint64_t chunk) {
  const RecordedChunk now = recorded_in(*state_.open->base, tensor, chunk);
  const auto copy_own = [&] {
    const auto bytes = chunks_.fetch(now, chunk_scratch());
    chunks_.check_unread(now, bytes);
    std::uint64_t checksum = 0;
    try {
      checksum = put_chunk(state_, tensor, slot, chunk, bytes.for_write());
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
      chunks_.throw_damaged(now, fmt::format("cannot be read ({})", error.what()),
                            error.os_error());
    }
    if (checksum == now.record.checksum) return;
    tensor.clear_verified(slot, chunk);
    chunks_.throw_damaged(now);
  };
  try {
    copy_own();
  } catch (const Error& error) {
    const bool healed =
        !planted(Bug::forward_not_healed) && read_healed(state_, error, now, chunk_scratch());
    if (!healed) throw;
    const auto whole = chunk_scratch().first(now.size_bytes());
    const std::uint64_t checksum = put_chunk(state_, tensor, slot, chunk, whole);
    TENSORSHELF_ASSERT(checksum == now.record.checksum);  // nobody else has that memory
  }
  if (tensor.whole()) tensor.label(slot, chunk) = now.version();
  state_.counters.forward += now.size_bytes();
}

// Where it may go; of a tensor that is placed whole, where all of it goes.
std::optional<unsigned> Stager::lower_slot(const StoredTensor& tensor, std::uint64_t chunk,
                                           const Goals& goals) {
  const bool open = tensor.attempt == state_.open->sequence;
  if (open && (tensor.whole() ? !tensor.carried : tensor.written.contains(chunk))) return {};
  const ChunkRecord now = state_.open->base->tree.record(tensor.cell(chunk));
  if (format::chunk_kind(now) != ChunkKind::stored) return {};
  if (tensor.leases[format::chunk_slot(now)].load() > 0) return {};  // it would keep the place
  const std::uint64_t place = tensor.place_of(format::chunk_slot(now), chunk);
  if (place + tensor.layout.extent_bytes() <= goals[medium_of(place)]) return {};
  if (open && tensor.whole()) {
    const bool leased = tensor.leases[tensor.working].load() > 0;
    if (leased || !lacks(tensor, chunk)) return {};
    return tensor.working;
  }
  const auto slot = free_.find(tensor, chunk);
  if (!slot || tensor.place_of(*slot, chunk) >= place) return {};
  return slot;
}

namespace {

// A commit would have to copy the rest of it, and could not.
void let_lie(State& state, const std::shared_ptr<StoredTensor>& tensor) noexcept {
  if (!tensor->whole() || !tensor->carried || planted(Bug::carried_over_rot)) return;
  tensor->attempt = 0;
  tensor->carried = false;
  const std::lock_guard list(state.dirty_mutex);
  std::erase(state.open->dirty, tensor);
  --state.open->carried;
}

}  // namespace

bool Stager::carry(const std::shared_ptr<StoredTensor>& tensor, std::uint64_t chunk,
                   const Goals& goals) {
  const QueueScope alone(tensor->assigning, *state_.waiters, state_.patience);
  const WriterScope inside(*state_.gate, state_.patience);
  state_.check_writable();
  state_.check_not_abandoned();
  const std::lock_guard lock(tensor->mutex);
  if (tensor->erased) return false;
  const auto slot = lower_slot(*tensor, chunk, goals);
  if (!slot) return false;
  state_.rival.look();
  const ChunkRecord now = state_.open->base->tree.record(tensor->cell(chunk));
  if (tensor->attempt != state_.open->sequence) {
    begin_write(tensor, {chunk, slot});
    tensor->carried = true;
    const std::lock_guard list(state_.dirty_mutex);
    ++state_.open->carried;
  }
  try {
    copy_forward(*tensor, *slot, chunk);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    tensor->clear_verified(format::chunk_slot(now), chunk);
    let_lie(state_, tensor);
    return false;
  }
  if (tensor->whole()) return true;  // the label says so
  const std::uint64_t wrote =
      planted(Bug::carried_as_new) ? state_.open->version() : format::chunk_version(now);
  tensor->staged[chunk] = {now.checksum, format::chunk_state(ChunkKind::stored, *slot, wrote)};
  tensor->written.insert(chunk);
  return true;
}

}  // namespace tensorshelf
