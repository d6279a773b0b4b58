// Which kind of medium the recording one is like (recording_medium.hpp), and the smallest unit of
// each that a power loss leaves whole.
#pragma once

#include <cstdint>

namespace tensorshelf::crash {

inline constexpr std::uint64_t kWordBytes = 8;
inline constexpr std::uint64_t kSectorBytes = 512;

enum class Personality { pmem, block };

inline const char* personality_name(Personality personality) {
  return personality == Personality::pmem ? "pmem" : "block";
}

}  // namespace tensorshelf::crash
