// Sizes as people read them, and never rounded in silence: "640 B", "1.5 MiB", and otherwise
// "64.0 MiB (67112960 bytes)", so that what is too small never looks large enough.
#pragma once

#include <cstdint>
#include <string>

namespace tensorshelf {

std::string size_text(std::uint64_t bytes);

}  // namespace tensorshelf
