// What the root pages of a medium say, and what the superblocks do. Reads only. A copy that cannot
// be read is a bad copy: its twin serves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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
std::optional<format::Page> read_page(Medium& medium, std::uint64_t at, Unread& unread);
void write_page(Medium& medium, std::uint64_t at, const format::Page& page);  // and waits for it

struct ShelfHead {
  format::Superblock superblock = {};  // the good one
  std::vector<unsigned> bad_copies;    // of it
  bool writes_allowed = true;          // no ro_compat feature that we do not know
  Unread unread;
};

// Errors: not_a_shelf, truncated, newer_format, corrupt.
ShelfHead read_head(Medium& medium);

struct RootScan {
  std::array<std::array<std::optional<format::Root>, format::kCopies>, format::kSlots> roots;
  std::array<std::array<std::uint64_t, format::kCopies>, format::kSlots> words = {};
  std::array<bool, format::kSlots> blank = {};  // nothing but words in both pages of the home
  Unread unread;

  // Valid roots, the newest first; a root in one home counts once.
  std::vector<format::Root> candidates() const;

  // The versions newer than `newest` that may have been acknowledged: those whose root is there,
  // and those that a damaged home may have held. An acknowledged version has both copies flipped
  // (I2), so one innocent copy clears its home.
  std::vector<std::uint64_t> lost_beyond(std::uint64_t newest) const;

  // Nothing of an attempt or a version lies in the home after that of `newest`: it was wiped.
  bool wiped_beyond(std::uint64_t newest) const;

  // An attempt at `newest` + 1 was described and not flipped.
  bool attempt_left(std::uint64_t newest) const;

 private:
  // A valid, older root; the mark of a home never used; or in every copy what an attempt at
  // `newest` + 1 leaves when it stops before the flip: a body under the word that lay there before.
  bool clears_home(unsigned home, std::uint64_t newest) const;
};

// What both copies of the home of the version after `newest` hold where no version is to be there.
// It clears that home.
format::Page wiped_home(std::uint64_t newest);

RootScan scan_roots(Medium& medium, const format::Seeds& seeds);

}  // namespace tensorshelf
