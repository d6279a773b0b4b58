#include "recovery_plays.hpp"

#include <algorithm>
#include <cstring>

#include <tensorshelf/repair.hpp>

#include "cached_stage.hpp"

namespace tensorshelf::crash {
namespace {

// At version 2, of which no page below the root can be read, beside a version 1 whose one value was
// overwritten: no open takes it, a repair takes version 1.
Stage without_manifest() {
  Stage stage;
  {
    Shelf shelf = stage.open();
    Stage::commit(shelf, 2);
    shelf.find("a")->write(value(3));
  }
  format::Page root;
  std::copy_n(stage.disk->visible.begin() + static_cast<std::ptrdiff_t>(format::root_at(0, 0)),
              kPageBytes, root.bytes.begin());
  format::Root second;
  std::memcpy(&second, root.bytes.data(), sizeof second);
  for (const std::uint64_t at : second.pages[0].at) stage.disk->unreadable[at] = EIO;
  return stage;
}

RepairReport mend(const Stage& stage) { return repair(std::make_unique<CachedMedium>(stage.disk)); }

std::string version_is(const Stage& stage, std::uint64_t version) {
  const std::uint64_t there = stage.open(Mode::read).info().version;
  return there == version ? "" : "another version is opened than the one that was repaired to";
}

}  // namespace

// Both copies of the newest root cannot be read for a moment, in which somebody opens it to write.
std::string version_out_of_sight_is_kept() {
  Stage stage;
  {
    Shelf shelf = stage.open();
    Stage::commit(shelf, 2);
  }
  stage.disk->unreadable = {{format::root_at(0, 0), EIO}, {format::root_at(0, 1), EIO}};
  try {
    Shelf shelf = stage.open();
    shelf.find("a")->write(value(7));
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
  }
  stage.disk->unreadable = {};
  return stage.shows(2);
}

// The flush after the flip fails, the next opener sees the version, and its own commit is cut off.
std::string accepted_version_is_made_durable() {
  Stage stage;
  {
    Shelf shelf = stage.open();
    stage.disk->barrier_fails = [flip = stage.disk->barriers + 1](unsigned n) { return n == flip; };
    fails([&] { Stage::commit(shelf, 2); });
  }
  {
    Shelf shelf = stage.open();
    if (shelf.info().version != 2) return "what can be read is not what is opened";
    stage.disk->barrier_fails = [](unsigned) { return true; };
    fails([&] { Stage::commit(shelf, 3); });
  }
  stage.disk->lose_power();
  return stage.shows(2);
}

// An open fails at its flush; the next one is cut off after each of its steps. No copy of the
// incarnation may be under way while the other is on no device.
std::string incarnation_is_made_durable() {
  for (unsigned dying = 0;; ++dying) {
    Stage stage;
    CachedDisk& disk = *stage.disk;
    disk.fate_of_dirty = [] { return CachedDisk::Fate::garbage; };
    disk.barrier_fails = [](unsigned) { return true; };
    fails([&] { stage.open(); });
    disk.barrier_fails = {};
    const bool opened = opens_before_death(stage, dying);
    stage.open();  // for writing, or throws
    if (opened) return stage.shows(1);
  }
}

std::string formatting_is_made_durable() {
  Stage stage;
  stage.disk->barrier_fails = [last = stage.disk->barriers + 2](unsigned n) { return n == last; };
  fails([&] { stage.format(); });
  stage.make_first();
  stage.disk->lose_power();
  return stage.shows(1);
}

// A page at a time; those of the tensor itself have no copy.
std::string one_unreadable_copy_is_no_loss() {
  const Stage whole;
  for (std::uint64_t at = 0; at < whole.disk->visible.size(); at += kPageBytes) {
    const Stage stage(std::make_shared<CachedDisk>(*whole.disk));
    stage.disk->unreadable = {{at, EIO}};
    stage.open(Mode::read);
    stage.open();
  }
  return {};
}

// Two writers, and no lock between them.
std::string older_writer_is_refused() {
  Stage stage;
  Shelf older = stage.open();
  older.find("a")->write(value(7));
  Shelf newer = stage.open();
  Stage::commit(newer, 2);
  try {
    older.persist(7);
    return "an older writer flipped over a newer one";
  } catch (const Error& error) {
    if (error.code() != Errc::busy) throw;
  }
  return stage.shows(2);
}

// A writer drops what it began; when it begins anew, another has the shelf.
std::string older_writer_looks_again() {
  Stage stage;
  Shelf older = stage.open();
  older.find("a")->write(value(7));
  older.discard();
  Shelf newer = stage.open();
  Stage::commit(newer, 2);
  try {
    older.find("a")->write(value(8));
    return "an older writer wrote where a newer one may have its version";
  } catch (const Error& error) {
    if (error.code() != Errc::busy) throw;
  }
  return stage.shows(2);
}

// The newest version, in the home of version 0, has lost its word in both copies; or in one of them
// the bit alone that made it version 2.
std::string lost_word_is_a_loss() {
  for (const bool all : {true, false}) {
    Stage stage;
    {
      Shelf shelf = stage.open();
      Stage::commit(shelf, 2);
    }
    for (Bytes* bytes : {&stage.disk->visible, &stage.disk->durable}) {
      for (unsigned copy = 0; copy < format::kCopies; ++copy) {
        std::byte* const root = bytes->data() + format::root_at(0, copy);
        std::uint64_t word = 0;
        std::memcpy(&word, root, sizeof word);
        word = all || copy == 1 ? 0 : word ^ 2;
        std::memcpy(root, &word, sizeof word);
      }
    }
    const auto recovery = stage.open(Mode::read).info().recovery;
    if (!recovery.degraded) return "an acknowledged version is lost without a word";
  }
  return {};
}

// Version 2 is lost with a page of its own. One of those that it shares with version 1 is damaged
// in one copy, which is found while version 2 is looked at.
std::string bad_copy_of_a_shared_page_is_mended() {
  const Stage stage;
  {
    Shelf shelf = stage.open();
    Stage::commit(shelf, 2);
  }
  const auto page_at = [&](std::uint64_t at) {
    format::Page page;
    CachedMedium(stage.disk).read(at, page.bytes);
    return page;
  };
  format::Root second;
  std::memcpy(&second, page_at(format::root_at(0, 0)).bytes.data(), sizeof second);
  const format::Page directory = page_at(second.pages[0].at[0]);
  format::PageRef shared = {};
  for (unsigned leaf = 0; leaf < second.leaf_count; ++leaf) {
    const format::PageRef ref = format::directory_ref(directory, leaf);
    if (format::page_head(page_at(ref.at[0])).kind == format::PageKind::records) shared = ref;
    if (format::page_head(page_at(ref.at[0])).kind != format::PageKind::cells) continue;
    for (const std::uint64_t at : ref.at) spoil(*stage.disk, at);
  }
  spoil(*stage.disk, shared.at[0]);
  if (stage.open().info().version != 1) return "a version without its cells is opened";
  spoil(*stage.disk, shared.at[1]);
  return stage.shows(1);
}

// A reader of version 1 looks twice at the roots to learn whether it was overtaken. Between the two
// homes of its second look two commits pass: in each home it sees a body under the word before it,
// though all words are those of the first look.
std::string overtaken_reader_is_stale() {
  Stage stage;
  Stage beside(std::make_shared<CachedDisk>(*stage.disk));  // what the reader sees, as time passes
  const Shelf reader = beside.open(Mode::read);
  Shelf writer = stage.open();
  const auto described = [&](std::uint64_t serial) {  // the disk as it is before the flip
    Bytes image;
    stage.disk->barrier_fails = [&](unsigned) {
      if (image.empty()) image = stage.disk->visible;
      return false;
    };
    Stage::commit(writer, serial);
    stage.disk->barrier_fails = {};
    return image;
  };
  Stage::commit(writer, 2);
  Stage::commit(writer, 3);  // over the bytes of version 1
  const Bytes before = stage.disk->visible;
  const Bytes fourth = described(4);
  const Bytes fifth = described(5);
  unsigned roots_read = 0;
  beside.disk->visible = before;
  beside.disk->on_read = [&](std::uint64_t at) {
    for (unsigned home = 0; home < format::kMinSlots; ++home) {
      for (unsigned copy = 0; copy < format::kCopies; ++copy) {
        if (at != format::root_at(home, copy)) continue;
        if (++roots_read > format::kMinSlots * format::kCopies) {
          beside.disk->visible = home == 0 ? fourth : fifth;
        }
      }
    }
    return true;
  };
  try {
    Bytes bytes(kSize);
    reader.find("a").value().read(bytes);
    return "an overtaken reader read on";
  } catch (const Error& error) {
    if (error.code() != Errc::stale) throw;
  }
  return {};
}

// What could not be read can be read again: by then its slots may belong to others.
std::string given_up_version_stays_so() {
  const Stage stage = without_manifest();
  if (!mend(stage).repaired) return "a shelf that does not open was left as it was";
  stage.disk->unreadable = {};
  return version_is(stage, 1);
}

// The newest version is lost to damage, and somebody writes over its slots, but commits nothing.
// Then the damage heals itself.
std::string lost_version_stays_so() {
  Stage stage;
  {
    Shelf shelf = stage.open();
    Stage::commit(shelf, 2);
  }
  const Bytes whole = stage.disk->visible;
  format::Root second;
  std::memcpy(&second, whole.data() + format::root_at(0, 0), sizeof second);
  for (const std::uint64_t at : second.pages[0].at) spoil(*stage.disk, at);
  {
    Shelf shelf = stage.open();
    if (!shelf.info().recovery.degraded) return "a version without a manifest is opened";
    shelf.find("a")->write(value(3));
  }
  for (Bytes* bytes : {&stage.disk->visible, &stage.disk->durable}) {
    for (const std::uint64_t at : second.pages[0].at) {
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(at), kPageBytes,
                  bytes->begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return version_is(stage, 1);
}

// Both records of a writer's number are lost while it is at work, and no root has it.
std::string repair_gives_a_new_number() {
  const Stage stage;
  for (int i = 0; i < 3; ++i) stage.open();
  Shelf older = stage.open();
  older.find("a")->write(value(7));
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    spoil(*stage.disk, format::incarnation_at(copy));
  }
  mend(stage);
  Shelf newer = stage.open();
  Stage::commit(newer, 2);
  try {
    older.persist(7);
    return "a writer whose number was lost flipped over a newer one";
  } catch (const Error& error) {
    if (error.code() != Errc::busy) throw;
  }
  return stage.shows(2);
}

// The last flush of a repair fails, and what it wrote can be read: the next to open makes it
// durable.
std::string repair_is_made_durable() {
  for (unsigned failing = 0;; ++failing) {
    const Stage stage = without_manifest();
    bool failed = false;
    stage.disk->barrier_fails = [&, at = stage.disk->barriers + failing](unsigned n) {
      failed = failed || n == at;
      return n == at;
    };
    try {
      mend(stage);
    } catch (const Error& error) {
      if (error.code() != Errc::io) throw;
    }
    stage.disk->barrier_fails = {};
    try {
      stage.open();
      stage.disk->lose_power();
      if (auto wrong = version_is(stage, 1); !wrong.empty()) return wrong;
    } catch (const Error& error) {  // as it was before
      if (error.code() != Errc::corrupt) throw;
      if (failing > 0) return "what was repaired, and opened, is lost with the power";
    }
    if (!failed) return {};
  }
}

}  // namespace tensorshelf::crash
