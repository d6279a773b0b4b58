#include "store/io/page_io.hpp"

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/io/unreadable.hpp"

namespace tensorshelf {

using format::Page;
using format::RawPage;

void Unread::note(const Error& error) {
  if (pages++ != 0) return;
  first = error.what();
  os_error = error.os_error();
}

void Unread::note(const Unread& other) {
  if (pages == 0) {
    first = other.first;
    os_error = other.os_error;
  }
  pages += other.pages;
}

std::string Unread::reason() const { return pages == 0 ? std::string() : "; " + first; }

namespace {

void read_bytes(Medium& medium, std::uint64_t at, std::span<std::byte> bytes) {
  if (planted(Bug::recovery_asks_cache)) {
    medium.look(at, bytes);
  } else {
    medium.read(at, bytes);
  }
}

// Whether they could be read together.
bool has_read(Medium& medium, std::uint64_t at, std::span<RawPage> pages) {
  try {
    read_bytes(medium, at, std::as_writable_bytes(pages));
    return true;
  } catch (const Error& error) {
    if (!is_unreadable(error) || planted(Bug::unreadable_not_bad)) throw;
    return false;
  }
}

}  // namespace

std::optional<RawPage> read_page(Medium& medium, std::uint64_t at, Unread& unread) {
  try {
    RawPage page;
    read_bytes(medium, at, page.bytes);
    return page;
  } catch (const Error& error) {
    if (!is_unreadable(error) || planted(Bug::unreadable_not_bad)) throw;
    unread.note(error);
    return std::nullopt;
  }
}

std::vector<std::optional<RawPage>> read_pages(Medium& medium, std::uint64_t at, std::size_t count,
                                               Unread& unread) {
  std::vector<RawPage> run(count);
  if (has_read(medium, at, run)) return {run.begin(), run.end()};
  std::vector<std::optional<RawPage>> pages;
  for (std::size_t i = 0; i < count; ++i) {
    pages.push_back(read_page(medium, at + i * kPageBytes, unread));
  }
  return pages;
}

void read_run(Medium& medium, std::uint64_t at, std::span<RawPage> pages, Unread& unread) {
  if (has_read(medium, at, pages)) return;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i] = read_page(medium, at + i * kPageBytes, unread).value_or(RawPage{});
  }
}

void write_page(Medium& medium, std::uint64_t at, const Page& page) {
  medium.wait(medium.write(at, page.bytes(), 0));
}

void store_over_itself(Medium& medium, std::uint64_t page_at, const Page& page,
                       std::size_t size_bytes) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const std::size_t step =
      planted(Bug::read_trusted_twice) && !medium.promises().mapped ? kPageBytes : kWord;
  for (std::size_t at = 0; at < size_bytes; at += step) {
    medium.store_word(page_at + at, format::word_at(page, at));
  }
}

}  // namespace tensorshelf
