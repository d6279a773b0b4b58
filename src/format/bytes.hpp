// Structs in and out of a page's bytes: for format alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/check.hpp"
#include "format/layout.hpp"

namespace tensorshelf::format {

inline bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

inline Page::Bytes& within(Page& page) { return page.bytes_; }

template <typename T>
T load(std::span<const std::byte, kPageBytes> bytes, std::size_t offset = 0) {
  static_assert(kStorable<T>);
  TENSORSHELF_ASSERT(offset + sizeof(T) <= kPageBytes);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
T load(const RawPage& page, std::size_t offset = 0) {
  return load<T>(page.bytes, offset);
}

template <typename T>
T load(const Page& page, std::size_t offset = 0) {
  return load<T>(page.bytes(), offset);
}

template <typename T>
void store(Page& page, const T& value, std::size_t offset = 0) {
  static_assert(kStorable<T>);
  TENSORSHELF_ASSERT(offset + sizeof(T) <= kPageBytes);
  std::memcpy(within(page).data() + offset, &value, sizeof(T));
}

}  // namespace tensorshelf::format
