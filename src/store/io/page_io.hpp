// Single pages in and out, and what to say where one cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"

namespace tensorshelf {

class Error;

// Pages that the medium could not read, and what it said of the first.
struct Unread {
  std::uint64_t pages = 0;
  std::string first;  // with the place
  int os_error = 0;

  void note(const Error& error);
  void note(const Unread& other);
  std::string reason() const;  // to append: "; <first>", or nothing
};

// Nothing where the place cannot be read, and that noted.
std::optional<format::RawPage> read_page(Medium& medium, std::uint64_t at, Unread& unread);
// The same of pages that lie side by side, in one read where they can be read together.
std::vector<std::optional<format::RawPage>> read_pages(Medium& medium, std::uint64_t at,
                                                       std::size_t count, Unread& unread);
// Likewise, into memory that is there. One that cannot be read is zero, for which no checksum
// holds, and that noted.
void read_run(Medium& medium, std::uint64_t at, std::span<format::RawPage> pages, Unread& unread);
void write_page(Medium& medium, std::uint64_t at, const format::Page& page);  // and waits for it

// Stores the head of a page over itself, word by word, which cannot hurt it: so it becomes durable
// where it is, while the other copy may be under way. Each word, also where a medium writes whole
// pages: after a failed flush it may read another page there than the one at hand.
void store_over_itself(Medium& medium, std::uint64_t page_at, const format::Page& page,
                       std::size_t size_bytes);

}  // namespace tensorshelf
