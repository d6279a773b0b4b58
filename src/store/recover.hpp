// Opening a shelf, which is recovering it: there is no other way in.
//
//   superblock -> roots -> newest valid root -> its manifest, copied to memory once and validated,
//   after which only the copy is used -> second copies repaired, what was accepted made durable
//   -> incarnation bumped -> ready
//
// It writes nothing that a valid root names but what is already there, and doing it again after a
// crash inside it gives the same shelf (I6, I12).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/shelf.hpp>

#include "format/format.hpp"
#include "store/manifest.hpp"
#include "store/tensor.hpp"

namespace tensorshelf {

struct Recovered {
  format::ShelfId shelf_id = {};
  std::uint64_t version = 0;
  std::uint64_t incarnation = 0;  // ours, already durable, when writable
  unsigned rival_copy = 0;        // of the incarnation, that the next to open for writing writes
  format::Root root = {};
  // The words that lie in the homes now: a commit describes its root under the old one.
  std::array<std::array<std::uint64_t, format::kCopies>, format::kSlots> words = {};
  Manifest manifest;
  std::vector<std::shared_ptr<StoredTensor>> tensors;
  std::vector<Extent> used;  // by the root's pages and slots
  bool writes_allowed = true;
  Recovery report;
};

struct RecoverWay {
  bool writable = false;  // else nothing is written
  Verify verify = Verify::on_load;
  bool salvage = false;  // what OpenOptions says of it; with `writable`: repair the shelf
  bool strict = false;   // nothing is written, and it is refused where a writer would be
};

// Errors: not_a_shelf, truncated, newer_format, corrupt, io; each with the place in the text.
Recovered recover(Medium& medium, const RecoverWay& way, const Progress& progress);

// Throws what opening the shelf for writing would throw, and writes nothing.
void check_opens(Medium& medium);

// Throws Errc::busy where another has opened the shelf for writing since (I10).
void check_no_rival(Medium& medium, const Recovered& opened, const format::Seeds& seeds);

// Whether a version was flipped since a reader opened the shelf.
bool is_overtaken(Medium& medium, const Recovered& opened, const format::Seeds& seeds);

}  // namespace tensorshelf
