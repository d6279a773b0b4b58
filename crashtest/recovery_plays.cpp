#include "recovery_plays.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <tensorshelf/repair.hpp>

#include "cached_play.hpp"
#include "model.hpp"
#include "tests/raw_pages.hpp"

namespace tensorshelf::crash {
namespace {

// At version 2, of which no page below the root can be read, beside a version 1 whose one value was
// overwritten: no open takes it, a repair takes version 1.
CachedPlay without_manifest() {
  CachedPlay play;
  {
    Shelf shelf = play.open();
    CachedPlay::commit(shelf, 2);
    shelf.find("a")->write(value(3));
  }
  CachedMedium medium(play.disk);
  const auto second = format::load<format::Root>(raw_at(medium, format::root_at(0, 0)));
  for (const std::uint64_t at : second.pages[0].at) play.disk->unreadable[at] = EIO;
  return play;
}

RepairReport mend(const CachedPlay& play) {
  return repair(std::make_unique<CachedMedium>(play.disk));
}

std::string version_is(const CachedPlay& play, std::uint64_t version) {
  const std::uint64_t there = play.open(Mode::read).info().version;
  return there == version ? "" : "another version is opened than the one that was repaired to";
}

}  // namespace

// Both copies of the newest root cannot be read for a moment, in which somebody opens it to write.
std::string version_out_of_sight_is_kept() {
  CachedPlay play;
  {
    Shelf shelf = play.open();
    CachedPlay::commit(shelf, 2);
  }
  play.disk->unreadable = {{format::root_at(0, 0), EIO}, {format::root_at(0, 1), EIO}};
  try {
    Shelf shelf = play.open();
    shelf.find("a")->write(value(7));
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
  }
  play.disk->unreadable = {};
  return play.shows(2);
}

// The flush after the flip fails, the next opener sees the version, and its own commit is cut off.
std::string accepted_version_is_made_durable() {
  CachedPlay play;
  {
    Shelf shelf = play.open();
    play.disk->barrier_fails = [flip = play.disk->barriers + 1](unsigned n) { return n == flip; };
    fails([&] { CachedPlay::commit(shelf, 2); });
  }
  {
    Shelf shelf = play.open();
    if (shelf.info().version != 2) return "what can be read is not what is opened";
    play.disk->barrier_fails = [](unsigned) { return true; };
    fails([&] { CachedPlay::commit(shelf, 3); });
  }
  play.disk->lose_power();
  return play.shows(2);
}

// An open fails at its flush; the next one is cut off after each of its steps. No copy of the
// incarnation may be under way while the other is on no device.
std::string incarnation_is_made_durable() {
  for (unsigned dying = 0;; ++dying) {
    CachedPlay play;
    CachedDisk& disk = *play.disk;
    disk.fate_of_dirty = [] { return CachedDisk::Fate::garbage; };
    disk.barrier_fails = [](unsigned) { return true; };
    fails([&] { play.open(); });
    disk.barrier_fails = {};
    const bool opened = opens_before_death(play, dying);
    play.open();  // for writing, or throws
    if (opened) return play.shows(1);
  }
}

std::string formatting_is_made_durable() {
  CachedPlay play;
  play.disk->barrier_fails = [last = play.disk->barriers + 2](unsigned n) { return n == last; };
  fails([&] { play.format(); });
  play.make_first();
  play.disk->lose_power();
  return play.shows(1);
}

// A page at a time; those of the tensor itself have no copy.
std::string one_unreadable_copy_is_no_loss() {
  const CachedPlay whole;
  for (std::uint64_t at = 0; at < whole.disk->visible.size(); at += kPageBytes) {
    const CachedPlay play(std::make_shared<CachedDisk>(*whole.disk));
    play.disk->unreadable = {{at, EIO}};
    play.open(Mode::read);
    play.open();
  }
  return {};
}

// Two writers, and no lock between them.
std::string older_writer_is_refused() {
  CachedPlay play;
  Shelf older = play.open();
  older.find("a")->write(value(7));
  Shelf newer = play.open();
  CachedPlay::commit(newer, 2);
  try {
    older.persist(7);
    return "an older writer flipped over a newer one";
  } catch (const Error& error) {
    if (error.code() != Errc::busy) throw;
  }
  return play.shows(2);
}

// A writer drops what it began; when it begins anew, another has the shelf.
std::string older_writer_looks_again() {
  CachedPlay play;
  Shelf older = play.open();
  older.find("a")->write(value(7));
  older.discard();
  Shelf newer = play.open();
  CachedPlay::commit(newer, 2);
  try {
    older.find("a")->write(value(8));
    return "an older writer wrote where a newer one may have its version";
  } catch (const Error& error) {
    if (error.code() != Errc::busy) throw;
  }
  return play.shows(2);
}

// The newest version, in the home of version 0, has lost its word in both copies; or in one of them
// the bit alone that made it version 2.
std::string lost_word_is_a_loss() {
  for (const bool all : {true, false}) {
    CachedPlay play;
    {
      Shelf shelf = play.open();
      CachedPlay::commit(shelf, 2);
    }
    for (Bytes* bytes : {&play.disk->visible, &play.disk->durable}) {
      for (unsigned copy = 0; copy < format::kCopies; ++copy) {
        std::byte* const root = bytes->data() + format::root_at(0, copy);
        std::uint64_t word = 0;
        std::memcpy(&word, root, sizeof word);
        word = all || copy == 1 ? 0 : word ^ 2;
        std::memcpy(root, &word, sizeof word);
      }
    }
    const auto recovery = play.open(Mode::read).info().recovery;
    if (!recovery.degraded) return "an acknowledged version is lost without a word";
  }
  return {};
}

// Version 2 is lost with a page of its own. One of those that it shares with version 1 is damaged
// in one copy, which is found while version 2 is looked at.
std::string bad_copy_of_a_shared_page_is_mended() {
  const CachedPlay play;
  {
    Shelf shelf = play.open();
    CachedPlay::commit(shelf, 2);
  }
  CachedMedium medium(play.disk);
  const auto second = format::load<format::Root>(raw_at(medium, format::root_at(0, 0)));
  format::PageRef shared = {};
  for (unsigned leaf = 0; leaf < second.leaf_count; ++leaf) {
    const format::PageRef& ref = second.pages[leaf];
    if (format::page_head(page_at(medium, ref.at[0])).kind == format::PageKind::records)
      shared = ref;
    if (format::page_head(page_at(medium, ref.at[0])).kind != format::PageKind::cells) continue;
    for (const std::uint64_t at : ref.at) spoil(*play.disk, at);
  }
  spoil(*play.disk, shared.at[0]);
  if (play.open().info().version != 1) return "a version without its cells is opened";
  spoil(*play.disk, shared.at[1]);
  return play.shows(1);
}

// A reader of version 1 looks twice at the roots to learn whether it was overtaken. Between the two
// homes of its second look two commits pass: in each home it sees a body under the word before it,
// though all words are those of the first look.
std::string overtaken_reader_is_stale() {
  CachedPlay play;
  CachedPlay beside(
      std::make_shared<CachedDisk>(*play.disk));  // what the reader sees, as time passes
  const Shelf reader = beside.open(Mode::read);
  Shelf writer = play.open();
  const auto described = [&](std::uint64_t serial) {  // the disk as it is before the flip
    Bytes image;
    play.disk->barrier_fails = [&](unsigned) {
      if (image.empty()) image = play.disk->visible;
      return false;
    };
    CachedPlay::commit(writer, serial);
    play.disk->barrier_fails = {};
    return image;
  };
  CachedPlay::commit(writer, 2);
  CachedPlay::commit(writer, 3);  // over the bytes of version 1
  const Bytes before = play.disk->visible;
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

// One read of all homes has one of them as it was two commits ago, and the others as they are.
std::string early_look_costs_no_version() {
  CachedPlay play(std::make_shared<CachedDisk>());
  CachedMedium medium(play.disk);
  Shelf::format(medium, {.keep = 3});
  play.make_first();
  Shelf writer = play.open();
  Shelf reader = play.open(Mode::read);
  CachedPlay::commit(writer, 2);
  const Bytes before = play.disk->visible;
  CachedPlay::commit(writer, 3);
  CachedPlay::commit(writer, 4);
  const Bytes now = play.disk->visible;
  const auto set_home = [&](const Bytes& from) {
    for (unsigned copy = 0; copy < format::kCopies; ++copy) {
      const auto at = static_cast<std::ptrdiff_t>(format::root_at(3, copy));
      std::copy_n(from.begin() + at, kPageBytes, play.disk->visible.begin() + at);
    }
  };
  bool looked = false;
  play.disk->on_read = [&](std::uint64_t at) {
    if (at == format::root_at(0, 0) && !std::exchange(looked, true)) set_home(before);
    if (at >= format::kHeapAt) set_home(now);
    return true;
  };
  if (!reader.refresh() || reader.version() != 4) return "a reader does not go on";
  play.disk->on_read = {};
  if (reader.versions().size() != 4) return "a reader lacks versions that are retained";
  return {};
}

// A reader that verifies all it goes on to has handles of a tensor that lies elsewhere by then.
std::string moved_chunks_are_no_damage() {
  CachedPlay play(std::make_shared<CachedDisk>());
  play.format();
  Shelf writer = play.open();
  writer.create("pad", DType::uint8, std::array<std::int64_t, 1>{300'000});
  writer.persist(1);  // what comes next lies behind it
  writer.create("a", DType::uint8, std::array<std::int64_t, 1>{kSize});
  CachedPlay::commit(writer, 2);
  Shelf reader = Shelf::open(std::make_unique<CachedMedium>(play.disk),
                             {.mode = Mode::read, .verify = Verify::on_open});
  const TensorRef before = reader.find("a").value();
  writer.erase("pad");
  writer.persist(3);
  if (writer.compact().bytes_moved == 0) return "nothing lies elsewhere";
  if (!reader.refresh()) return "a reader does not go on";
  Bytes bytes(kSize);
  try {
    before.read(bytes);
  } catch (const Error& error) {
    if (error.code() != Errc::unknown_name) throw;
    return "a handle does not follow its tensor";
  }
  return bytes == value(2) ? "" : "another value is read";
}

// Sealed as its writer would have, and spanning more than there is: its room must not become that
// of the shelf.
std::string older_root_stays_within_the_medium() {
  CachedPlay play(std::make_shared<CachedDisk>());
  CachedMedium medium(play.disk);
  Shelf::format(medium, {.keep = 1});
  play.make_first();
  {
    Shelf writer = play.open();
    CachedPlay::commit(writer, 2);
  }
  constexpr unsigned kHomes = 3;
  const auto superblock = format::read_superblock(testing::raw_at(medium, 0), 0).superblock.value();
  const format::Seeds seeds(superblock.shelf_id);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const std::uint64_t at = format::root_at(1, copy);
    auto root = format::read_root(testing::raw_at(medium, at), seeds, {1, copy, kHomes}).value();
    root.capacity_bytes = std::uint64_t{1} << 40;
    format::seal_root(root, seeds, copy);
    medium.wait(medium.write(at, format::as_page(root).bytes(), 0));
  }
  medium.barrier();
  Shelf shelf = play.open();
  if (shelf.versions().size() != 1) return "a version is offered that spans more than there is";
  shelf.create("b", DType::uint8, std::array<std::int64_t, 1>{kSize});
  shelf.persist(3);
  return version_is(play, 3);
}

// What could not be read can be read again: by then its slots may belong to others.
std::string given_up_version_stays_so() {
  const CachedPlay play = without_manifest();
  if (!mend(play).repaired) return "a shelf that does not open was left as it was";
  play.disk->unreadable = {};
  return version_is(play, 1);
}

// The newest version is lost to damage, and somebody writes over its slots, but commits nothing.
// Then the damage heals itself.
std::string lost_version_stays_so() {
  CachedPlay play;
  {
    Shelf shelf = play.open();
    CachedPlay::commit(shelf, 2);
  }
  const Bytes whole = play.disk->visible;
  format::Root second;
  std::memcpy(&second, whole.data() + format::root_at(0, 0), sizeof second);
  for (const std::uint64_t at : second.pages[0].at) spoil(*play.disk, at);
  {
    Shelf shelf = play.open();
    if (!shelf.info().recovery.degraded) return "a version without a manifest is opened";
    shelf.find("a")->write(value(3));
  }
  for (Bytes* bytes : {&play.disk->visible, &play.disk->durable}) {
    for (const std::uint64_t at : second.pages[0].at) {
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(at), kPageBytes,
                  bytes->begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return version_is(play, 1);
}

// The numbers of a version that was lost, and of a tensor that it alone had, come again, and a
// reader that showed it goes on.
std::string what_comes_after_a_lost_version_is_another() {
  const auto disk = std::make_shared<testing::CachedDisk>();
  const auto open = [&](Mode mode) {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
  };
  CachedMedium medium(disk);
  Shelf::format(medium, {.keep = 1});
  open(Mode::update).persist();
  const auto made = [&](Shelf& shelf, const char* name, std::uint64_t serial) {
    const Bytes bytes = stamped(700, serial);
    shelf.create(name, DType::uint8, std::array<std::int64_t, 1>{700}).write(bytes);
    shelf.persist();
  };
  {
    Shelf shelf = open(Mode::update);
    made(shelf, "lost", 1);
  }
  Shelf reader = open(Mode::read);
  const TensorRef lost = reader.find("lost").value();
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    testing::write_raw(medium, format::root_at(format::home_of(2, 3), copy),
                       testing::page_of(std::byte{0x5A}));
  }
  Shelf writer = open(Mode::update);
  made(writer, "new", 2);
  for (int i = 0; i < 2; ++i) writer.persist();
  reader.refresh();
  try {
    Bytes bytes(700);
    lost.read(bytes);
    return "a handle shows another tensor's bytes";
  } catch (const Error& error) {
    if (error.code() != Errc::unknown_name) throw;
  }
  return {};
}

// Both records of a writer's number are lost while it is at work, and no root has it.
std::string repair_gives_a_new_number() {
  const CachedPlay play;
  for (int i = 0; i < 3; ++i) play.open();
  Shelf older = play.open();
  older.find("a")->write(value(7));
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    spoil(*play.disk, format::incarnation_at(copy));
  }
  mend(play);
  Shelf newer = play.open();
  CachedPlay::commit(newer, 2);
  try {
    older.persist(7);
    return "a writer whose number was lost flipped over a newer one";
  } catch (const Error& error) {
    if (error.code() != Errc::busy) throw;
  }
  return play.shows(2);
}

// The last flush of a repair fails, and what it wrote can be read: the next to open makes it
// durable.
std::string repair_is_made_durable() {
  for (unsigned failing = 0;; ++failing) {
    const CachedPlay play = without_manifest();
    bool failed = false;
    play.disk->barrier_fails = [&, at = play.disk->barriers + failing](unsigned n) {
      failed = failed || n == at;
      return n == at;
    };
    try {
      mend(play);
    } catch (const Error& error) {
      if (error.code() != Errc::io) throw;
    }
    play.disk->barrier_fails = {};
    try {
      play.open();
      play.disk->lose_power();
      if (auto wrong = version_is(play, 1); !wrong.empty()) return wrong;
    } catch (const Error& error) {  // as it was before
      if (error.code() != Errc::corrupt) throw;
      if (failing > 0) return "what was repaired, and opened, is lost with the power";
    }
    if (!failed) return {};
  }
}

// Version 1 is given up, in whose home none was before it; the last flush, of the wipe, fails. The
// next open sees the wipe and writes over what version 1 names; then the power goes, and the pages
// that could not be read are back.
std::string repair_of_the_first_version_is_made_durable() {
  const CachedPlay play;
  CachedDisk& disk = *play.disk;
  format::Root first;
  std::memcpy(&first, disk.visible.data() + format::root_at(1, 0), sizeof first);
  for (const std::uint64_t at : first.pages[0].at) disk.unreadable[at] = EIO;
  const CachedPlay twin(std::make_shared<CachedDisk>(disk));
  mend(twin);
  disk.barrier_fails = [last = twin.disk->barriers - 1](unsigned n) { return n == last; };
  fails([&] { mend(play); });
  disk.barrier_fails = {};
  {
    Shelf shelf = play.open();
    shelf.create("a", DType::uint8, std::array<std::int64_t, 1>{kSize}).write(value(7));
    disk.dies = [](unsigned) { return true; };
  }
  disk.dies = {};
  disk.fate_of_dirty = [] { return CachedDisk::Fate::landed; };
  disk.lose_power();
  disk.unreadable = {};
  return version_is(play, 0);
}

// There is a doubt whether version 3 was lost, and one chunk of version 2 cannot be read for a
// moment, in which somebody opens the shelf to write.
std::string chunk_out_of_sight_costs_no_version() {
  const CachedPlay play(std::make_shared<CachedDisk>());
  CachedDisk& disk = *play.disk;
  {
    CachedMedium medium(play.disk);
    Shelf::format(medium, {.keep = 1});
  }
  CachedPlay(play).make_first();
  {
    Shelf shelf = play.open();
    CachedPlay::commit(shelf, 2);
  }
  const Bytes second = value(2);
  const auto there = std::search(disk.visible.begin(), disk.visible.end(), second.begin(),
                                 second.begin() + kPageBytes);
  for (Bytes* bytes : {&disk.visible, &disk.durable}) {  // torn under the old word
    std::fill_n(bytes->begin() + format::root_at(0, 0) + 512, kPageBytes - 512, std::byte{0x11});
  }
  spoil(disk, format::root_at(0, 1));
  disk.unreadable[static_cast<std::uint64_t>(there - disk.visible.begin())] = EIO;
  try {
    Shelf shelf = play.open();
    shelf.find("a")->write(value(7));
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
  }
  disk.unreadable = {};
  return play.shows(2);
}

}  // namespace tensorshelf::crash
