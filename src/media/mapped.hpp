// What the media share whose bytes are mapped.
#pragma once

#include <cstddef>
#include <span>

#include "base/fault_guard.hpp"

namespace tensorshelf {

// Below, what is stored may still lie in the second-level cache of 512 KiB to 2 MiB when it is
// stored over; from here on it seldom does, and a store to it would read it first.
inline constexpr std::size_t kSmallestStreamed = 128 << 10;

inline constexpr const char* kNoAdrNote =
    "the platform declares no power-fail protection (ADR) for this memory: a power loss can lose "
    "acknowledged data; enable it in the firmware, or for a virtual NVDIMM in its host";

// Copies what a call was given. Bytes that the medium itself shows (`shown`) may be gone: then
// `gone` says so, for they are the shelf's, not the call's.
template <typename Copy, typename Gone>
void take_given(std::span<const std::byte> bytes, bool shown, const Copy& copy, const Gone& gone) {
  if (!shown) return copy();
  if (!touch_mapped(bytes, copy)) gone();
}

}  // namespace tensorshelf
