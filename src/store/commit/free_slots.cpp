#include "store/commit/free_slots.hpp"

#include <fmt/format.h>

#include <bit>

#include "base/planted.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

void throw_leased(const StoredTensor& tensor) {
  int leases = 0;
  for (unsigned slot = 0; slot < tensor.slot_count(); ++slot) leases += tensor.leases[slot].load();
  throw Error(Errc::leased,
              fmt::format("'{}' has {} live view{} of the slot that this write needs",
                          tensor.name(), leases, leases == 1 ? "" : "s"),
              "Delete what numpy(copy=False) or torch(copy=False) gave (in C++, the Lease); a "
              "traceback, or _ at a prompt, may hold it. Or take a copy, with numpy().");
}

// A bit for each slot that a version or an attempt in flight names.
std::uint32_t FreeSlots::named(const StoredTensor& tensor, std::uint64_t chunk,
                               Naming naming) const {
  std::uint32_t named = 0;
  const auto note = [&](const Version& version) {
    const ChunkRecord record = version.tree.record(tensor.cell(chunk));
    if (format::chunk_kind(record) == ChunkKind::stored) named |= 1U << format::chunk_slot(record);
  };
  std::lock_guard lock(state_.structure);
  // What failed may be on the medium all the same, and is in no list any more (I3).
  if (state_.health.failed() && !planted(Bug::failure_forgotten)) state_.throw_failed();
  if (planted(Bug::committed_slot_written)) {
    note(*state_.versions.retained.back());
    return named;
  }
  for (const auto& version : state_.versions.retained) {
    const bool beyond_keep = version->number() < state_.versions.retained.back()->root.floor;
    if (beyond_keep && naming == Naming::kept) continue;
    const bool older = version != state_.versions.retained.back();
    if (!older || !planted(Bug::retained_slot_written)) note(*version);
  }
  for (const auto& version : state_.versions.in_flight) {
    if (!planted(Bug::flight_slot_written)) note(*version);
  }
  return named;
}

std::optional<unsigned> FreeSlots::find(const StoredTensor& tensor, std::uint64_t chunk,
                                        Naming naming) const {
  const std::uint32_t taken = named(tensor, chunk, naming);
  if (planted(Bug::committed_slot_written)) {
    return taken == 0 ? 0 : static_cast<unsigned>(std::countr_zero(taken));
  }
  std::optional<unsigned> lowest;
  for (unsigned slot = 0; slot < tensor.slot_count(); ++slot) {
    const bool leased = tensor.leases[slot].load() > 0 && !planted(Bug::leased_slot_written);
    if ((taken >> slot & 1) != 0 || leased) continue;
    if (!lowest || tensor.chunk_at(slot, chunk) < tensor.chunk_at(*lowest, chunk)) lowest = slot;
  }
  return lowest;
}

// Nothing where some chunk has none.
std::optional<FoundSlot> FreeSlots::find_all(const StoredTensor& tensor, std::uint64_t offset,
                                             std::uint64_t size, Naming naming) const {
  const bool open = tensor.attempt == state_.open->sequence;
  FoundSlot found;
  if (tensor.layout.size_bytes == 0 || (tensor.whole() && open)) return found;
  if (tensor.whole()) {
    found.slot = find(tensor, 0, naming);
    return found.slot ? std::optional(found) : std::nullopt;
  }
  if (size == 0) return found;
  for (std::uint64_t chunk = offset / kChunkBytes; chunk * kChunkBytes < offset + size; ++chunk) {
    if (open && tensor.written.contains(chunk)) continue;
    found = {chunk, find(tensor, chunk, naming)};
    if (!found.slot) return std::nullopt;
  }
  return found;
}

// A slot comes free when more is given back than was seen: with a version that is published, or
// held no longer.
FoundSlot FreeSlots::await(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                           std::unique_lock<FairMutex>& lock) const {
  for (;;) {
    tensor.check_there();
    if (tensor.attempt == state_.open->sequence && tensor.whole() &&
        tensor.leases[tensor.working].load() > 0 && !planted(Bug::leased_stage_written)) {
      throw_leased(tensor);
    }
    if (const auto found = find_all(tensor, offset, size, Naming::all)) return *found;
    bool quiet = false;  // before another look: what is published meanwhile gives back
    bool undecided = false;
    std::uint64_t given_back = 0;
    {
      std::lock_guard structure(state_.structure);
      quiet = state_.versions.in_flight.empty();
      undecided = state_.versions.undecided();
      given_back = state_.versions.given_back;
    }
    if (const auto found = find_all(tensor, offset, size, Naming::all)) return *found;
    if (undecided) {
      state_.throw_unresolved(
          fmt::format("'{}' has no slot left of its {} (a shelf with a larger in_flight "
                      "has more)",
                      tensor.name(), tensor.slot_count()));
    }
    if (quiet && !find_all(tensor, offset, size, Naming::kept)) throw_leased(tensor);
    lock.unlock();
    state_.await_given_back(given_back);
    state_.check_writable();
    lock.lock();
  }
}

unsigned FreeSlots::next(const StoredTensor& tensor, std::uint64_t chunk,
                         const FoundSlot& found) const {
  if (tensor.whole()) return tensor.working;
  if (tensor.written.contains(chunk)) return format::chunk_slot(tensor.staged[chunk]);
  const bool looked_at = found.chunk == chunk || planted(Bug::found_slot_misused);
  if (found.slot && looked_at) return *found.slot;
  return find(tensor, chunk).value();
}

}  // namespace tensorshelf
