// Structs in and out of a page's bytes: for format alone.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/check.hpp"
#include "format/layout.hpp"

namespace tensorshelf::format {

template <typename T>
T load(const RawPage& page, std::size_t offset = 0) {
  static_assert(kStorable<T>);
  TENSORSHELF_ASSERT(offset + sizeof(T) <= sizeof(Page));
  T value;
  std::memcpy(&value, page.bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void store(RawPage& page, const T& value, std::size_t offset = 0) {
  static_assert(kStorable<T>);
  TENSORSHELF_ASSERT(offset + sizeof(T) <= sizeof(Page));
  std::memcpy(page.bytes.data() + offset, &value, sizeof(T));
}

}  // namespace tensorshelf::format
