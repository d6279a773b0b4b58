#include "store/io/mark.hpp"

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"

namespace tensorshelf {

using format::kCopies;
using format::PreparedMark;

namespace {

// A repair begins far above what a lost copy may have held.
constexpr std::uint64_t kUnknownMarks = 1 << 20;

void write_copy(Medium& medium, const format::Seeds& seeds, const PreparedMark& mark,
                unsigned copy) {
  write_page(medium, format::mark_at(copy), format::encode_mark(mark, seeds, copy));
  if (copy == 0 && planted(Bug::marks_at_once)) return;
  if (copy == 1 && planted(Bug::mark_unsettled)) return;
  // I14: behind the first, before the other is under way, so that one is always whole; behind the
  // second, before anybody is told of it, or the slots of what it made void are written (I3).
  medium.barrier();
}

}  // namespace

bool Marks::agree() const { return found[0] && found[1] && found[0]->counter == found[1]->counter; }

unsigned Marks::newer() const {
  if (!found[0] || !found[1]) return found[0] ? 0 : 1;
  return found[0]->counter >= found[1]->counter ? 0 : 1;
}

Marks read_marks(Medium& medium, const format::Seeds& seeds) {
  Marks marks;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto page = read_page(medium, format::mark_at(copy), marks.unread);
    if (page) marks.found[copy] = format::read_mark(*page, seeds, copy);
  }
  return marks;
}

void write_mark(Medium& medium, const format::Seeds& seeds, const PreparedMark& mark) {
  write_copy(medium, seeds, mark, 0);
  if (!planted(Bug::mark_in_one_copy)) write_copy(medium, seeds, mark, 1);
}

void check_marks(const Marks& marks) {
  if (!marks.lost()) return;
  throw Error(Errc::corrupt,
              "both copies of the mark of a prepared attempt are damaged" + marks.unread.reason(),
              "Open with mode=\"r\", which needs none; repair() gives up what may be prepared.",
              marks.unread.os_error);
}

PreparedMark settle_marks(Medium& medium, const format::Seeds& seeds, const Marks& marks,
                          bool counts) {
  if (marks.lost()) {
    const PreparedMark empty = format::empty_mark(kUnknownMarks);
    write_mark(medium, seeds, empty);
    return empty;
  }
  const PreparedMark there = marks.newest();
  const bool never_used = marks.agree() && there.counter == 1;
  if (!never_used && !planted(Bug::mark_unrestored)) {
    const unsigned newer = marks.newer();
    store_over_itself(medium, format::mark_at(newer), format::encode_mark(there, seeds, newer),
                      sizeof(PreparedMark));
    if (!planted(Bug::marks_settled_at_once)) medium.barrier();  // I12, I14: as in write_copy()
    write_copy(medium, seeds, there, format::other_copy(newer));
  }
  if (there.version == 0 || counts || planted(Bug::stale_mark_kept)) return there;
  const PreparedMark empty = format::void_mark(there);
  write_mark(medium, seeds, empty);
  return empty;
}

}  // namespace tensorshelf
