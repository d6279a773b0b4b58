#include "mirror_plays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "format/format.hpp"
#include "mirrored_play.hpp"
#include "rng.hpp"
#include "survey.hpp"

namespace tensorshelf::crash {

// Each flush of the mirror in turn fails while it is filled. What that wrote is to be read, and on
// no device; the next opening passes for durable only what it wrote itself.
std::string what_a_failed_filling_wrote_is_written_again() {
  for (unsigned failing = 0;; ++failing) {
    const Mirrored mirrored;
    mirrored.mirror->barrier_fails = [failing](unsigned n) { return n == failing; };
    try {
      mirrored.open();
      return failing > 3 ? "" : "a filling has no flushes that fail";
    } catch (const Error& error) {
      if (error.code() != Errc::io) throw;
    }
    mirrored.mirror->barrier_fails = {};
    mirrored.open();
    mirrored.mirror->lose_power();
    const std::string problem = mirrored.alone(2);
    if (!problem.empty()) return fmt::format("flush {} failed, and {}", failing, problem);
  }
}

// An older copy of a mirror is filled, for the first time, and the power fails at each step of
// that: of what is under way some lands. The first is lost, too: the mirror shows what it had, or
// has now.
std::string part_of_a_filling_shows_what_was_there_before() {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(seed);
    const Mirrored mirrored;
    mirrored.commit(3);
    CachedDisk& disk = *mirrored.mirror;
    const Bytes older = disk.visible;
    mirrored.commit(4);  // of more than one the filling writes over what older ones had
    const Bytes first = mirrored.first->visible;
    bool filled = false;
    for (unsigned step = 0; !filled; ++step) {
      mirrored.first->become(first);
      // Of a root that is whole once nothing is written there before the filling either.
      if (seed % 2 == 1) flip(*mirrored.first, format::root_at(0, 0) + 100);
      disk.become(older);
      disk.dirty.clear();
      disk.dies = [end = disk.events + step](unsigned n) { return n >= end; };
      filled = mirrored.opens();
      disk.dies = {};
      disk.fate_of_dirty = [&] {
        return rng.one_in(2) ? CachedDisk::Fate::landed : CachedDisk::Fate::missing;
      };
      disk.lose_power();
      if (const std::string problem = mirrored.alone(3); !problem.empty()) {
        return fmt::format("at step {} of a filling: {}", step, problem);
      }
    }
  }
  return "";
}

namespace {

// By its stamp, whichever copy tells more.
bool says_that_it_is_filled(const CachedDisk& disk) {
  std::optional<std::uint64_t> last;
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    format::RawPage page;
    std::copy_n(disk.visible.begin() + format::medium_header_at(copy), kPageBytes,
                page.bytes.begin());
    const auto header = format::read_medium_header(page, copy);
    if (!header) continue;
    format::RawStamp stamp;
    std::memcpy(stamp.bytes.data(), disk.visible.data() + format::medium_stamp_at(copy),
                stamp.bytes.size());
    last = std::max(last, format::stamped_version(header->medium_id, stamp));
  }
  return format::is_stamp(last, format::MirrorStamp::filled);
}

}  // namespace

// The same of a mirror that lacks so many versions that what it has is written over: who opens it
// alone hears that it was being filled.
std::string filling_is_marked_before_anything_is_copied() {
  const Mirrored mirrored;
  mirrored.commit(3);
  CachedDisk& disk = *mirrored.mirror;
  const Bytes older = disk.visible;
  for (const std::uint64_t serial : {4, 5}) mirrored.commit(serial);
  const Bytes first = mirrored.first->visible;
  bool filled = false;
  unsigned damaged = 0;
  for (unsigned run = 0; !filled; ++run) {
    Rng rng(run);
    mirrored.first->become(first);
    disk.become(older);
    disk.dirty.clear();
    disk.dies = [end = disk.events + run / 8](unsigned n) { return n >= end; };
    filled = mirrored.opens();
    disk.dies = {};
    disk.fate_of_dirty = [&] {
      return rng.one_in(2) ? CachedDisk::Fate::landed : CachedDisk::Fate::missing;
    };
    disk.lose_power();
    if (mirrored.alone(3).empty()) continue;
    ++damaged;
    if (says_that_it_is_filled(disk)) return fmt::format("nothing tells of it at step {}", run / 8);
  }
  return damaged > 0 ? "" : "nothing is written over";
}

// Also where nothing else changed, and after changes that came to nothing.
std::string mirror_that_was_added_is_needed() {
  for (const bool discards : {false, true}) {
    const Mirrored mirrored;
    {
      Shelf shelf = mirrored.open();
      if (discards) {
        shelf.find("a")->write(stamped(kMirroredBytes, 3));
        shelf.discard();
      }
      shelf.persist();
    }
    try {
      Shelf::open(std::make_unique<CachedMedium>(mirrored.first), {.mode = Mode::update});
      return "a shelf is opened without its mirror, which then lacks what is committed";
    } catch (const Error& error) {
      if (error.code() != Errc::medium_missing) throw;
    }
  }
  return "";
}

// Though an older version, which is retained, names it.
std::string mirror_that_was_given_up_is_not_needed() {
  const Mirrored mirrored(1);
  mirrored.commit(3);
  const auto alone = [&](std::vector<unsigned> without) {
    return Shelf::open(std::make_unique<CachedMedium>(mirrored.first),
                       {.mode = Mode::update, .without = std::move(without)});
  };
  alone({1}).persist(4);
  try {
    const Shelf shelf = alone({});
    return shelf.versions().size() == 2 ? "" : "an older version is gone with its mirror";
  } catch (const Error& error) {
    if (error.code() != Errc::medium_missing) throw;
    return error.what();
  }
}

// Its writer knows nothing of who opens it by itself, and would write over what is held there.
std::string mirror_by_itself_is_not_held() {
  const Mirrored mirrored;
  mirrored.commit(3);
  const Shelf alone =
      Shelf::open(std::make_unique<CachedMedium>(mirrored.mirror), {.mode = Mode::read});
  try {
    alone.pin();
    return "a version is held where nobody sees it";
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    return "";
  }
}

// Its end is lost behind the roots, as by a copy that was interrupted.
std::string mirror_that_was_cut_short_is_filled() {
  const Mirrored mirrored;
  mirrored.commit(3);
  CachedDisk& disk = *mirrored.mirror;
  disk.visible.resize(format::kMirrorAt + format::kHeapAt);
  disk.durable = disk.visible;
  mirrored.open();
  return mirrored.alone(3);
}

// The mirror is an older copy by the time that what is prepared is committed, without writing more.
std::string what_is_prepared_is_filled_in() {
  const Mirrored mirrored;
  mirrored.commit(3);
  const Bytes older = mirrored.mirror->visible;
  {
    Shelf shelf = mirrored.open();
    shelf.find("a")->write(stamped(kMirroredBytes, 4));
    shelf.prepare(4, "4");
  }
  mirrored.mirror->become(older);
  mirrored.open().resolve(Decision::commit);
  return mirrored.alone(4);
}

namespace {

// On the first, while the mirror does not say that it is in step: else it serves.
void lose(const Mirrored& mirrored, std::uint64_t version) {
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    flip(*mirrored.first, format::root_at(static_cast<unsigned>(version % 2), copy) + 100);
    flip(*mirrored.mirror, format::kMirrorAt + format::incarnation_at(copy) + 8);
  }
}

// The first version that names the mirror is lost on the first.
std::string mirror_that_the_opened_version_does_not_name() {
  const Mirrored mirrored;
  mirrored.commit(3);
  lose(mirrored, 3);
  if (mirrored.open().version() != 2) return "nothing was lost of the first medium";
  return mirrored.alone(3);
}

}  // namespace

// The first medium comes from an old copy, however old it is, or is damaged; the mirror has what is
// lost.
std::string newer_mirror_is_not_written_over() {
  const Mirrored mirrored;
  CachedDisk& first = *mirrored.first;
  std::vector<Bytes> olders = {first.visible};  // the mirror was none of its yet
  mirrored.open();                              // nor is it by this
  olders.push_back(first.visible);
  for (std::uint64_t serial = 3; serial < 9; ++serial) {
    mirrored.commit(serial);
    olders.push_back(first.visible);
  }
  const Bytes newer = first.visible;
  olders.pop_back();
  for (const Bytes& older : olders) {
    first.become(older);
    if (!mirrored.is_refused()) return "an older copy of the first medium passes for it";
    if (!mirrored.is_refused(Mode::read)) return "an older copy is shown beside a newer mirror";
    if (const std::string problem = mirrored.alone(8); !problem.empty()) return problem;
  }
  first.visible = newer;
  const std::uint64_t version = mirrored.open().version();
  lose(mirrored, version);
  if (mirrored.open().version() != version - 1) return "nothing was lost of the first medium";
  if (const std::string problem = mirrored.alone(8); !problem.empty()) return problem;
  // What was lost is wiped by now, and nothing tells of it but the mirror.
  if (!mirrored.is_refused()) return "the mirror of a medium that was damaged is taken again";
  if (const std::string problem = mirrored.alone(8); !problem.empty()) return problem;
  return mirror_that_the_opened_version_does_not_name();
}

namespace {

// Version 3 is flipped on the new mirror alone; `seen`: or in part of its reads. The opening after
// that dies at each step.
std::string torn_flip(Mirrored& mirrored, bool seen) {
  const auto [first, mirror] = std::pair(mirrored.first, mirrored.mirror);
  const Bytes images[] = {first->visible, mirror->visible};
  constexpr std::uint64_t kHome = 3 % 2;
  bool opened = false;
  for (unsigned more = 0; !opened; ++more) {
    first->become(images[0]);
    mirror->become(images[1]);
    std::array<Bytes, format::kCopies> unread;  // what is there, and shows the described root first
    for (unsigned copy = 0; copy < format::kCopies && !seen; ++copy) {
      const std::uint64_t at = format::root_at(kHome, copy);
      const auto there =
          mirror->visible.begin() + static_cast<std::ptrdiff_t>(format::kMirrorAt + at);
      unread[copy].assign(there, there + kPageBytes);
      std::copy_n(images[0].begin() + static_cast<std::ptrdiff_t>(at), kPageBytes, there);
    }
    mirror->durable = mirror->visible;
    const Bytes shown = mirror->visible;
    opened = mirrored.opens_before_death(more);
    for (unsigned copy = 0; copy < format::kCopies && !seen; ++copy) {
      const auto at = static_cast<std::ptrdiff_t>(format::kMirrorAt + format::root_at(kHome, copy));
      const auto there = mirror->visible.begin() + at;
      // (What was written since is read as it was written.)
      if (opened || !std::equal(there, there + kPageBytes, shown.begin() + at)) continue;
      std::ranges::copy(unread[copy], there);
    }
    mirror->durable = mirror->visible;
    try {
      if (mirrored.open().step() != 2) return "a version that nobody was told of is shown";
    } catch (const Error& error) {
      return fmt::format("at event {} of an opening: {}", more, error.what());
    }
    if (const std::string problem = mirrored.alone(2); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace

// A new mirror alone has a flip: of which nobody was told, so the first goes on without it, and the
// mirror is filled, wherever the opening that does so dies, and whether it saw the flip or not.
std::string torn_flip_of_a_new_mirror_goes() {
  unsigned torn = 0;
  for (unsigned step = 0;; ++step) {
    Mirrored mirrored;
    CachedDisk& first = *mirrored.first;
    CachedDisk& mirror = *mirrored.mirror;
    first.fate_of_dirty = [] { return CachedDisk::Fate::missing; };
    mirror.fate_of_dirty = [] { return CachedDisk::Fate::landed; };
    first.dies = [end = first.events + step](unsigned n) { return n >= end; };
    bool committed = false;
    try {
      mirrored.commit(3);
      committed = true;
    } catch (const Error& error) {
      if (error.code() != Errc::io && error.code() != Errc::failed) throw;
    }
    if (committed) return torn > 0 ? "" : "no flip was torn";
    first.dies = {};
    mirrored.lose_power();
    if (!mirrored.alone(3).empty()) continue;
    ++torn;
    const Bytes images[] = {first.visible, mirror.visible};
    for (const bool seen : {true, false}) {
      first.become(images[0]);
      mirror.become(images[1]);
      if (const std::string problem = torn_flip(mirrored, seen); !problem.empty()) return problem;
    }
  }
}

// Both copies of the newest root, or of a page that it stands on, are damaged on the first, and
// what is mended dies at each step, also behind a flush that failed: the mirror has it, and nothing
// is lost.
std::string damaged_metadata_is_read_from_the_mirror() {
  const Mirrored mirrored;
  for (std::uint64_t serial = 3; serial < 6; ++serial) mirrored.commit(serial);
  CachedDisk& first = *mirrored.first;
  CachedDisk& mirror = *mirrored.mirror;
  const Bytes whole = first.visible;
  const Bytes mirrored_whole = mirror.visible;
  std::vector<std::array<std::uint64_t, 2>> pairs = {
      {format::root_at(1, 0), format::root_at(1, 1)}};
  const Survey there = survey(whole);
  for (const Place& place : there.places) {
    const Place* const other = there.other_copy(place);
    if (place.at < format::kHeapAt || other == nullptr || other->at < place.at) continue;
    pairs.push_back({place.at, other->at});
  }
  if (pairs.size() < 3) return "a version stands on no pages";
  for (std::size_t run = 0; run < 8 * pairs.size(); ++run) {
    Rng rng(run);
    const bool after_failure = run / pairs.size() % 2 == 1;
    const bool apart = run / pairs.size() % 4 < 2 && run % pairs.size() != 0;  // so it is filled
    bool opened = false;
    for (unsigned step = 0; !opened; ++step) {
      first.visible = whole;
      for (const std::uint64_t at : pairs[run % pairs.size()])
        first.visible[at + 200] ^= std::byte{4};
      first.durable = first.visible;
      mirror.visible = mirrored_whole;
      if (apart) mirror.visible[format::kMirrorAt + format::root_at(1, 1) + 300] ^= std::byte{1};
      mirror.durable = mirror.visible;
      const auto fate = [&] { return static_cast<CachedDisk::Fate>(rng.below(3)); };
      first.fate_of_dirty = mirror.fate_of_dirty = fate;
      if (after_failure) {  // what the opening before this one wrote may be in a cache alone
        first.barrier_fails = [failing = first.barriers + rng.below(4)](unsigned n) {
          return n == failing;
        };
        mirrored.opens();
        first.barrier_fails = {};
      }
      opened = mirrored.opens_before_death(step);
      if (mirrored.open().step() != 5) return fmt::format("lost at event {} of an opening", step);
      if (const std::string problem = mirrored.alone(5); !problem.empty()) return problem;
    }
    mirrored.open();  // mends the second copies
    if (!survey(first.visible).damage.empty()) return survey(first.visible).damage;
  }
  return "";
}

}  // namespace tensorshelf::crash
