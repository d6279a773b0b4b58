// The number of each opening for writing (I5, I10), in two copies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/io/page_io.hpp"
#include "store/io/purpose.hpp"
#include "store/io/root_scan.hpp"

namespace tensorshelf {

// The two copies of the incarnation are written in turn, one at each open, so that they differ by
// one at most and the larger is the last number given out.
struct Incarnations {
  std::array<std::optional<std::uint64_t>, format::kCopies> found;
  std::uint64_t last = 0;  // that is known to have been given out
  unsigned older = 0;      // the copy that is to be written next
  Unread unread;

  unsigned newer() const { return format::other_copy(older); }
  bool lost() const { return !found[0] && !found[1]; }
};

// The larger copy of a record that begins at `from`. None where one is damaged, for that may have
// been the larger one.
std::optional<std::uint64_t> newest_incarnation(Medium& medium, std::uint64_t from,
                                                const format::Seeds& seeds);

// Throws Errc::corrupt where there would be no number to take: at the counter's end, and where both
// copies are lost. For repair, which was asked for, a number is then found above all that are
// known.
Incarnations read_incarnations(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                               Purpose purpose);

// I12, for the newer copy of the incarnation, before the older one is written: else both might be
// lost together. Whose root is there had made it durable; then nothing is done, and false returned.
bool restore_incarnation(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                         const Incarnations& there);

// Takes the next number, durably. A damaged copy may have held one more than the other does: that
// number is skipped, and both are written (I5).
std::uint64_t bump_incarnation(Medium& medium, const format::Seeds& seeds,
                               const Incarnations& there);

}  // namespace tensorshelf
