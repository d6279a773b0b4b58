// The mark of a prepared attempt on the medium: two copies, written one behind the other with a
// barrier between them, so that one is always whole and the one with the higher counter counts.
#pragma once

#include <array>
#include <optional>

#include "format/format.hpp"
#include "store/io/page_io.hpp"

namespace tensorshelf {

struct Marks {
  std::array<std::optional<format::PreparedMark>, format::kCopies> found;
  Unread unread;

  unsigned missing() const { return !found[0] + !found[1]; }
  bool lost() const { return missing() == format::kCopies; }
  bool agree() const;
  unsigned newer() const;  // the copy that counts; one is there
  const format::PreparedMark& newest() const { return *found[newer()]; }
};

Marks read_marks(Medium& medium, const format::Seeds& seeds);

// Durable in both copies when it returns, which agreed before, or were both lost.
void write_mark(Medium& medium, const format::Seeds& seeds, const format::PreparedMark& mark);

// Errc::corrupt where both copies are lost: an attempt may be prepared, and nobody knows.
void check_marks(const Marks& marks);

// For recovery, when nothing else is under way: both copies whole, and durable, for what is seen
// may lie in a cache alone (I12). A mark counts where the attempt that it means is there
// (`counts`). Else it is made empty, before another attempt at its version can be taken for that
// one. Where both are lost, which is for a repair that was asked for, they are empty from then on.
// Returns the mark that lies there now.
format::PreparedMark settle_marks(Medium& medium, const format::Seeds& seeds, const Marks& marks,
                                  bool counts);

}  // namespace tensorshelf
