// Whole chunks on their way from a caller's memory into slots. What is noted of a tensor its
// mutex guards, so that is done before and after; in between, several threads may copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tensorshelf/medium.hpp>

#include "store/manifest/tensor.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

// What becomes of a caller's bytes: they are copied, or lent to the medium (Medium::write_lent())
// where they are whole chunks. Of part of a chunk they are copied.
enum class Handing { copy, lend };

// One chunk. The tensor's mutex is held from its making to done(), by the thread that makes it.
class ChunkCopy {
 public:
  // From here on that chunk of the slot is neither value.
  ChunkCopy(StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
            std::span<const std::byte> bytes, Handing handing = Handing::copy);
  void run(State& state, const StoredTensor& tensor);  // in any thread; one at a time has it
  std::uint64_t done(StoredTensor& tensor) const;      // returns the checksum

  unsigned slot() const { return slot_; }
  std::uint64_t chunk() const { return chunk_; }

 private:
  unsigned slot_;
  std::uint64_t chunk_;
  std::span<const std::byte> bytes_;
  Handing handing_;
  std::uint64_t checksum_ = 0;
};

// One, by this thread, which holds the tensor's mutex. Returns its checksum.
[[nodiscard]] std::uint64_t put_chunk(State& state, StoredTensor& tensor, unsigned slot,
                                      std::uint64_t chunk, std::span<const std::byte> bytes,
                                      Handing handing = Handing::copy);

// Runs them all, by so many threads side by side, and returns when all have ended. The others hold
// no lock and look at nothing of the tensor but where it lies.
void run_all(State& state, const StoredTensor& tensor, std::span<ChunkCopy> copies,
             unsigned threads);

// What wait() must cover before what was written can be made durable.
void note_ticket(State& state, const Ticket& ticket);

// By how many a write of so many bytes is worth being copied.
unsigned threads_for(const State& state, std::uint64_t size_bytes);

}  // namespace tensorshelf
