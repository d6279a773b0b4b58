// How a version comes onto the media: described first, then flipped. The order of the two, and what
// is waited for in between, is the sealer's (commit/sealer.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "format/format.hpp"
#include "store/manifest/attempt.hpp"

namespace tensorshelf {

class Medium;

// Something of both copies of each home of a root.
template <typename T>
using PerHome = std::array<std::array<T, format::kCopies>, format::kMaxSlots>;

// Where roots lie, and under which words: what writing one needs to know.
struct Homes {
  // That lie in the homes now: a root is described under the old one.
  PerHome<std::uint64_t> words = {};

  // The first sequence above `after` for an attempt over that root whose tag is in neither copy of
  // its home: under a word with its own tag it would pass for one that was flipped.
  std::uint64_t next_sequence(const format::Root& over, std::uint64_t incarnation,
                              std::uint64_t after) const;
};

struct WriteTarget {  // what a version is written with
  Medium& medium;
  const format::Seeds& seeds;
  std::shared_ptr<Heap> heap;
  Homes& homes;
};

struct Described {
  std::uint64_t last_ticket = 0;  // of the medium's
  std::uint64_t metadata_bytes = 0;
};
// Writes the changed pages of the manifest to fresh places, and both copies of the root under the
// old word.
Described describe(Version& version, const WriteTarget& target);

// Stores the word in both copies of the home. With the first that lands the version is there.
void flip(const Version& version, Medium& medium);

}  // namespace tensorshelf
