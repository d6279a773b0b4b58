// The store on media that fail: each device write, word and flush of a growth and of a commit in
// turn. The call says so (Errc::io), nothing is tried again, no commit follows (I8), the committed
// version stays readable, and opening again gives it whole.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include <tensorshelf/shelf.hpp>

#include "block_fixture.hpp"
#include "media/pmem/medium.hpp"
#include "scratch.hpp"

namespace {

std::atomic<int> fsync_fails = 0;  // with this errno
std::atomic<int> fsyncs = 0;
std::atomic<int> fallocate_fails = 0;

}  // namespace

extern "C" int fsync(int fd) {  // in place of the C library's
  ++fsyncs;
  const int result = static_cast<int>(::syscall(SYS_fsync, fd));
  if (const int error = fsync_fails; error != 0) {
    errno = error;
    return -1;
  }
  return result;
}

extern "C" int fallocate(int fd, int mode, off_t at, off_t size) {
  if (const int error = fallocate_fails; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, size));
}

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kSize = 3 * kMiB + 1000;

TensorRef make(Shelf& shelf, const char* name, std::uint64_t size) {
  return shelf.create(name, DType::uint8,
                      std::vector<std::int64_t>{static_cast<std::int64_t>(size)});
}

Bytes value(const Shelf& shelf, const char* name, bool committed = false) {
  const TensorRef tensor = shelf.find(name).value();
  Bytes bytes(tensor.info().size_bytes);
  committed ? tensor.read_committed(bytes) : tensor.read(bytes);
  return bytes;
}

// As dd would do it behind the shelf's back: in the file, where those bytes lie.
void flip_stored_bit(const std::filesystem::path& path, const Bytes& value, std::size_t offset) {
  const std::string file = scratch::contents(path);
  const std::string head(reinterpret_cast<const char*>(value.data() + offset), 64);
  const std::size_t at = file.find(head);
  REQUIRE(at != std::string::npos);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const char flipped = static_cast<char>(file[at] ^ 1);
  REQUIRE(::pwrite(fd, &flipped, 1, static_cast<off_t>(at)) == 1);
  REQUIRE(::fsync(fd) == 0);
  ::close(fd);
}

// A shelf on a block medium whose backend can be told to fail, at version 1.
struct Rig {
  explicit Rig(bool io_uring) {
    BlockTuning tuning;
    tuning.buffer_bytes = kMiB;
    tuning.queue_depth = 4;
    tuning.io_uring = io_uring;
    tuning.zeroed_bytes = 64 * kMiB;  // so that the device is written to as the shelf grows
    auto medium = make_block_medium(folder.create(), {.block = tuning}, tapped(tap));
    Shelf::format(*medium);
    shelf.emplace(Shelf::open(std::move(medium), {.mode = Mode::update}));
    make(*shelf, "w", kSize).write(first);
    shelf->persist(1);
    *tap = Tap{};
  }

  // What must hold after a call failed. The commit in flight, where there was one, is `in_flight`.
  void check_failed(const Bytes* in_flight = nullptr) {
    REQUIRE(code_of([&] { shelf->persist(3); }) == Errc::failed);
    *tap = Tap{};  // the device works again, and is not asked
    REQUIRE(code_of([&] { shelf->persist(3); }) == Errc::failed);
    REQUIRE(tap->syncs == 0);
    REQUIRE(tap->submitted.empty());
    REQUIRE((value(*shelf, "w", true) == first));
    shelf.reset();
    {
      const Shelf reader = Shelf::open(folder.file(), {.mode = Mode::read});
      const Bytes found = value(reader, "w");
      const bool flipped = in_flight != nullptr && reader.info().version == 2;
      REQUIRE((found == (flipped ? *in_flight : first)));
      if (!flipped) REQUIRE(reader.info().version == 1);
    }
    Shelf again = Shelf::open(folder.file(), {.mode = Mode::update, .verify = Verify::on_open});
    make(again, "big", 5 * kMiB);
    again.find("w")->write(second);
    again.persist(2);
    REQUIRE((value(again, "w", true) == second));
  }

  Folder folder;
  std::shared_ptr<Tap> tap = std::make_shared<Tap>();
  std::optional<Shelf> shelf;
  const Bytes first = pattern(kSize, 1);
  const Bytes second = pattern(kSize, 2);
};

}  // namespace

TEST_CASE("a flush that fails while the shelf grows is never repeated") {
  const int cause = GENERATE(EIO, ENOSPC, EDQUOT);  // whatever its number, it is no full disk
  const bool io_uring = GENERATE(true, false);
  Rig rig(io_uring);
  rig.tap->sync = [&](int) { return -cause; };
  REQUIRE(code_of([&] { make(*rig.shelf, "big", 10 * kMiB); }) == Errc::io);
  REQUIRE(rig.tap->syncs == 1);
  REQUIRE_FALSE(rig.shelf->find("big"));
  rig.check_failed();
}

TEST_CASE("each device write that fails while the shelf grows") {
  const bool io_uring = GENERATE(true, false);
  bool met = true;
  for (unsigned nth = 0; met; ++nth) {
    CAPTURE(nth, io_uring);
    Rig rig(io_uring);
    met = false;
    rig.tap->complete = [&](unsigned n, std::int64_t real) {
      if (n != nth) return real;
      met = true;
      return std::int64_t{-EIO};
    };
    try {
      make(*rig.shelf, "big", 3 * kMiB);
      REQUIRE_FALSE(met);
    } catch (const Error& error) {
      REQUIRE(met);
      REQUIRE(error.code() == Errc::io);
    }
    if (met) rig.check_failed();
    if (!met) REQUIRE(nth > 4);
  }
}

TEST_CASE("a full device while the shelf grows is no failure") {
  Rig rig(true);
  rig.tap->complete = [&](unsigned n, std::int64_t real) { return n % 5 == 2 ? -ENOSPC : real; };
  REQUIRE(code_of([&] { make(*rig.shelf, "big", 10 * kMiB); }) == Errc::full);
  rig.tap->complete = {};
  rig.shelf->find("w")->write(rig.second);
  REQUIRE(rig.shelf->persist(2).version == 2);
  make(*rig.shelf, "big", 10 * kMiB);
  REQUIRE(rig.shelf->persist(3).version == 3);
}

// What was erased is free after a commit, which helps against a full device alone.
TEST_CASE("where something was erased, what fails while the shelf grows is told as it is") {
  const bool full = GENERATE(true, false);
  CAPTURE(full);
  Rig rig(true);
  make(*rig.shelf, "old", 8 * kMiB).write(pattern(8 * kMiB, 3));
  rig.shelf->persist(2);
  rig.shelf->erase("old");
  rig.tap->complete = [&](unsigned, std::int64_t) { return full ? -ENOSPC : -EIO; };
  const auto error = error_of([&] { make(*rig.shelf, "big", 8 * kMiB); });
  rig.tap->complete = {};
  REQUIRE(error);
  CHECK(error->os_error() == (full ? ENOSPC : EIO));
  CHECK(error->code() == (full ? Errc::full : Errc::io));
  const std::string first = "persist() first: what was erased is free after it. Or else: ";
  CHECK(error->remedy().starts_with(first) == full);
  CHECK(error->remedy().size() > first.size());
  if (!full) {
    CHECK(code_of([&] { rig.shelf->persist(3); }) == Errc::failed);
    return;
  }
  const std::uint64_t capacity = rig.shelf->info().capacity_bytes;
  rig.shelf->persist(3);
  make(*rig.shelf, "big", 8 * kMiB).write(pattern(8 * kMiB, 4));  // where the other was
  CHECK(rig.shelf->info().capacity_bytes == capacity);
  rig.shelf->persist(4);
  CHECK((value(*rig.shelf, "big", true) == pattern(8 * kMiB, 4)));
  // Nothing that a version has was erased: a commit would free nothing.
  rig.tap->complete = [](unsigned, std::int64_t) { return -ENOSPC; };
  make(*rig.shelf, "brief", 100);
  rig.shelf->erase("brief");
  const auto other = error_of([&] { make(*rig.shelf, "more", 20 * kMiB); });
  REQUIRE(other);
  CHECK(other->code() == Errc::full);
  CHECK_FALSE(contains(other->remedy(), "persist() first"));
}

TEST_CASE("each device write, word and flush of a commit that fails") {
  enum class Kind { write, flush };  // words are writes too, and come last
  const Kind kind = GENERATE(Kind::write, Kind::flush);
  const bool io_uring = GENERATE(true, false);
  const auto commit = [](Rig& rig) {
    rig.shelf->find("w")->write(rig.second);
    rig.shelf->persist(2);
  };
  Rig whole(io_uring);
  commit(whole);
  const auto calls = kind == Kind::write ? whole.tap->submitted.size() : whole.tap->syncs;
  bool met = true;
  for (unsigned nth = 0; met; ++nth) {
    CAPTURE(static_cast<int>(kind), nth, io_uring);
    Rig rig(io_uring);
    met = false;
    const auto fails = [&](unsigned n) {
      if (n == nth) met = true;
      return n == nth;
    };
    if (kind == Kind::write) {
      rig.tap->complete = [&](unsigned n, std::int64_t real) { return fails(n) ? -EIO : real; };
    } else {
      rig.tap->sync = [&](int real) { return fails(rig.tap->syncs - 1) ? -EIO : real; };
    }
    try {
      commit(rig);
      REQUIRE_FALSE(met);
    } catch (const Error& error) {
      REQUIRE(met);
      REQUIRE(error.code() == Errc::io);
    }
    if (met) rig.check_failed(&rig.second);
    if (!met) REQUIRE(nth == calls);
  }
}

TEST_CASE("a transaction whose commit fails on the medium has ended, and holds up nobody") {
  Rig rig(true);
  Transaction transaction = rig.shelf->transaction();
  rig.shelf->find("w")->write(rig.second);
  rig.tap->sync = [](int) { return -EIO; };
  REQUIRE(code_of([&] { transaction.commit(2); }) == Errc::io);
  REQUIRE(code_of([&] { transaction.commit(2); }) == Errc::transaction);
  transaction.discard();  // of nothing
  REQUIRE(code_of([&] { return rig.shelf->transaction(); }) == Errc::failed);
  REQUIRE(code_of([&] { rig.shelf->discard(); }) == Errc::failed);
  rig.check_failed(&rig.second);
}

// "The next call": of those that change the shelf, whichever it is, and before it does anything.
TEST_CASE("a commit that fails in the background is told by the next call, once") {
  Rig rig(true);
  TensorRef w = rig.shelf->find("w").value();
  w.write(rig.second);
  rig.tap->sync = [](int) { return -EIO; };
  const auto commit = rig.shelf->persist_async(2);
  commit.wait();
  REQUIRE((value(*rig.shelf, "w", true) == rig.first));  // reading goes on, and is not told
  for (int asked = 0; asked < 2; ++asked) REQUIRE_FALSE(rig.shelf->unheard_failure().empty());
  SECTION("assigning") {
    REQUIRE(code_of([&] { w.write(rig.second); }) == Errc::io);
    REQUIRE(code_of([&] { w.write(rig.second); }) == Errc::failed);
  }
  SECTION("creating") {
    REQUIRE(code_of([&] { make(*rig.shelf, "x", 10); }) == Errc::io);
    REQUIRE(code_of([&] { make(*rig.shelf, "x", 10); }) == Errc::failed);
    REQUIRE_FALSE(rig.shelf->find("x"));
  }
  SECTION("erasing") {
    REQUIRE(code_of([&] { rig.shelf->erase("w"); }) == Errc::io);
    REQUIRE(code_of([&] { rig.shelf->erase("w"); }) == Errc::failed);
    REQUIRE(rig.shelf->find("w"));
  }
  SECTION("persisting") {
    REQUIRE(code_of([&] { rig.shelf->persist(3); }) == Errc::io);
    REQUIRE(code_of([&] { rig.shelf->persist(3); }) == Errc::failed);
  }
  SECTION("persisting in the background") {
    REQUIRE(code_of([&] { rig.shelf->persist_async(3); }) == Errc::io);
    REQUIRE(code_of([&] { rig.shelf->persist_async(3); }) == Errc::failed);
  }
  SECTION("closing") {
    REQUIRE(code_of([&] { rig.shelf->close(); }) == Errc::io);
    REQUIRE(rig.shelf->closed());
    REQUIRE(rig.shelf->unheard_failure().empty());
    rig.shelf->close();
    *rig.tap = Tap{};
    return;
  }
  rig.check_failed(&rig.second);
}

TEST_CASE("rot in what is committed is told as damage, whatever failed since") {
  Rig rig(GENERATE(true, false));
  rig.shelf->find("w")->write(rig.second);
  rig.tap->sync = [](int) { return -EIO; };
  REQUIRE(code_of([&] { rig.shelf->persist(2); }) == Errc::io);
  *rig.tap = Tap{};
  flip_stored_bit(rig.folder.file(), rig.first, 2 * kMiB);
  CHECK(code_of([&] { value(*rig.shelf, "w", true); }) == Errc::corrupt);
}

// Nothing is wrong with the medium: what was assigned stays, and the next commit has it.
TEST_CASE("a commit in the background that stumbles over rot is not begun") {
  Folder folder;
  auto shelf = Shelf::open(folder.file(), {.placement = Placement::whole});
  TensorRef w = make(shelf, "w", kSize);
  w.write(pattern(kSize, 1));
  shelf.persist(1);
  flip_stored_bit(folder.file(), pattern(kSize, 1), 2 * kMiB);
  w.write(pattern(10, 2));
  REQUIRE(code_of([&] { shelf.persist_async(2); }) == Errc::corrupt);
  w.write(pattern(10, 3));
  w.write(pattern(kSize, 4));  // which heals it
  REQUIRE(shelf.persist(2).version == 2);
  REQUIRE((value(shelf, "w", true) == pattern(kSize, 4)));
}

TEST_CASE("a flush that fails while a mapped shelf grows") {
  if (!pmem_supported() || !std::filesystem::is_directory("/dev/shm")) {
    WARN("no tmpfs to map, or a build without libpmem2");
    return;
  }
  const scratch::Directory directory("/dev/shm");
  const auto path = directory / "a.shelf";
  const OpenOptions options = {.mode = Mode::append, .tier = "pmem"};
  const Bytes first = pattern(kSize, 1);
  const Bytes second = pattern(kSize, 2);
  {
    Shelf shelf = Shelf::open(path, options);
    make(shelf, "w", kSize).write(first);
    shelf.persist(1);
    shelf.find("w")->write(second);
    const int before = fsyncs;
    fsync_fails = GENERATE(EIO, ENOSPC);
    REQUIRE(code_of([&] { make(shelf, "big", 40 * kMiB); }) == Errc::io);
    fsync_fails = 0;
    REQUIRE(fsyncs == before + 1);
    REQUIRE(code_of([&] { shelf.persist(2); }) == Errc::failed);
    REQUIRE(code_of([&] { make(shelf, "big", 40 * kMiB); }) == Errc::failed);
    REQUIRE(fsyncs == before + 1);
    REQUIRE((value(shelf, "w", true) == first));
  }
  Shelf shelf = Shelf::open(path, options);
  REQUIRE(shelf.info().version == 1);
  REQUIRE((value(shelf, "w") == first));
  make(shelf, "big", 40 * kMiB);
  REQUIRE(shelf.persist(2).version == 2);
}

namespace {

std::uint64_t blocks_of(const std::filesystem::path& path) {
  struct stat node {};
  REQUIRE(::stat(path.c_str(), &node) == 0);
  return static_cast<std::uint64_t>(node.st_blocks) * 512;
}

}  // namespace

// What a growth that crashed leaves where there is no fallocate: a longer file, of holes.
TEST_CASE("holes beyond the shelf are no room until they are filled") {
  struct Row {
    std::string tier;
    int fallocate;  // its errno
  };
  const Row row = GENERATE(Row{"block", 0}, Row{"block", EOPNOTSUPP}, Row{"pmem", 0});
  if (row.tier == "pmem" && (!pmem_supported() || !std::filesystem::is_directory("/dev/shm"))) {
    WARN("no tmpfs to map, or a build without libpmem2");
    return;
  }
  CAPTURE(row.fallocate);
  const scratch::Directory directory(row.tier == "pmem" ? std::filesystem::path("/dev/shm")
                                                        : std::filesystem::current_path());
  const auto path = directory / "a.shelf";
  const OpenOptions options = {.mode = Mode::append, .tier = row.tier};
  const Bytes first = pattern(kSize, 1);
  {
    Shelf shelf = Shelf::open(path, options);
    make(shelf, "w", kSize).write(first);
    shelf.persist(1);
  }
  const std::uint64_t before = std::filesystem::file_size(path);
  const std::uint64_t longer = before + 40 * kMiB;
  std::filesystem::resize_file(path, longer);
  if (blocks_of(path) >= longer) {
    WARN("no holes in files here");
    return;
  }
  Shelf shelf = Shelf::open(path, options);
  shelf.find("w")->write(pattern(kMiB, 7), kMiB);  // staged beside the holes
  fallocate_fails = ENOSPC;
  const auto refused = code_of([&] { make(shelf, "big", 4 * kMiB); });
  fallocate_fails = 0;
  REQUIRE(refused == Errc::full);  // now, not at a later persist()
  REQUIRE(shelf.persist(2).version == 2);
  fallocate_fails = row.fallocate;
  make(shelf, "big", 4 * kMiB).write(pattern(4 * kMiB, 2));
  fallocate_fails = 0;
  REQUIRE(std::filesystem::file_size(path) == longer);
  REQUIRE(blocks_of(path) >= shelf.info().capacity_bytes);  // and no more than was asked for
  REQUIRE(blocks_of(path) < longer);
  REQUIRE(shelf.persist(3).version == 3);
  shelf.close();
  const Shelf again = Shelf::open(path, {.mode = Mode::read, .verify = Verify::on_open});
  Bytes expected = first;
  const Bytes part = pattern(kMiB, 7);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB);
  REQUIRE((value(again, "w") == expected));
  REQUIRE((value(again, "big") == pattern(4 * kMiB, 2)));
}
