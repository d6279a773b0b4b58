#include "store/io/medium_headers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "media/file.hpp"
#include "media/media.hpp"
#include "store/io/page_io.hpp"
#include "store/io/unreadable.hpp"

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
  return header &&
         format::is_stamp(stamped_last(medium, 0, header->medium_id), format::MirrorStamp::filled);
}

bool may_become_medium(Medium& medium, const MediumHeaders& headers, const ShelfFile* file) {
  if (headers.best() || !headers.blank) return false;
  if (file == nullptr || made_as(file->path()) != MadeAs::file) return true;
  const std::uint64_t size = file->size_bytes();
  if (size % kPageBytes != 0 || size > format::kMediumHeapAt) return false;
  std::vector<std::byte> bytes(size);
  medium.read(0, bytes);
  return format::has_headers_at_most(bytes);
}

namespace {

format::MediumHeader header_of(unsigned index, const MediumIdentity& identity) {
  format::MediumHeader header{};
  header.index = index;
  header.shelf_id = identity.shelf_id;
  header.medium_id = identity.medium_id;
  if (identity.mirrors) header.incompat_features = format::mirror_features(*identity.mirrors);
  return header;
}

}  // namespace

void write_missing_headers(Medium& medium, unsigned index, const MediumIdentity& identity,
                           const MediumHeaders& there) {
  const format::MediumHeader header = header_of(index, identity);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (there.copies[copy]) continue;
    write_page(medium, place_on(index, format::medium_header_at(copy)),
               format::encode_medium_header(header, copy));
  }
}

void write_medium_anew(Medium& medium, unsigned index, const MediumIdentity& identity,
                       std::uint64_t stamp) {
  const MediumHeaders there = read_medium_headers(medium, index);
  const format::MediumHeader header = header_of(index, identity);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const std::uint64_t at = place_on(index, format::medium_header_at(copy));
    const format::Page whole = format::encode_medium_header(header, copy);
    // Either of the two that are seen here may be in a cache alone: its flush failed. So neither is
    // put at risk for the other.
    if (there.copies[copy] == format::sealed(header, copy) && !planted(Bug::header_under_way)) {
      store_over_itself(medium, at, whole, sizeof(format::MediumHeader));
    } else {
      write_page(medium, at, whole);
    }
    write_page(medium, place_on(index, format::medium_stamp_at(copy)),
               format::encode_stamp({format::medium_stamp(identity.medium_id, stamp), 0}));
    medium.barrier();  // I6: never are both copies under way together
  }
}

Stamps read_stamps(Medium& medium, unsigned index, const format::ShelfId& medium_id) {
  Stamps stamps;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    format::RawStamp stamp;
    const std::uint64_t at = format::medium_stamp_at(copy);
    if (index == 0 && at + sizeof stamp > medium.size()) continue;
    try {
      medium.read(place_on(index, at), stamp.bytes);
    } catch (const Error& error) {
      if (!is_unreadable(error)) throw;
      continue;
    }
    stamps[copy] = format::stamped_version(medium_id, stamp);
  }
  return stamps;
}

std::optional<std::uint64_t> stamped_last(Medium& medium, unsigned index,
                                          const format::ShelfId& medium_id) {
  const Stamps stamps = read_stamps(medium, index, medium_id);
  return std::max(stamps[0], stamps[1]);
}

void stamp_medium(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                  std::uint64_t version) {
  mend_stamps(medium, index, medium_id, version, {0, 0});
}

void stamp_medium_anew(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                       std::uint64_t version, std::uint64_t opening) {
  const format::Page page =
      format::encode_stamp({format::medium_stamp(medium_id, version), opening});
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, place_on(index, format::medium_stamp_at(copy)), page);
  }
}

void mend_stamps(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                 std::uint64_t version, const Stamps& there) {
  const std::uint64_t stamp = format::medium_stamp(medium_id, version);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const std::uint64_t at = place_on(index, format::medium_stamp_at(copy));
    if (there[copy]) {
      medium.store_word(at, stamp);
      continue;
    }
    write_page(medium, at, format::encode_stamp({stamp, 0}));
  }
}

void stamp_mirror(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                  format::MirrorStamp stamp) {
  mend_stamps(medium, index, medium_id, static_cast<std::uint64_t>(stamp),
              read_stamps(medium, index, medium_id));
}

}  // namespace tensorshelf
