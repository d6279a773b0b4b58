// Plain memory: survives nothing. Grows in place up to max_size_bytes of reserved addresses.
#pragma once

#include <cstdint>
#include <memory>

#include <tensorshelf/medium.hpp>

namespace tensorshelf {

std::unique_ptr<Medium> make_memory_medium(std::uint64_t size_bytes, std::uint64_t max_size_bytes);

}  // namespace tensorshelf
