// Recovery on media that lose and refuse: a page of which one copy cannot be read, a flush that
// failed whose pages stay visible, a rival that opened the shelf meanwhile, a writer that does not
// wait for its readers.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>

#include <tensorshelf/shelf.hpp>

#include "block_fixture.hpp"
#include "cached_disk.hpp"
#include "format/layout.hpp"
#include "store/io/unreadable.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

TensorRef make(Shelf& shelf, const char* name, std::uint64_t size) {
  return shelf.create(name, DType::uint8,
                      std::vector<std::int64_t>{static_cast<std::int64_t>(size)});
}

Bytes value(const Shelf& shelf, const char* name) {
  const TensorRef tensor = shelf.find(name).value();
  Bytes bytes(tensor.info().size_bytes);
  tensor.read(bytes);
  return bytes;
}

}  // namespace

TEST_CASE("which errors of a read speak of the place") {
  struct Row {
    Errc code;
    int os_error;
    bool unreadable;
  };
  //                            code           errno       unreadable
  const auto row = GENERATE(Row{Errc::io, EIO, true},        //
                            Row{Errc::io, ENODATA, true},    //
                            Row{Errc::io, EBADMSG, true},    //
                            Row{Errc::io, EUCLEAN, true},    //
                            Row{Errc::io, EILSEQ, true},     //
                            Row{Errc::io, EREMOTEIO, true},  //
                            Row{Errc::io, EHWPOISON, true},  //
                            Row{Errc::io, 0, true},          // a short read
                            Row{Errc::io, ENOMEM, false},    //
                            Row{Errc::io, EMFILE, false},    //
                            Row{Errc::io, EBADF, false},     //
                            Row{Errc::io, EINTR, false},     //
                            Row{Errc::corrupt, EIO, false},  //
                            Row{Errc::truncated, 0, false});
  CAPTURE(row.os_error);
  REQUIRE(is_unreadable(Error(row.code, "a read failed", "", row.os_error)) == row.unreadable);
}

// ---- visible is not durable (I12) ---------------------------------------------------------------

namespace {

constexpr std::size_t kBytes = 5000;

Bytes value_of(std::uint64_t step) { return pattern(kBytes, step); }

struct Cached {
  explicit Cached(CachedDisk with) : disk(std::make_shared<CachedDisk>(std::move(with))) {}
  Cached() {
    CachedMedium medium(disk);
    Shelf::format(medium);
    Shelf shelf = open();
    make(shelf, "w", kBytes).write(value_of(1));
    shelf.persist(1);
  }
  Shelf open(Mode mode = Mode::update) {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
  }
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
};

void commit(Shelf& shelf, std::uint64_t step) {
  shelf.find("w")->write(value_of(step));
  shelf.persist(step);
}

}  // namespace

TEST_CASE("a version whose flush failed, and which recovery accepts, is made durable") {
  Cached cached;
  {
    Shelf shelf = cached.open();
    const unsigned flip = cached.disk->barriers + 1;
    cached.disk->barrier_fails = [flip](unsigned n) { return n == flip; };
    REQUIRE(code_of([&] { commit(shelf, 2); }) == Errc::io);
  }
  {
    Shelf shelf = cached.open();  // as the remedy says
    REQUIRE(shelf.info().version == 2);
    cached.disk->barrier_fails = [n = 0](unsigned) mutable { return n++ == 0; };
    REQUIRE(code_of([&] { commit(shelf, 3); }) == Errc::io);  // over the home of version 1
  }
  cached.disk->lose_power();
  const Shelf shelf = cached.open(Mode::read);
  REQUIRE(shelf.info().version == 2);
  REQUIRE((value(shelf, "w") == value_of(2)));
}

TEST_CASE("a shelf whose formatting failed at its last flush, and which opens, is made durable") {
  Cached cached;
  cached.disk->barrier_fails = [first = cached.disk->barriers](unsigned n) {
    return n == first + 2;
  };
  CachedMedium medium(cached.disk);
  REQUIRE(code_of([&] { Shelf::format(medium); }) == Errc::io);
  {
    Shelf shelf = cached.open();
    make(shelf, "w", kBytes).write(value_of(1));
    shelf.persist(1);
  }
  cached.disk->lose_power();
  REQUIRE((value(cached.open(), "w") == value_of(1)));
}

// A script of opens and commits, in which one barrier fails, and the process dies at any event, and
// is followed by another; then the power goes. What was acknowledged is there, and opens for
// writing with an incarnation never given out.
TEST_CASE("any one barrier fails, and the power goes at any moment after") {
  const auto seed = Catch::rngSeed();
  const unsigned chance = GENERATE(range(0u, rounds(16u)));  // 0: nothing lands without a barrier
  CAPTURE(seed, chance);
  struct State {
    std::uint64_t acked = 1, begun = 1, incarnation = 0;
  };
  const auto play = [](Cached& cached, State& state) {  // false: it ended before its end
    try {
      for (int round = 0; round < 3; ++round) {
        Shelf shelf = cached.open();
        state.incarnation = shelf.info().incarnation;
        const std::uint64_t next = shelf.info().version + 1;
        state.acked = next - 1;
        if (round == 1) continue;  // opened, and nothing done
        state.begun = next;
        commit(shelf, next);
        state.acked = next;
      }
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::io) throw;
      return false;
    }
  };
  for (unsigned failing = 0;; ++failing) {
    bool met = false;
    for (unsigned dying = 0;; ++dying) {
      CAPTURE(failing, dying);
      Cached cached;
      CachedDisk& disk = *cached.disk;
      std::mt19937_64 random(seed + chance + 1000 * failing + 100'000 * dying);
      if (chance != 0)
        disk.fate_of_dirty = [&] { return static_cast<CachedDisk::Fate>(random() % 3); };
      const unsigned first_barrier = disk.barriers;
      disk.barrier_fails = [&, first_barrier](unsigned n) {
        met = met || n == first_barrier + failing;
        return n == first_barrier + failing;
      };
      const unsigned first_event = disk.events;
      disk.dies = [=](unsigned n) { return n == first_event + dying; };
      State state;
      bool whole = play(cached, state);
      if (!whole) whole = play(cached, state);
      const bool died = disk.events > first_event + dying;
      disk.dies = {};
      disk.barrier_fails = {};
      disk.lose_power();
      const Shelf shelf = cached.open();
      const std::uint64_t version = shelf.info().version;
      CAPTURE(version, state.acked, state.begun);
      REQUIRE(version >= state.acked);
      REQUIRE(version <= state.begun);
      REQUIRE((value(shelf, "w") == value_of(version)));
      REQUIRE(shelf.info().incarnation > state.incarnation);
      if (!died) break;
    }
    if (!met) break;
  }
}

// ---- one unreadable copy is a bad copy ----------------------------------------------------------

namespace {

// Some tensors of no size: all that the shelf has is metadata.
Cached metadata_alone(unsigned tensors) {
  Cached cached{CachedDisk{}};
  CachedMedium medium(cached.disk);
  Shelf::format(medium);
  for (unsigned round = 0; round < 2; ++round) {
    Shelf shelf = cached.open();
    for (unsigned i = 0; i < tensors; ++i) make(shelf, fmt::format("{} {}", round, i).c_str(), 0);
    shelf.persist(round);
  }
  return cached;
}

}  // namespace

TEST_CASE("each page that cannot be read costs nothing, and is written anew") {
  const int cause = GENERATE(EIO, ENODATA, EBADMSG, 0);
  const unsigned tensors = GENERATE(1u, 100u);  // in one records page, or several side by side
  const Cached whole = metadata_alone(tensors);
  for (std::uint64_t at = 0; at < whole.disk->visible.size(); at += kPageBytes) {
    CAPTURE(at, cause, tensors);
    Cached cached{*whole.disk};
    cached.disk->unreadable = {{at, cause}};
    {
      const Shelf shelf = cached.open(Mode::read);
      REQUIRE(shelf.info().version == 2);
      REQUIRE_FALSE(shelf.info().recovery.degraded);
      REQUIRE(shelf.names().size() == 2 * tensors);
      const auto notes = shelf.info().recovery.notes;
      const bool noted = !notes.empty() && contains(notes.back(), "could not be read");
      REQUIRE(noted == (cached.disk->refused > 0));
      const auto first = fmt::format("the first: a read at {} failed: ", at);
      if (noted) REQUIRE(contains(notes.back(), first));
    }
    bool met = false;
    {
      Shelf shelf = cached.open();
      met = cached.disk->refused > 0;
      REQUIRE(shelf.info().version == 2);
      REQUIRE(shelf.names().size() == 2 * tensors);
      // Of the older root only the words count, and it is written by the next commit.
      const bool older = at == format::root_at(1, 0) || at == format::root_at(1, 1);
      REQUIRE(shelf.info().recovery.repaired_copies == (met && !older ? 1 : 0));
      shelf.persist(3);
    }
    if (met) REQUIRE_FALSE(cached.disk->unreadable.contains(at));
    cached.disk->unreadable = {};
    cached.disk->lose_power();
    Shelf shelf = cached.open();
    REQUIRE(shelf.info().version == 3);
    REQUIRE(shelf.info().recovery.repaired_copies == 0);
  }
}

TEST_CASE("where both copies cannot be read, the error names the place and the system's reason") {
  const Cached whole = metadata_alone(1);
  struct Row {
    std::uint64_t first, second;
  };
  const auto row = GENERATE(Row{format::superblock_at(0), format::superblock_at(1)},
                            Row{format::incarnation_at(0), format::incarnation_at(1)});
  Cached cached{*whole.disk};
  cached.disk->unreadable = {{row.first, EIO}, {row.second, EIO}};
  const auto error = error_of([&] { cached.open(); });
  REQUIRE(error);
  REQUIRE(error->code() == Errc::corrupt);
  REQUIRE(error->os_error() == EIO);
  REQUIRE(contains(error->what(), fmt::format("at {} failed: Input/output error", row.first)));
}

TEST_CASE("two pages that cannot be read: an honest answer, and no writing over the unread") {
  const Mode mode = GENERATE(Mode::read, Mode::update);
  const unsigned tensors = GENERATE(1u, 100u);  // of these, the versions share leaves
  CAPTURE(mode == Mode::read, tensors);
  const Cached whole = metadata_alone(tensors);
  std::vector<std::uint64_t> pages;
  for (std::uint64_t at = 0; at < whole.disk->visible.size(); at += kPageBytes) {
    Cached cached{*whole.disk};
    cached.disk->unreadable = {{at, EIO}};
    cached.open();
    if (cached.disk->refused > 0) pages.push_back(at);
  }
  REQUIRE(pages.size() >= 12);  // two copies of superblock, incarnation, roots, directory, leaves
  for (const std::uint64_t a : pages) {
    unsigned lost = 0;  // with its other copy something may be lost, with no other page
    for (const std::uint64_t b : pages) {
      Cached cached{*whole.disk};
      CAPTURE(a, b);
      cached.disk->unreadable = {{a, EIO}, {b, EIO}};
      bool degraded = false;
      const auto error = error_of([&] {
        const Shelf shelf = cached.open(mode);
        degraded = shelf.info().recovery.degraded;
        REQUIRE((shelf.info().version == 2 || (degraded && mode == Mode::read)));
      });
      if (error) REQUIRE(error->code() == Errc::corrupt);
      if (error) REQUIRE(error->os_error() == EIO);
      if (error && contains(error->what(), "no version is whole")) {
        REQUIRE(contains(error->remedy(), "open it again"));  // the error may pass
      }
      lost += degraded || error;
      cached.disk->unreadable = {};  // the errors pass: all that was acknowledged is there
      const Shelf shelf = cached.open(mode);
      REQUIRE(shelf.info().version == 2);
      REQUIRE_FALSE(shelf.info().recovery.degraded);
      REQUIRE(shelf.names().size() == 2 * tensors);
    }
    CAPTURE(a);
    REQUIRE(lost <= 1);
  }
}

TEST_CASE("a read that fails for want of memory is no damage") {
  Cached cached;
  cached.disk->unreadable = {{format::root_at(1, 0), ENOMEM}};
  REQUIRE(code_of([&] { cached.open(); }) == Errc::io);
}

// ---- a rival (I10) ------------------------------------------------------------------------------

TEST_CASE("who opened the shelf before another did assigns no more, and harms nothing") {
  const std::uint64_t before = GENERATE(0u, 1u, 2u, 3u);  // versions that he committed himself
  const bool background = GENERATE(true, false);
  CAPTURE(before, background);
  Cached cached;
  Shelf older = cached.open();
  TensorRef w = older.find("w").value();
  std::uint64_t version = 1;
  while (version <= before) {
    w.write(value_of(++version));
    background ? older.persist_async(version).get() : older.persist(version);
  }
  Shelf newer = cached.open();
  commit(newer, ++version);
  const unsigned events = cached.disk->events;
  REQUIRE(code_of([&] { w.write(value_of(70)); }) == Errc::busy);  // in the slot of his version
  REQUIRE(code_of([&] { w.write(pattern(8, 1), 100); }) == Errc::busy);
  REQUIRE(code_of([&] { make(older, "x", 5000); }) == Errc::busy);
  REQUIRE(code_of([&] { older.replace("w", DType::uint8, std::vector<std::int64_t>{5000}); }) ==
          Errc::busy);
  REQUIRE(cached.disk->events == events);  // nothing was written, not even into a free slot
  REQUIRE((value(newer, "w") == value_of(version)));
  REQUIRE((value(cached.open(Mode::read), "w") == value_of(version)));
  REQUIRE(cached.open(Mode::read).verify().damage.empty());
  REQUIRE(code_of([&] { older.persist(70); }) == Errc::busy);
  commit(newer, ++version);
  REQUIRE((value(cached.open(Mode::read), "w") == value_of(version)));
}

TEST_CASE("who opened the shelf before another did commits no more") {
  Cached cached;
  Shelf older = cached.open();
  older.find("w")->write(value_of(7));
  Shelf newer = cached.open();  // nothing keeps it out
  commit(newer, 2);
  const auto error = error_of([&] { older.persist(7); });
  REQUIRE(error);
  REQUIRE(error->code() == Errc::busy);
  REQUIRE(contains(error->what(), "another process has opened the shelf"));
  REQUIRE(code_of([&] { older.persist(8); }) == Errc::failed);
  REQUIRE((value(cached.open(Mode::read), "w") == value_of(2)));
  commit(newer, 3);
  REQUIRE((value(cached.open(Mode::read), "w") == value_of(3)));
}

TEST_CASE("of two rivals each sees those that came later, and the last one commits") {
  Cached cached;
  const unsigned damaged = GENERATE(0u, 1u, 2u);  // a copy of the incarnation, or none
  if (damaged < format::kCopies) {
    std::fill_n(cached.disk->visible.begin() + format::incarnation_at(damaged), kPageBytes,
                std::byte{0x5A});
  }
  CAPTURE(damaged);
  Shelf first = cached.open();
  Shelf second = cached.open();
  REQUIRE(code_of([&] { commit(first, 7); }) == Errc::busy);
  Shelf third = cached.open();
  REQUIRE(code_of([&] { commit(second, 8); }) == Errc::busy);
  commit(third, 2);
  REQUIRE((value(cached.open(Mode::read), "w") == value_of(2)));
}

TEST_CASE("a rival that comes while a commit is under way is seen before the flip") {
  Cached cached;
  Shelf older = cached.open();
  older.find("w")->write(value_of(7));
  std::optional<Shelf> newer;
  cached.disk->barrier_fails = [&](unsigned) {  // the first of the commit
    cached.disk->barrier_fails = {};
    newer.emplace(cached.open());
    return false;
  };
  REQUIRE(code_of([&] { older.persist(7); }) == Errc::busy);
  REQUIRE(newer->info().version == 1);
  REQUIRE((value(cached.open(Mode::read), "w") == value_of(1)));
}

TEST_CASE("a record of the incarnation that cannot be read proves no rival") {
  Cached cached;
  Shelf shelf = cached.open();
  cached.disk->unreadable = {{format::incarnation_at(0), EIO}, {format::incarnation_at(1), EIO}};
  commit(shelf, 2);
  std::fill_n(cached.disk->visible.begin() + format::incarnation_at(0), kPageBytes, std::byte{1});
  std::fill_n(cached.disk->visible.begin() + format::incarnation_at(1), kPageBytes, std::byte{1});
  cached.disk->unreadable = {};
  commit(shelf, 3);
  CHECK(shelf.version() == 3);
}

// With a bit of its word flipped the newest root looks like the one that it took the place of.
TEST_CASE("both copies of the newest root damaged, and one with a word of old: not passed over") {
  const Mode mode = GENERATE(Mode::read, Mode::update);
  const unsigned flipped = GENERATE(0u, 1u);
  CAPTURE(mode == Mode::read, flipped);
  Cached cached;
  {
    Shelf shelf = cached.open();
    commit(shelf, 2);
    commit(shelf, 3);
  }
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const auto at = format::root_at(1, copy);
    cached.disk->visible[at + 100] ^= std::byte{1};
    if (copy == flipped) cached.disk->visible[at] ^= std::byte{2};  // version 3 -> 1
  }
  std::optional<Shelf> shelf;
  const auto error = error_of([&] { shelf.emplace(cached.open(mode)); });
  if (error) {
    REQUIRE(error->code() == Errc::corrupt);
  } else {
    REQUIRE(shelf->info().version == 2);
    REQUIRE(shelf->info().recovery.degraded);
  }
}

// ---- a reader beside a writer that does not wait for it -----------------------------------------

TEST_CASE("a writer that is always faster makes a reader stale, never the shelf corrupt") {
  Cached cached;
  Shelf writer = cached.open();
  std::uint64_t version = 1;
  std::uint64_t commits = 0;
  bool writing = false;
  cached.disk->on_read = [&](std::uint64_t at) {
    if (writing || commits == 0 || at < format::kHeapAt) return true;
    --commits;
    writing = true;
    commit(writer, ++version);
    writing = false;
    return false;
  };
  commits = 1'000'000;
  const auto error = error_of([&] { cached.open(Mode::read); });
  REQUIRE(error);
  REQUIRE(error->code() == Errc::stale);
  REQUIRE(contains(error->remedy(), "Open it again"));
  commits = 20;  // then it rests
  const Shelf reader = cached.open(Mode::read);
  REQUIRE(reader.info().version == version);
  REQUIRE_FALSE(reader.info().recovery.degraded);
  REQUIRE((value(reader, "w") == value_of(version)));
}

TEST_CASE("a place of pages that is used again while a reader looks is read again") {
  unsigned redone = 0;
  for (unsigned nth = 1; nth < 6; ++nth) {  // the read after which the writer is faster
    for (unsigned commits = 1; commits <= 8; ++commits) {
      CAPTURE(nth, commits);
      Cached cached;
      Shelf writer = cached.open();
      std::uint64_t version = 1;
      while (version < 4) commit(writer, ++version);  // until it goes round in the same places
      unsigned reads = 0;
      bool writing = false;
      bool overtaken = false;
      cached.disk->on_read = [&](std::uint64_t at) {
        if (writing) return true;
        if (at < format::kHeapAt) {  // the next look
          overtaken = false;
        } else if (reads++ == nth) {
          writing = true;
          for (unsigned i = 0; i < commits; ++i) commit(writer, ++version);
          writing = false;
          overtaken = true;
        }
        return !overtaken;
      };
      const Shelf reader = cached.open(Mode::read);
      cached.disk->on_read = {};
      REQUIRE_FALSE(reader.info().recovery.degraded);
      const std::uint64_t shown = reader.info().version;
      if (shown == version) {
        REQUIRE((value(reader, "w") == value_of(version)));
      } else {  // all that it wanted was read by then
        REQUIRE(shown == 4);
      }
      redone += shown == version && commits > 1;
    }
  }
  REQUIRE(redone > 10);
}

TEST_CASE("damage beside a writer that rests is damage") {
  Cached cached;
  Shelf writer = cached.open();
  commit(writer, 2);
  cached.disk->on_read = [](std::uint64_t at) { return at < format::kHeapAt; };
  REQUIRE(code_of([&] { cached.open(Mode::read); }) == Errc::corrupt);
}

TEST_CASE("a file of 20,000 tensors is opened for reading while its writer commits on and on") {
  const Folder folder;
  constexpr int kTensors = 20'000;
  Shelf writer = Shelf::open(folder.file(), {.tier = "block"});
  const Bytes bytes = pattern(8, 1);
  std::vector<TensorRef> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back(make(writer, fmt::format("tensor {}", i).c_str(), bytes.size()));
    tensors.back().write(bytes);
  }
  writer.persist(1);
  std::atomic<bool> done = false;
  std::jthread thread([&] {
    std::mt19937_64 random(1);
    while (!done) {
      for (int i = 0; i < 40; ++i) tensors[random() % kTensors].write(bytes);
      writer.persist();
    }
  });
  std::vector<std::string> wrong;
  int stale = 0;
  constexpr int kOpens = 8;
  for (int i = 0; i < kOpens; ++i) {
    try {
      const Shelf reader = Shelf::open(folder.file(), {.mode = Mode::read, .tier = "block"});
      if (reader.names().size() != kTensors) wrong.emplace_back("tensors are missing");
      if (reader.info().recovery.degraded) wrong.emplace_back("degraded");
    } catch (const Error& error) {
      if (error.code() != Errc::stale) wrong.emplace_back(error.what());
      ++stale;
    }
  }
  done = true;
  thread.join();
  CAPTURE(wrong);
  REQUIRE(wrong.empty());
  REQUIRE(stale < kOpens);
}

// ---- the same on a file ------------------------------------------

namespace {

// What the drive below a file has, which is what was synced.
struct Drive {
  std::filesystem::path path;
  Bytes bytes;
  std::vector<Tap::Range> dirty;
  std::function<bool()> sync_fails;
  std::set<std::uint64_t> bad_pages;  // until they are written
  unsigned refused = 0;               // reads of them

  void note_write(std::uint64_t at, std::uint64_t size_bytes) {
    dirty.push_back({at, size_bytes});
    bad_pages.erase(bad_pages.lower_bound(at), bad_pages.lower_bound(at + size_bytes));
  }
};

class DriveBackend final : public BlockBackend {
 public:
  DriveBackend(std::unique_ptr<BlockBackend> inner, std::shared_ptr<Drive> drive)
      : inner_(std::move(inner)), drive_(std::move(drive)) {}

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    for (const DeviceWrite& write : writes) drive_->note_write(write.at, write.bytes.size());
    return inner_->submit(writes);
  }
  std::optional<DeviceCompletion> complete(bool block) override { return inner_->complete(block); }
  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    drive_->note_write(at, bytes.size());
    return inner_->write_now(at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    const auto bad = drive_->bad_pages.lower_bound(at);
    if (bad == drive_->bad_pages.end() || *bad >= at + bytes.size()) {
      return inner_->read_now(at, bytes);
    }
    ++drive_->refused;
    return -EIO;
  }
  int sync() override {
    REQUIRE(inner_->sync() == 0);
    const auto dirty = std::exchange(drive_->dirty, {});
    if (drive_->sync_fails && drive_->sync_fails()) return -EIO;  // the pages are clean now
    std::ifstream file(drive_->path, std::ios::binary);
    for (const Tap::Range& range : dirty) {
      const auto end = static_cast<std::size_t>(range.at + range.size_bytes);
      drive_->bytes.resize(std::max(drive_->bytes.size(), end));
      file.seekg(static_cast<std::streamoff>(range.at));
      file.read(reinterpret_cast<char*>(&drive_->bytes[range.at]),
                static_cast<std::streamsize>(range.size_bytes));
      REQUIRE(file);
    }
    return 0;
  }

 private:
  std::unique_ptr<BlockBackend> inner_;
  std::shared_ptr<Drive> drive_;
};

struct DriveRig {
  explicit DriveRig(bool through_cache) : direct(!through_cache) { drive->path = folder.file(); }
  Shelf open(Mode mode = Mode::update) {
    auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), mode != Mode::read));
    return Shelf::open(medium_of(std::move(file)), {.mode = mode});
  }
  std::unique_ptr<Medium> medium_of(std::shared_ptr<ShelfFile> file) {
    BlockTuning tuning;
    tuning.direct = direct;
    BlockSeam seam;
    seam.wrap = [this](std::unique_ptr<BlockBackend> inner) {
      return std::make_unique<DriveBackend>(std::move(inner), drive);
    };
    return make_block_medium(std::move(file), {.block = tuning}, seam);
  }
  void lose_power() {
    const auto size = std::filesystem::file_size(folder.file());
    drive->bytes.resize(size);
    std::ofstream(folder.file(), std::ios::binary | std::ios::in)
        .write(reinterpret_cast<const char*>(drive->bytes.data()),
               static_cast<std::streamsize>(size));
    drive->dirty.clear();
  }

  bool direct;
  Folder folder;
  std::shared_ptr<Drive> drive = std::make_shared<Drive>();
};

}  // namespace

TEST_CASE("a buffered file: a flush fails after the flip, and the power goes in the next commit") {
  DriveRig rig(true);
  {
    auto medium = rig.medium_of(rig.folder.create());
    Shelf::format(*medium);
    Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
    make(shelf, "w", kBytes).write(value_of(1));
    shelf.persist(1);
    rig.drive->sync_fails = [n = 0]() mutable { return n++ == 1; };
    REQUIRE(code_of([&] { commit(shelf, 2); }) == Errc::io);
  }
  {
    rig.drive->sync_fails = {};
    Shelf shelf = rig.open();
    REQUIRE(shelf.info().version == 2);
    rig.drive->sync_fails = [] { return true; };
    REQUIRE(code_of([&] { commit(shelf, 3); }) == Errc::io);
  }
  rig.lose_power();
  Shelf shelf = rig.open(Mode::read);
  REQUIRE(shelf.info().version == 2);
  REQUIRE((value(shelf, "w") == value_of(2)));
}

TEST_CASE("a file: each page of metadata that cannot be read, alone and among its neighbours") {
  const bool through_cache = GENERATE(true, false);
  DriveRig rig(through_cache);
  {
    auto medium = rig.medium_of(rig.folder.create());
    Shelf::format(*medium);
    Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
    for (int i = 0; i < 200; ++i) make(shelf, fmt::format("{}", i).c_str(), 0);
    make(shelf, "w", kBytes).write(value_of(1));
    shelf.persist(1);
  }
  const std::uint64_t size = std::filesystem::file_size(rig.folder.file());
  unsigned met = 0;
  for (std::uint64_t at = 0; at < size; at += kPageBytes) {
    CAPTURE(at, through_cache);
    rig.drive->bad_pages = {at};
    rig.drive->refused = 0;
    const Shelf shelf = rig.open();
    if (rig.drive->refused == 0) continue;
    ++met;
    REQUIRE(shelf.info().version == 1);
    REQUIRE((value(shelf, "w") == value_of(1)));
    rig.drive->refused = 0;
    rig.open(Mode::read);
    REQUIRE(rig.drive->refused == 0);  // written anew
  }
  REQUIRE(met >= 2 + 2 + 4 + 2 * (1 + 3));
}
