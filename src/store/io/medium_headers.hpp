// What a medium beside the first bears of its own: whose it is, in two copies, and the stamp of the
// newest version that wrote to it. `index` is where it is attached; 0: it is not, and `medium` is
// that one alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"

namespace tensorshelf {

class ShelfFile;

std::string id_text(const format::ShelfId& id);  // 32 hexadecimal digits

struct MediumHeaders {
  std::array<std::optional<format::MediumHeader>, format::kCopies> copies;
  bool blank = true;  // zeros, nothing at all, or a part of a header of `of`

  const std::optional<format::MediumHeader>& best() const {
    return copies[0] ? copies[0] : copies[1];
  }
};

MediumHeaders read_medium_headers(Medium& medium, unsigned index, const format::ShelfId& of = {});
// Whether what lies there is the mirror of a shelf's own medium.
bool is_first_mirror(Medium& medium);
// Whether the last filling of one that is came to its end.
bool is_filled_mirror(Medium& medium);
// Whether it bears no more than an interrupted adding leaves, so that it may become a medium of the
// shelf that `headers` were read for: headers in part, stamps, and zeros. Of a device the headers
// alone are asked. A file that does not end with a page is somebody's, whatever it has.
bool may_become_medium(Medium& medium, const MediumHeaders& headers, const ShelfFile* file);

// What its header says of it, beside its index.
struct MediumIdentity {
  format::ShelfId shelf_id;
  format::ShelfId medium_id;
  std::optional<unsigned> mirrors;
};
// Those copies that are not `there`: one that is whole is not under way while the other is written.
void write_missing_headers(Medium& medium, unsigned index, const MediumIdentity& identity,
                           const MediumHeaders& there);
// Headers and stamps, whatever is there: one copy of both, durably, and then the other. Before the
// medium has a name, and I1, whichever version names it.
void write_medium_anew(Medium& medium, unsigned index, const MediumIdentity& identity,
                       std::uint64_t stamp);

// What the copies of the stamp say; none where one is damaged, or cannot be read.
using Stamps = std::array<std::optional<std::uint64_t>, format::kCopies>;
Stamps read_stamps(Medium& medium, unsigned index, const format::ShelfId& medium_id);
// The higher one; none where both are damaged.
std::optional<std::uint64_t> stamped_last(Medium& medium, unsigned index,
                                          const format::ShelfId& medium_id);
// Both copies; durable with the next barrier.
void stamp_medium(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                  std::uint64_t version);
// The same, and by which opening: for the first of it, and where a number comes again in it. Words
// that land apart do no harm.
void stamp_medium_anew(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                       std::uint64_t version, std::uint64_t opening);
// As stamp_medium(). Of copies of which nothing is `there` the whole page is written, for a word
// alone heals no bad page.
void mend_stamps(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                 std::uint64_t version, const Stamps& there);
// The same of a mirror: a copy that is there stays one whatever is lost.
void stamp_mirror(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                  format::MirrorStamp stamp);

}  // namespace tensorshelf
