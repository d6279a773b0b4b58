// Sizes as people read them: "640 B", "1.5 MiB".
#pragma once

#include <cstdint>
#include <string>

namespace tensorshelf {

std::string size_text(std::uint64_t bytes);

}  // namespace tensorshelf
