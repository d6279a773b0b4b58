// One tensor in memory: where its slots lie, which one is committed, what was staged since.
// Everything below `mutex` is guarded by it, whose holder has passed the gate where it changes
// something; the committer, behind the closed gate, looks without it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/planted.hpp"
#include "format/format.hpp"
#include "store/chunk_set.hpp"
#include "store/fair_mutex.hpp"

namespace tensorshelf {

struct StoredTensor {
  explicit StoredTensor(format::TensorLayout described)
      : layout(std::move(described)),
        missing(layout.chunk_count()),
        written(layout.chunk_count()),
        stale(layout.chunk_count(), !planted(Bug::inactive_slot_trusted)),
        verified{ChunkSet(layout.chunk_count()), ChunkSet(layout.chunk_count())} {
    const std::size_t chunks = layout.chunk_count();
    sum_storage.resize(chunks * format::kSlots);
    for (unsigned slot = 0; slot < format::kSlots; ++slot) {
      sums[slot] = std::span(sum_storage).subspan(slot * chunks, chunks);
    }
  }

  const format::TensorLayout layout;
  std::uint32_t records_leaf = 0;  // the manifest leaf that holds its record

  // Held across reads of the tensor, so that each is of one moment; in turn, so that no reader
  // keeps a writer or the committer waiting for more than itself.
  mutable FairMutex mutex;
  std::optional<unsigned> committed;  // slot of the committed version; none before the first
  std::uint64_t version = 0;          // that wrote the committed slot
  bool dirty = false;                 // the working slot holds, or is to hold, the next version
  bool erased = false;

  // Of each slot, the checksums of its chunks as they were written.
  std::array<std::span<std::uint64_t>, format::kSlots> sums;
  std::vector<std::uint64_t> sum_storage;

  ChunkSet missing;  // while dirty: chunks whose next value is still the committed one (or zero)
  ChunkSet written;  // while dirty: chunks that the user wrote since the last flip
  ChunkSet stale;    // while clean: chunks in which the working slot differs from the committed one
  std::array<ChunkSet, format::kSlots> verified;  // checked against sums, or written, by us

  // Live leases of each slot. Raised under the mutex, lowered by any thread.
  std::array<std::atomic<int>, format::kSlots> pins = {};

  // Errc::layout, and Errc::unknown_name where it was erased or replaced.
  void check_range(std::uint64_t offset, std::uint64_t size) const;
  void check_there() const;

  unsigned working() const {
    if (planted(Bug::committed_slot_written)) return committed.value_or(0);
    return committed == 0U ? 1U : 0U;
  }
  std::uint64_t chunk_bytes(std::uint64_t chunk) const {
    const std::uint64_t begin = chunk * kChunkBytes;
    return std::min(kChunkBytes, layout.size_bytes - begin);
  }
  std::uint64_t chunk_at(unsigned slot, std::uint64_t chunk) const {
    return layout.slot_at[slot] + chunk * kChunkBytes;
  }
};

}  // namespace tensorshelf
