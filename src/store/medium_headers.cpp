#include "store/medium_headers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "store/page_io.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {

using format::kCopies;

std::string id_text(const format::ShelfId& id) {
  std::string text;
  for (const std::uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

// What lies beyond the end is as good as blank.
MediumHeaders read_medium_headers(Medium& medium, unsigned index, const format::ShelfId& of) {
  MediumHeaders headers;
  Unread ignored;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const std::uint64_t at = format::medium_header_at(copy);
    if (index == 0 && at + kPageBytes > medium.size()) continue;
    const auto page = read_page(medium, place_on(index, at), ignored);
    if (page) headers.copies[copy] = format::read_medium_header(*page, copy);
    headers.blank = headers.blank && page && format::may_be_torn_header(*page, of);
  }
  return headers;
}

bool is_first_mirror(Medium& medium) {
  const auto header = read_medium_headers(medium, 0).best();
  return header && format::mirrored_by(*header) == 0U;
}

bool is_filled_mirror(Medium& medium) {
  const auto header = read_medium_headers(medium, 0).best();
  return header && stamped_last(medium, 0, header->medium_id) == kFilled;
}

bool is_blank_file(Medium& medium) {
  const std::uint64_t size = medium.size();
  if (size > format::kMediumHeapAt) return false;
  std::vector<std::byte> bytes(size);
  medium.read(0, bytes);
  for (std::uint64_t page = 0; page < size; page += kPageBytes) {
    const auto rest = std::span(bytes).subspan(page, std::min(kPageBytes, size - page));
    const bool written = page % format::medium_header_at(1) < 2 * kPageBytes;  // header, stamp
    const auto unwritten = written ? rest.subspan(std::min<std::size_t>(64, rest.size())) : rest;
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!std::all_of(unwritten.begin(), unwritten.end(), is_zero)) return false;
  }
  return true;
}

void write_medium_headers(Medium& medium, unsigned index, const format::ShelfId& shelf_id,
                          const format::ShelfId& medium_id, const MediumHeaders& there,
                          std::optional<unsigned> mirrors) {
  format::MediumHeader header{};
  header.index = index;
  header.shelf_id = shelf_id;
  header.medium_id = medium_id;
  if (mirrors) header.incompat_features = format::mirror_features(*mirrors);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (there.copies[copy]) continue;
    write_page(medium, place_on(index, format::medium_header_at(copy)),
               format::encode_medium_header(header, copy));
  }
}

void write_medium_anew(Medium& medium, unsigned index, const NewMedium& what, std::uint64_t stamp) {
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    MediumHeaders other;
    other.copies[format::other_copy(copy)].emplace();
    write_medium_headers(medium, index, what.shelf_id, what.medium_id, other, what.mirrors);
    format::Page page;
    format::set_root_word(page, format::medium_stamp(what.medium_id, stamp));
    write_page(medium, place_on(index, format::medium_stamp_at(copy)), page);
    medium.barrier();  // I6: never are both copies under way together
  }
}

Stamps read_stamps(Medium& medium, unsigned index, const format::ShelfId& medium_id) {
  Stamps stamps;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    std::uint64_t word = 0;
    try {
      medium.read(place_on(index, format::medium_stamp_at(copy)),
                  std::as_writable_bytes(std::span(&word, 1)));
    } catch (const Error& error) {
      if (!is_unreadable(error)) throw;
      continue;
    }
    stamps[copy] = format::stamped_version(medium_id, word);
  }
  return stamps;
}

std::optional<std::uint64_t> stamped_last(Medium& medium, unsigned index,
                                          const format::ShelfId& medium_id) {
  const Stamps stamps = read_stamps(medium, index, medium_id);
  return std::max(stamps[0], stamps[1]);
}

void stamp_medium(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                  std::uint64_t version, const Stamps& there) {
  const std::uint64_t stamp = format::medium_stamp(medium_id, version);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const std::uint64_t at = place_on(index, format::medium_stamp_at(copy));
    if (there[copy]) {
      medium.store_word(at, stamp);
      continue;
    }
    format::Page page;
    format::set_root_word(page, stamp);
    write_page(medium, at, page);
  }
}

}  // namespace tensorshelf
