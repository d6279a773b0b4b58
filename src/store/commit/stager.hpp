// Bytes into slots that no version, no attempt in flight and no lease names (I3). Of a tensor that
// is placed whole the open attempt has one slot, and what nobody assigns is copied there when the
// attempt is frozen; else each chunk takes a slot of its own.
//
// begin_write(), complete(), write_anew() and check_labels() with the tensor's mutex held, all else
// takes it. All but carry(), which passes the gate itself, with the gate passed, or closed by us:
// what is in flight can only become less.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "store/commit/chunk_copy.hpp"
#include "store/commit/free_slots.hpp"
#include "store/io/chunk_io.hpp"
#include "store/reading/reader.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

// A chunk that an assignment changes in part, with all of its bytes as they will be.
struct MergedChunk {
  std::uint64_t chunk = 0;
  std::span<std::byte> whole = {};
  std::uint64_t offset = 0;  // of the part, within the chunk
  std::uint64_t size_bytes = 0;
  std::optional<unsigned> in_slot = {};  // a slot that has the rest already, verified
};

using PerMedium = std::array<std::uint64_t, kMaxMedia>;  // bytes, by the number of the medium
// The place on each in front of which all is to lie (compactor.hpp).
using Goals = PerMedium;

// A log for whoever may undo a write.
class UndoLog {
 public:
  // Before anything is written: what throws behind it is undone. The tensor's mutex is held.
  virtual void begin(std::span<const std::byte> bytes, std::uint64_t offset,
                     const FoundSlot& found) = 0;
  virtual void touch(std::uint64_t chunk) = 0;      // before it is written
  virtual void keep(std::uint64_t size_bytes) = 0;  // so many of them are not written

 protected:
  ~UndoLog() = default;
};

class Stager {
 public:
  Stager(State& state, Reader& reader) : state_(state), reader_(reader) {}

  State& state() { return state_; }

  // Waits where a slot comes free with the next version that is published.
  void write(StoredTensor& tensor, std::span<const std::byte> bytes, std::uint64_t offset,
             UndoLog& log, Handing handing = Handing::copy);
  // The tensor is the open attempt's from here on; what throws before leaves it as it was. False
  // where it was so before.
  bool begin_write(const std::shared_ptr<StoredTensor>& tensor, const FoundSlot& found);
  // Brings the attempt's slot up to date, where the tensor is placed whole: chunks that nobody
  // assigned since another slot was current.
  void complete(StoredTensor& tensor);
  // carry.cpp: a chunk of the version under the attempt whose slot ends behind its medium's goal,
  // into the lowest free one, for the open attempt. False where it is not: it lies in front, no
  // free slot lies lower, somebody assigned it, or it is damaged.
  bool carry(const std::shared_ptr<StoredTensor>& tensor, std::uint64_t chunk, const Goals& goals);
  // anew.cpp; the gate is closed. A whole chunk, into a slot of the attempt's own: `lock` is of the
  // tensor's mutex, and let go while it waits.
  void write_anew(const std::shared_ptr<StoredTensor>& tensor, std::uint64_t chunk,
                  std::span<const std::byte> bytes, std::unique_lock<FairMutex>& lock);
  // Where the attempt's slot passes for having a chunk, it is looked at: what does not hold is
  // copied forward by complete().
  void check_labels(StoredTensor& tensor);
  // Whether the open attempt has these bytes as that chunk. Takes the tensor's mutex itself.
  bool has(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes) const;
  // What both have room for of the value of one, with all that was assigned, into another that is
  // part of no attempt yet; each chunk is checked on its way. The gate is closed. Returns how much
  // it wrote: zeros need not be.
  std::uint64_t copy_value(StoredTensor& from, StoredTensor& to);  // copy_value.cpp

 private:
  struct Edges;

  // stager.cpp
  Edges merge_edges(StoredTensor& tensor, std::span<const std::byte> bytes, std::uint64_t offset);
  void write_chunk(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes,
                   const FoundSlot& found, Handing handing = Handing::copy);
  void note_written(StoredTensor& tensor, std::uint64_t chunk, unsigned slot,
                    std::uint64_t checksum);
  bool lacks(const StoredTensor& tensor, std::uint64_t chunk) const;

  // carry.cpp
  void copy_forward(StoredTensor& tensor, unsigned slot, std::uint64_t chunk);
  std::optional<unsigned> lower_slot(const StoredTensor& tensor, std::uint64_t chunk,
                                     const Goals& goals);

  // unchanged.cpp
  std::vector<char> find_unchanged(const StoredTensor& tensor, std::span<const std::byte> bytes,
                                   std::uint64_t offset) const;

  // merge.cpp
  format::ChunkRecord present_record(const StoredTensor& tensor, std::uint64_t chunk) const;
  bool slot_has(StoredTensor& tensor, unsigned slot, const MergedChunk& merged,
                const format::ChunkRecord& now);
  void merge_chunk(StoredTensor& tensor, MergedChunk& merged, std::span<const std::byte> bytes);
  void write_merged(StoredTensor& tensor, const MergedChunk& merged, const FoundSlot& found);

  State& state_;
  Reader& reader_;
  ChunkReader chunks_{state_};
  FreeSlots free_{state_};
};

}  // namespace tensorshelf
