// What the root pages of a medium say, and the mark of a prepared attempt. Reads only. A copy that
// cannot be read is a bad copy: its twin serves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "format/format.hpp"
#include "store/io/mark.hpp"
#include "store/io/page_io.hpp"
#include "store/manifest/flip.hpp"

namespace tensorshelf {

struct RootScan {
  unsigned slot_count = 0;  // K: as many homes there are
  PerHome<std::optional<format::Root>> roots;
  PerHome<std::uint64_t> words = {};
  PerHome<bool> blank = {};           // but for the word
  PerHome<std::uint64_t> times = {};  // that the pages state, be they roots or not
  // The copy is damaged, and the root the one that its mirror has there.
  PerHome<bool> mirrored = {};
  Unread unread;
  Marks marks;

  // Attempts that were described and not flipped: whole but for the word, which is the one that
  // lay there before. Such a copy shows that no version was acknowledged there (I2).
  PerHome<std::optional<format::Root>> described;

  // The one that the mark means, where that is the next after `newest`: it may be flipped, or
  // abandoned.
  std::optional<format::Root> prepared(std::uint64_t newest) const;
  // The mark means an attempt at the next version, and both copies of its root are damaged.
  bool prepared_is_lost(std::uint64_t newest) const;
  // Whether that copy holds the attempt that the mark means; false where the mark is lost.
  bool mark_means(unsigned home, unsigned copy) const;
  bool mark_names(unsigned home, unsigned copy) const;  // or that it ended

  // Valid roots, the newest first; a root in one home counts once.
  std::vector<format::Root> candidates() const;

  // The versions newer than `newest` that may have been acknowledged: those whose root is there,
  // and those that a damaged home may have held. An acknowledged version has both copies flipped
  // (I2), so one innocent copy clears its home; and, as they flip in order, those of the versions
  // that would have come after it.
  std::vector<std::uint64_t> lost_beyond(std::uint64_t newest) const;

  // Whether that copy alone shows that `version`, or a later one, was never acknowledged in its
  // home: a valid, older root; an attempt at `version` that is whole and not flipped; or a page
  // that was wiped.
  bool clears(std::uint64_t version, unsigned copy) const;
  bool wiped(std::uint64_t version, unsigned copy) const;
  bool leaves_unflipped(std::uint64_t version, unsigned copy) const;  // the attempt that is whole

  // Takes those roots of `mirror` that are damaged here, in both copies: of versions after the
  // newest that is whole, as far as each may have been acknowledged, and of those before it. False
  // where there is none such.
  bool take_lost(const RootScan& mirror);
  bool has_mirrored() const { return mirrored != decltype(mirrored){}; }

  // An attempt at `newest` + 1 was begun and not flipped, nor abandoned by whoever prepared it.
  bool attempt_left(std::uint64_t newest) const;

 private:
  // A valid root of that version, or of a later one.
  bool holds(std::uint64_t version) const;
  // Likewise of the home, by what is in it:
  //   one copy     clears the version itself, or has the mark of a home never used
  //   both copies  have the word that lay there before, and what an attempt left half-written
  bool clears_home(std::uint64_t version) const;
  // Whether a copy there is, by its word, that root, and by its time another: who goes on from one
  // state twice counts incarnations alike.
  bool tells_of_another(const format::Root& root) const;
  // Whether the root of `version` may have lain there, where it is not the newest nor after that.
  bool may_have_lost(std::uint64_t version, const format::Root& newest) const;
};

// What both copies of the home of `version` hold where no version is to be there. It clears it.
format::Page wiped_home(std::uint64_t version, unsigned slot_count);

RootScan scan_roots(Medium& medium, const format::Seeds& seeds, unsigned slot_count);
// Without the mark, and of what begins at that place: a mirror has the roots of another.
RootScan scan_homes(Medium& medium, std::uint64_t from, const format::Seeds& seeds,
                    unsigned slot_count);

// Whether a root was flipped since the scan, which is then made anew. Two scans with the same words
// show that nothing was flipped from the end of the first to the start of the second, so the first
// saw one moment, and stays. The second may not have: it is thrown away. The mark stays as it was,
// and may name an attempt that was given up since.
bool scan_again(Medium& medium, const format::Seeds& seeds, RootScan& scan);

// The version words of all homes: where they are what they were, nothing was flipped. 0 where one
// cannot be read.
PerHome<std::uint64_t> version_words(Medium& medium, unsigned slot_count);

inline constexpr int kMostLooks = 100;  // at roots that change all the while

}  // namespace tensorshelf
