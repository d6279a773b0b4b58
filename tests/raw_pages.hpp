// Pages as they lie on a medium, for those who look at them or forge them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tensorshelf/medium.hpp>

#include "format/bytes.hpp"
#include "store/io/page_io.hpp"

namespace tensorshelf::testing {

inline format::RawPage raw_at(Medium& medium, std::uint64_t at) {
  Unread unread;
  return read_page(medium, at, unread).value();
}

inline void write_raw(Medium& medium, std::uint64_t at, const format::RawPage& page) {
  medium.wait(medium.write(at, page.bytes, 0));
}

inline format::RawPage page_of(std::byte byte) {
  format::RawPage page;
  page.bytes.fill(byte);
  return page;
}

inline format::RawPage raw(const format::Page& page) { return format::load<format::RawPage>(page); }

// Unverified: what src/format keeps to itself.
inline format::Page believed(const format::RawPage& raw) {
  format::Page page;
  within(page) = raw.bytes;
  return page;
}
inline format::Page page_at(Medium& medium, std::uint64_t at) {
  return believed(raw_at(medium, at));
}

}  // namespace tensorshelf::testing
