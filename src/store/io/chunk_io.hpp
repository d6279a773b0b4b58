// Chunks of a slot: fetched as they are, or compared with their checksums as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "media/media.hpp"
#include "store/io/untrusted.hpp"
#include "store/manifest/records.hpp"

namespace tensorshelf {

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
