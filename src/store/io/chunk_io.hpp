// Chunks of a slot: fetched as they are, or compared with their checksums as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tensorshelf/medium.hpp>

#include "base/copy_hash.hpp"
#include "format/format.hpp"
#include "media/media.hpp"
#include "store/io/untrusted.hpp"
#include "store/manifest/tensor.hpp"

namespace tensorshelf {

// A chunk of a tensor as a version has it, which says in what slot it lies and what its bytes
// hash to.
struct RecordedChunk {
  const StoredTensor& tensor;
  format::ChunkRecord record;
  std::uint64_t chunk;
  const Holding* holding = nullptr;  // of the version, where the tensor may lie elsewhere by now

  bool is_stored() const { return format::chunk_kind(record) == format::ChunkKind::stored; }
  unsigned slot() const { return format::chunk_slot(record); }
  std::uint64_t at() const {
    if (holding == nullptr) return tensor.chunk_at(slot(), chunk);
    return holding->slot_at()[tensor.place_index(slot(), chunk)] +
           tensor.layout.within_place(chunk);
  }
  std::uint64_t size_bytes() const { return tensor.chunk_bytes(chunk); }
  bool matches(std::span<const std::byte> bytes, const format::Seeds& seeds) const {
    return hash_bytes(bytes, tensor.chunk_seed(seeds, chunk)) == record.checksum;
  }
};

// True when the chunk can be read and is as the record says. Reads it from the medium; `os_error`
// receives why it could not.
[[nodiscard]] bool chunk_intact(Medium& medium, const format::Seeds& seeds,
                                const RecordedChunk& recorded, int* os_error = nullptr);

// Reads the chunk, as the record has it, from the mirror of its medium into the first of `room`;
// false where there is none, or none that has it.
[[nodiscard]] bool read_mirror(GuardedMedium& medium, const format::Seeds& seeds,
                               const RecordedChunk& recorded, std::span<std::byte> room);

inline char slot_name(unsigned slot) { return static_cast<char>('A' + slot); }

// A chunk in place where the medium has it so, else read into `scratch`. Throws what Medium::read()
// throws.
UntrustedBytes fetch_chunk(Medium& medium, const StoredTensor& tensor, unsigned slot,
                           std::uint64_t chunk, std::span<std::byte> scratch);

// A buffer of one chunk, of the calling thread.
std::span<std::byte> chunk_scratch();

}  // namespace tensorshelf
