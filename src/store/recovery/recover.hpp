// Opening a shelf, which is recovering it: there is no other way in.
//
//   superblock -> roots -> newest valid root -> its manifest, copied to memory once and validated,
//   after which only the copy is used -> retained versions, the prepared attempt -> a root in one
//   copy settled, mirrors filled -> second copies repaired, what was accepted made durable ->
//   incarnation bumped -> mark settled -> homes that were not accepted wiped -> ready; and then
//   the media beside the first settled (State::take_over)
//
// It writes nothing that a valid root names but what is already there, and doing it again after a
// crash inside it gives the same shelf (I6, I12).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

#include "format/format.hpp"
#include "store/io/purpose.hpp"
#include "store/io/root_scan.hpp"
#include "store/manifest/attempt.hpp"
#include "store/media_set/further_media.hpp"
#include "store/recovery/load_root.hpp"
#include "store/recovery/page_reader.hpp"
#include "store/recovery/prepared_attempt.hpp"

namespace tensorshelf {

struct Recovered {
  format::ShelfId shelf_id = {};
  std::uint64_t version = 0;
  std::uint64_t incarnation = 0;  // ours, already durable, when writable
  unsigned rival_copy = 0;        // of the incarnation, that the next to open for writing writes
  unsigned slot_count = 0;        // K
  Homes homes;
  // That are retained, without a gap, the newest last: there is one at least.
  std::vector<std::shared_ptr<Version>> versions;
  bool writes_allowed = true;
  format::PreparedMark mark = {};         // that lies there now, where it is writable
  std::optional<FoundPrepared> prepared;  // where it is writable
  Recovery report;
};

// Errors: not_a_shelf, truncated, medium_missing, newer_format, unsupported, corrupt, io, and stale
// for a reader that is always overtaken; each with the place in the text.
Recovered recover(const ShelfMedia& media, Purpose purpose, Verify verify = Verify::on_load,
                  const Progress& progress = {});

// What whoever reads an open shelf finds when looking again.
struct Seen {
  std::vector<std::shared_ptr<Version>> versions;  // that are retained, the newest last
  Homes homes;                                     // under which they were found
  bool degraded = false;                           // a newer one may have been lost
  std::string lost;                                // why it could not be opened
  std::size_t dropped = 0;                         // were retained, and cannot be loaded
};

// As recover() does for reading, of a shelf that was opened before, whose homes were just scanned.
// Pages and tensors of the versions in `shown` are not read again, and what is found shares them.
// Errors as recover().
Seen look_again(const ShelfMedia& media, const Recovered& opened, Verify verify, RootScan scan,
                const std::vector<std::shared_ptr<Version>>& shown);

// Throws what opening the shelf for writing would throw, and writes nothing.
void check_opens(const ShelfMedia& media);

// Throws Errc::busy where another has opened the shelf for writing since (I10).
void check_no_rival(Medium& medium, const Recovered& opened, const format::Seeds& seeds);

// Whether a version was flipped since a reader saw `version` by which its slots may have been
// written over.
bool is_overtaken(Medium& medium, const Recovered& opened, const format::Seeds& seeds,
                  std::uint64_t version);
// The same where a newer root was there already when the shelf was opened, and could not be read:
// whether any was flipped since. The floor of the newest proves nothing there.
bool is_overtaken_in_doubt(Medium& medium, const Recovered& opened);

}  // namespace tensorshelf
