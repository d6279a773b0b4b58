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
// Of one that is: whether its last filling came to its end.
bool is_filled_mirror(Medium& medium);
// Those copies that are not `there`: one that is whole is not under way while the other is written.
// Whether a file has no more than an interrupted adding leaves: zeros, and headers in part. Of a
// device that is not asked, which is as long as it is.
bool is_blank_file(Medium& medium);
void write_medium_headers(Medium& medium, unsigned index, const format::ShelfId& shelf_id,
                          const format::ShelfId& medium_id, const MediumHeaders& there = {},
                          std::optional<unsigned> mirrors = {});

// The stamp of a mirror: no version is said to have written to it.
inline constexpr std::uint64_t kFilled = 0;
inline constexpr std::uint64_t kFilling = 1;    // what it had can be read until its roots go
inline constexpr std::uint64_t kRefilling = 2;  // and anything may be under way

// Headers and stamps, whatever is there: one copy of both, durably, and then the other. Before the
// medium has a name, and I1, whichever version names it.
struct NewMedium {
  format::ShelfId shelf_id;
  format::ShelfId medium_id;
  std::optional<unsigned> mirrors;
};
void write_medium_anew(Medium& medium, unsigned index, const NewMedium& what, std::uint64_t stamp);

// What the copies of the stamp say; none where one is damaged, or cannot be read.
using Stamps = std::array<std::optional<std::uint64_t>, format::kCopies>;
Stamps read_stamps(Medium& medium, unsigned index, const format::ShelfId& medium_id);
// The higher one; none where both are damaged.
std::optional<std::uint64_t> stamped_last(Medium& medium, unsigned index,
                                          const format::ShelfId& medium_id);
// Durable with the next barrier. Of copies of which nothing is `there` the whole page is written,
// for a word alone heals no bad page.
void stamp_medium(Medium& medium, unsigned index, const format::ShelfId& medium_id,
                  std::uint64_t version, const Stamps& there = {0, 0});

}  // namespace tensorshelf
