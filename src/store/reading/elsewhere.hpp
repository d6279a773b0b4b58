// Chunks that are damaged, and what still holds. A chunk's checksum leaves its slot out: what
// matches it in any other slot of the tensor, a copy forward or an older value that was the same,
// is the chunk. All with the tensor's mutex held. What is told of a place (unreadable.hpp) makes it
// one that has nothing; every other error of a read is thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/io/chunk_io.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

// Whether the mirror of the chunk's medium, if that has one, lacks what the record says.
[[nodiscard]] bool mirror_lacks(GuardedMedium& medium, const format::Seeds& seeds,
                                const RecordedChunk& recorded, std::span<std::byte> room);

// Reads the chunk, as the record has it, from its own slot; false where that has it no more.
[[nodiscard]] bool read_own(GuardedMedium& medium, const format::Seeds& seeds,
                            const RecordedChunk& recorded, std::span<std::byte> room);

// Reads the chunk, as the record has it, from the mirror of its medium, or out of another slot,
// where one has it. The bytes are compared where they then are, in the first of `room`: what lies
// in the slot may change.
[[nodiscard]] bool read_elsewhere(GuardedMedium& medium, const format::Seeds& seeds,
                                  const RecordedChunk& recorded, std::span<std::byte> room);

// Where a read failed so, of a medium with a mirror: whether the chunk is in the first of `room`
// now. What goes wrong in that is not thrown, for `error` is what there is to tell; but
// std::bad_alloc is.
[[nodiscard]] bool read_mirrored(State& state, const Error& error, const RecordedChunk& recorded,
                                 std::span<std::byte> room);

// The same where the shelf is opened to heal, or its medium has a mirror: the chunk comes from
// wherever it is sound.
[[nodiscard]] bool read_healed(State& state, const Error& error, const RecordedChunk& recorded,
                               std::span<std::byte> room);

// What CorruptError says to do about it.
std::string how_to_heal(const State& state, const RecordedChunk& recorded);

// The versions before the newest that are to be read, and whose own chunk there is sound.
std::vector<std::uint64_t> intact_in(const State& state, StoredTensor& tensor, std::uint64_t chunk);

}  // namespace tensorshelf
