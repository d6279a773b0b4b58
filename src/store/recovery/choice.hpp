// Which versions an opening offers: the newest that is whole, those before it that it retains, and
// an attempt that was found prepared. Reads only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/options.hpp>

#include "store/io/purpose.hpp"
#include "store/io/root_scan.hpp"
#include "store/media_set/further_media.hpp"
#include "store/recovery/page_reader.hpp"
#include "store/recovery/prepared_attempt.hpp"

namespace tensorshelf {

struct Choice {
  std::vector<std::shared_ptr<Version>> versions = {};  // that are retained, the newest last
  std::vector<PageRepair> repairs = {};                 // of all that was loaded
  Unread unread_pages = {};                             // of them, whose other copies served
  bool degraded = false;
  bool mirrored = false;  // a root of them is the mirror's
  std::string lost;       // why newer versions could not be opened
  int unread_errno = 0;   // of one of them that could not be read, which may pass; 0: none
  std::vector<std::uint64_t> dropped = {};  // were retained, and cannot be loaded
  std::vector<std::string> notes = {};      // why
  std::optional<FoundPrepared> prepared = {};

  const format::Root& root() const { return versions.back()->root; }
  std::uint64_t number() const { return versions.back()->number(); }
  void lose(std::uint64_t version, const std::string& why);
};

// What to open, and how.
struct Opening {
  GuardedMedium& medium;
  const format::Seeds& seeds;
  Purpose purpose;
  Verify verify;
  const Progress& progress;
  KnownPages& known;
  FurtherMedia& further;
  bool beside_writer = false;  // who may go on meanwhile
  KnownTensors tensors = {};   // of versions that are shown already
};

// Errc::corrupt where no version is whole, Errc::truncated where the medium ends too early.
Choice choose_versions(const Opening& opening, const RootScan& scan);

}  // namespace tensorshelf
