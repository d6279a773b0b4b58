// One tensor in memory: where its slots lie, and what was staged since the last freeze. What its
// versions are, their trees say.
// Everything below `mutex` is guarded by it, and layout.slot_at too; whoever changes some of that
// has passed the gate besides. Only leases are lowered by any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tensorshelf/extent.hpp>

#include "base/planted.hpp"
#include "base/small_array.hpp"
#include "format/format.hpp"
#include "store/manifest/chunk_set.hpp"
#include "store/manifest/tensor_names.hpp"
#include "store/places/holding.hpp"
#include "store/threads/fair_mutex.hpp"
#include "store/threads/queue_lock.hpp"

namespace tensorshelf {

struct StoredTensor {
  explicit StoredTensor(format::TensorLayout described)
      : layout(std::move(described)),
        media(layout.media()),
        names(layout.name),
        staged(layout.chunk_count()),
        written(layout.chunk_count()),
        touched(layout.chunk_count()),
        labels(whole() ? layout.chunk_count() * layout.slot_count() : 0),
        leases(layout.slot_count()),
        verified_(layout.chunk_count() * layout.slot_count()) {}

  // With the name that it had first. Of it slot_at alone changes (lie_at()).
  format::TensorLayout layout;
  const MediumSet media;  // on which it lies
  TensorNames names;      // set with the gate closed, or by who makes or follows
  const std::string& name() const noexcept { return names.now(); }

  QueueLock assigning;  // of the one assignment under way, from begin to end

  // Held across reads of the tensor, so that each is of one moment; in turn, so that no reader
  // keeps a writer or the committer waiting for more than itself.
  mutable FairMutex mutex;
  bool erased = false;

  // What lies where of the chunks written by the open attempt, where `attempt` is its sequence.
  std::uint64_t attempt = 0;
  bool carried = false;  // and nobody assigned it: its value is its base's, in other slots
  unsigned working = 0;  // the slot, where the tensor is placed whole
  SmallArray<format::ChunkRecord, 1> staged;
  ChunkSet written;
  ChunkSet touched;           // by the assignment under way, whose own it is
  std::uint64_t spoiled = 0;  // the attempt that lost what was staged, to an assignment undone

  // Which version's value lies in each chunk of each slot of a tensor that is placed whole; 0 where
  // nobody knows. What is there already need not be copied forward.
  SmallArray<std::uint64_t, 3> labels;

  // Live leases of each slot. Raised under the mutex, lowered by any thread.
  SmallArray<std::atomic<int>, 4> leases;

  // Errc::layout, and Errc::unknown_name where it was erased or replaced.
  void check_range(std::uint64_t offset, std::uint64_t size) const;
  void check_there() const;
  void check_not_spoiled(std::uint64_t of) const;  // Errc::spoiled

  // Chunks of each slot that were checked, or written, by us.
  bool verified(unsigned slot, std::uint64_t chunk) const {
    return verified_.contains(slot * layout.chunk_count() + chunk);
  }
  void set_verified(unsigned slot, std::uint64_t chunk) {
    verified_.insert(slot * layout.chunk_count() + chunk);
  }
  void clear_verified(unsigned slot, std::uint64_t chunk) {
    verified_.erase(slot * layout.chunk_count() + chunk);
  }

  // Asks memory for what assigning and freezing look at: between a trainer's iterations it is cold.
  void prefetch() const {
    const auto* const begin = reinterpret_cast<const std::byte*>(&layout.tensor_id);
    const auto* const end = reinterpret_cast<const std::byte*>(this + 1);
    for (const auto* line = begin; line < end; line += 64) __builtin_prefetch(line, 1);
  }

  bool whole() const { return layout.placement == Placement::whole; }
  unsigned slot_count() const { return layout.slot_count(); }
  std::uint64_t& label(unsigned slot, std::uint64_t chunk) {
    return labels[slot * layout.chunk_count() + chunk];
  }
  std::uint64_t label(unsigned slot, std::uint64_t chunk) const {
    return labels[slot * layout.chunk_count() + chunk];
  }
  // Which of the places the slot is, or the part of it that has that chunk where it is striped, and
  // where that lies.
  unsigned place_index(unsigned slot, std::uint64_t chunk) const {
    return slot * layout.stripes + static_cast<unsigned>(chunk % layout.stripes);
  }
  std::uint64_t place_of(unsigned slot, std::uint64_t chunk) const {
    return layout.slot_at[place_index(slot, chunk)];
  }
  std::uint64_t cell(std::uint64_t chunk) const { return layout.first_cell + chunk; }
  std::uint64_t chunk_bytes(std::uint64_t chunk) const {
    const std::uint64_t begin = chunk * kChunkBytes;
    return std::min(kChunkBytes, layout.size_bytes - begin);
  }
  std::uint64_t chunk_seed(const format::Seeds& seeds, std::uint64_t chunk) const {
    return seeds.chunk(layout.tensor_id, chunk);
  }
  std::uint64_t chunk_at(unsigned slot, std::uint64_t chunk) const {
    if (planted(Bug::stripes_in_one) && layout.stripes > 1) {
      return layout.slot_at[slot * layout.stripes] + layout.within_place(chunk);
    }
    return layout.chunk_at(slot, chunk);
  }

  // Which whoever reads its slots holds meanwhile: that of the newest version, or of the open
  // attempt.
  std::weak_ptr<Holding> holding;
  // Where its slots lie from here on. One that lies elsewhere now is none that a version or an
  // attempt names; what was known of it is forgotten. With the gate closed, or by who follows.
  void lie_at(const std::shared_ptr<Holding>& now) noexcept;

 private:
  ChunkSet verified_;
};

}  // namespace tensorshelf
