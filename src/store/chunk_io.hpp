// Reading chunks of a slot, checked: the one place where data checksums are compared.
#pragma once

#include <cstddef>
#include <span>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/tensor.hpp"

namespace tensorshelf {

// True when the chunk in that slot can be read and is as it was written. Reads it from the medium.
bool chunk_intact(Medium& medium, const format::Seeds& seeds, const StoredTensor& tensor,
                  unsigned slot, std::uint64_t chunk);

// `count` neighbouring chunks, unchecked: in place where the medium has them so, else read into
// `scratch`, which is large enough for them. Throws what Medium::read() throws.
std::span<const std::byte> fetch_chunks(Medium& medium, const StoredTensor& tensor, unsigned slot,
                                        std::uint64_t chunk, std::uint64_t count,
                                        std::span<std::byte> scratch);

// A buffer of one chunk, of the calling thread.
std::span<std::byte> chunk_scratch();

}  // namespace tensorshelf
