// Recovery on media that lose and refuse: a page of which one copy cannot be read, a flush that
// failed whose pages stay visible, a rival that opened the shelf meanwhile, a writer that does not
// wait for its readers.
#include <cerrno>
#include <fstream>

#include "block_fixture.hpp"
#include "cached_disk.hpp"
#include "store/unreadable.hpp"

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

Bytes value_of(std::uint64_t step) { return random_bytes(kBytes, step); }

struct Cached {
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
  const unsigned chance = GENERATE(range(0u, 16u));  // 0: nothing lands without a barrier
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

// ---- the same on a file written through the page cache ------------------------------------------

namespace {

// What the drive below a file has, which is what was synced.
struct Drive {
  Bytes bytes;
  std::vector<Tap::Range> dirty;
  std::function<bool()> sync_fails;
};

class DriveBackend final : public BlockBackend {
 public:
  DriveBackend(std::unique_ptr<BlockBackend> inner, std::shared_ptr<Drive> drive)
      : inner_(std::move(inner)), drive_(std::move(drive)) {}

  int submit(const DeviceWrite& write) override {
    drive_->dirty.push_back({write.at, write.bytes.size()});
    return inner_->submit(write);
  }
  std::optional<DeviceCompletion> complete(bool block) override { return inner_->complete(block); }
  std::int64_t write_now(std::uint64_t at, std::span<const std::byte> bytes) override {
    drive_->dirty.push_back({at, bytes.size()});
    return inner_->write_now(at, bytes);
  }
  std::int64_t read_now(std::uint64_t at, std::span<std::byte> bytes) override {
    return inner_->read_now(at, bytes);
  }
  int sync() override {
    REQUIRE(inner_->sync() == 0);
    const auto dirty = std::exchange(drive_->dirty, {});
    if (drive_->sync_fails && drive_->sync_fails()) return -EIO;  // the pages are clean now
    for (const Tap::Range& range : dirty) {
      drive_->bytes.resize(
          std::max<std::size_t>(drive_->bytes.size(), range.at + range.size_bytes));
      const auto target = std::span(drive_->bytes).subspan(range.at, range.size_bytes);
      REQUIRE(inner_->read_now(range.at, target) == static_cast<std::int64_t>(target.size()));
    }
    return 0;
  }

 private:
  std::unique_ptr<BlockBackend> inner_;
  std::shared_ptr<Drive> drive_;
};

struct DriveRig {
  Shelf open(Mode mode = Mode::update) {
    auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), mode != Mode::read));
    return Shelf::open(medium_of(std::move(file)), {.mode = mode});
  }
  std::unique_ptr<Medium> medium_of(std::shared_ptr<ShelfFile> file) {
    BlockTuning tuning;
    tuning.direct = false;
    BlockSeam seam;
    seam.wrap = [this](std::unique_ptr<BlockBackend> inner) {
      return std::make_unique<DriveBackend>(std::move(inner), drive);
    };
    return make_block_medium(std::move(file), 0, tuning, seam);
  }
  void lose_power() {
    const auto size = std::filesystem::file_size(folder.file());
    drive->bytes.resize(size);
    std::ofstream(folder.file(), std::ios::binary | std::ios::in)
        .write(reinterpret_cast<const char*>(drive->bytes.data()),
               static_cast<std::streamsize>(size));
    drive->dirty.clear();
  }

  Folder folder;
  std::shared_ptr<Drive> drive = std::make_shared<Drive>();
};

}  // namespace

TEST_CASE("a buffered file: a flush fails after the flip, and the power goes in the next commit") {
  DriveRig rig;
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
