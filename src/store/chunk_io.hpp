// Chunks of a slot: fetched as they are, or compared with their checksums as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/tensor.hpp"

namespace tensorshelf {

// One that an assignment changes in part, with all of its bytes as they will be.
struct MergedChunk {
  std::uint64_t chunk = 0;
  std::span<std::byte> whole = {};
  std::uint64_t offset = 0;  // of the part, within the chunk
  std::uint64_t size_bytes = 0;
  std::optional<unsigned> in_slot = {};  // a slot that has the rest already, verified
};

// True when the chunk can be read and is as the record says. Reads it from the medium; `os_error`
// receives why it could not.
bool chunk_intact(Medium& medium, const format::Seeds& seeds, const StoredTensor& tensor,
                  const format::ChunkRecord& record, std::uint64_t chunk, int* os_error = nullptr);

inline char slot_name(unsigned slot) { return static_cast<char>('A' + slot); }

// `count` neighbouring chunks, unchecked: in place where the medium has them so, else read into
// `scratch`, which is large enough for them. Throws what Medium::read() throws.
std::span<const std::byte> fetch_chunks(Medium& medium, const StoredTensor& tensor, unsigned slot,
                                        std::uint64_t chunk, std::uint64_t count,
                                        std::span<std::byte> scratch);

// Of bytes that may be mapped. Nothing, or false, where they are gone: the file was cut short by
// someone else, or the memory is damaged. Medium::read() then says what it is.
std::optional<std::uint64_t> hash_mapped(std::span<const std::byte> bytes, std::uint64_t seed);
bool copy_mapped(std::span<std::byte> target, std::span<const std::byte> source);

// A buffer of one chunk, of the calling thread.
std::span<std::byte> chunk_scratch();

}  // namespace tensorshelf
