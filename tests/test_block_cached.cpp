// Few and small writes of the block medium go through the kernel's page cache: which ones, in what
// order with those that do not, and what a failure there leaves behind.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <thread>

#include <tensorshelf/shelf.hpp>

#include "base/copy_hash.hpp"
#include "block_fixture.hpp"
#include "media/block/os.hpp"
#include "own_mounts.hpp"
#include "refused_call.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kMostCached = 16;  // between two barriers
constexpr std::uint64_t kRoom = 4 * kMiB;

struct Rig {
  explicit Rig(bool io_uring = true, bool direct = true) {
    BlockTuning tuning;
    tuning.io_uring = io_uring;
    tuning.direct = direct;
    tuning.buffer_bytes = kMiB;
    tap->caches = true;
    medium = make_block_medium(file, {.block = tuning}, tapped(tap));
    medium->reserve(kRoom);
    forget();
  }
  void forget() {
    *tap = Tap{};
    tap->caches = true;
  }
  bool write(std::uint64_t at, std::uint64_t size_bytes, std::uint64_t seed) {  // cached?
    const std::size_t before = tap->cached.size();
    const Bytes bytes = pattern(size_bytes, seed);
    const Ticket ticket = medium->write(at, bytes, 5);
    CHECK(ticket.checksum == hash_bytes(bytes, 5));
    last = ticket;
    return tap->cached.size() > before;
  }
  Bytes there(std::uint64_t at, std::uint64_t size_bytes) {
    Bytes bytes = read_back(*medium, at, size_bytes);
    CHECK((looked(at, size_bytes) == bytes));
    return bytes;
  }
  Bytes looked(std::uint64_t at, std::uint64_t size_bytes) const {
    Bytes bytes(size_bytes);
    medium->look(at, bytes);
    return bytes;
  }

  Folder folder;
  std::shared_ptr<ShelfFile> file = folder.create();
  std::shared_ptr<Tap> tap = std::make_shared<Tap>();
  std::unique_ptr<Medium> medium;
  Ticket last;
};

bool has_cache() {
  bool has = false;
  BlockSeam seam;
  seam.wrap = [&](std::unique_ptr<BlockBackend> inner) {
    has = inner->caches();
    return inner;
  };
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {}, seam);
  REQUIRE(has == medium->promises().one_machine);
  return has;
}

bool skipped() {
  if (has_cache()) return false;
  WARN("skipped: the page cache of a file system that this machine alone reaches");
  return true;
}

}  // namespace

TEST_CASE("few and small writes go through the page cache, and all others around it") {
  if (skipped()) return;
  Rig rig(GENERATE(true, false), GENERATE(true, false));
  for (unsigned round = 0; round < 2; ++round) {
    CHECK_FALSE(rig.write(0, 64 * 1024 + 1, 1));
    for (std::uint64_t i = 0; i < kMostCached; ++i) {
      CHECK(rig.write(kMiB + 32 * i * kPageBytes, i % 2 == 0 ? 64 * 1024 : 1, i));
    }
    CHECK_FALSE(rig.write(2 * kMiB, 1, 2));
    rig.medium->store_word(3 * kMiB + 8, 7);  // a word does in any case
    CHECK(rig.tap->cached.back().at == 3 * kMiB);
    CHECK(rig.tap->cached.back().size_bytes == kPageBytes);
    CHECK(rig.tap->cached.size() == kMostCached + 1);
    rig.medium->wait(rig.last);
    CHECK(rig.tap->submitted.size() == 2);
    rig.medium->barrier();
    CHECK(rig.tap->syncs == 1);
    CHECK(rig.tap->submitted.size() == 2);
    rig.forget();
  }
}

TEST_CASE("a commit of a small tensor costs the drive its two flushes, and nothing else") {
  if (skipped()) return;
  const Folder folder;
  const auto tap = std::make_shared<Tap>();
  tap->caches = true;
  auto medium = make_block_medium(folder.create(), {}, tapped(tap));
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
  make(shelf, "w", 5000).write(pattern(5000, 1));
  shelf.persist(1);
  *tap = Tap{};
  tap->caches = true;
  tap->read_now = [](std::uint64_t, std::int64_t) -> std::int64_t { return -EIO; };
  shelf.find("w")->write(pattern(5000, 2));
  shelf.persist(2);
  CHECK(tap->submitted.empty());
  CHECK(tap->cached.size() == 1 + 2 + 2 + 2);  // chunk, leaf, root, words
  CHECK(tap->looks == 1);
  CHECK(tap->syncs == 2);
}

TEST_CASE("writes to one place land in their order, whichever way each goes") {
  if (skipped()) return;
  Rig rig(GENERATE(true, false), GENERATE(true, false));
  const bool waited = GENERATE(true, false);
  const std::uint64_t at = 40 * kPageBytes;
  for (std::uint64_t round = 0; round < 3; ++round) {
    CHECK_FALSE(rig.write(at, 256 * 1024, 10 + round));
    if (waited) rig.medium->wait(rig.last);
    CHECK(rig.write(at + kPageBytes, 2 * kPageBytes, 20 + round) == waited);  // else joined to it
    Bytes expected = pattern(256 * 1024, 10 + round);
    const Bytes small = pattern(2 * kPageBytes, 20 + round);
    std::copy(small.begin(), small.end(), expected.begin() + kPageBytes);
    CHECK((rig.there(at, expected.size()) == expected));
    rig.medium->store_word(at + 2 * kPageBytes + 16, round);
    std::memcpy(&expected[2 * kPageBytes + 16], &round, sizeof round);
    CHECK((rig.there(at, expected.size()) == expected));
  }
  CHECK(rig.write(at, kPageBytes, 30));
  CHECK_FALSE(rig.write(at, 128 * 1024, 31));
  CHECK((rig.there(at, 128 * 1024) == pattern(128 * 1024, 31)));
  rig.medium->barrier();
  rig.medium->wait(rig.last);
  CHECK((rig.there(at, 128 * 1024) == pattern(128 * 1024, 31)));
}

TEST_CASE("beside a write that is on its way around the cache none goes through it") {
  if (skipped()) return;
  Rig rig(GENERATE(true, false), GENERATE(true, false));
  CHECK_FALSE(rig.write(0, kMiB, 1));  // a buffer, which leaves at once
  CHECK(rig.tap->submitted.size() == 1);
  CHECK_FALSE(rig.write(2 * kMiB, kPageBytes, 2));
  rig.medium->store_word(3 * kMiB + 8, 7);
  CHECK(rig.tap->cached.empty());
  rig.medium->barrier();
  CHECK(rig.tap->submitted.size() == 2);  // the word; what is not waited for need not
  rig.medium->wait(rig.last);
  CHECK(rig.write(2 * kMiB, kPageBytes, 3));
  CHECK((rig.there(0, kMiB) == pattern(kMiB, 1)));
  CHECK((rig.there(2 * kMiB, kPageBytes) == pattern(kPageBytes, 3)));
  std::uint64_t word = 0;
  rig.medium->read(3 * kMiB + 8, std::as_writable_bytes(std::span(&word, 1)));
  CHECK(word == 7);
}

// What /proc/self shows are the descriptors of the process's first thread.
TEST_CASE("a thread with descriptors of its own writes to no other's file") {
  const Folder folder;
  const auto victim = folder.file("victim");
  const Bytes before = pattern(kMiB, 9);
  const Bytes after = pattern(kPageBytes, 1);
  Bytes there;
  std::barrier meeting(2);
  std::thread apart([&] {
    ::unshare(CLONE_FILES);
    meeting.arrive_and_wait();
    meeting.arrive_and_wait();
    const auto file = std::make_shared<ShelfFile>(ShelfFile::create(folder.file("a.shelf")));
    file->publish(false);
    const auto medium = make_block_medium(file, {});
    medium->reserve(kMiB);
    medium->write(0, after, 0);
    medium->store_word(8192, 3);
    medium->barrier();
    there = read_back(*medium, 0, kPageBytes);
  });
  meeting.arrive_and_wait();
  std::vector<int> descriptors;
  for (int i = 0; i < 60; ++i) {
    descriptors.push_back(::open(victim.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  const auto size = static_cast<ssize_t>(before.size());
  CHECK(::pwrite(descriptors.back(), before.data(), before.size(), 0) == size);
  meeting.arrive_and_wait();
  apart.join();
  for (const int descriptor : descriptors) ::close(descriptor);
  CHECK((bytes_on_disk(victim) == before));
  CHECK((there == after));
}

TEST_CASE("what follows a small write up to the next page is zeros, and no more of it") {
  if (skipped()) return;
  const std::uint64_t size_bytes = GENERATE(std::uint64_t{1}, 4095, 4096, 4097, 65535, 65536);
  Rig rig;
  CHECK_FALSE(rig.write(0, 128 * 1024, 1));
  rig.medium->wait(rig.last);
  CHECK(rig.write(0, size_bytes, 2));
  Bytes expected = pattern(128 * 1024, 1);
  const Bytes small = pattern(size_bytes, 2);
  std::copy(small.begin(), small.end(), expected.begin());
  const auto end = static_cast<std::ptrdiff_t>(round_up(size_bytes, kPageBytes));
  std::fill(expected.begin() + static_cast<std::ptrdiff_t>(size_bytes), expected.begin() + end,
            std::byte{0});
  CHECK((rig.there(0, expected.size()) == expected));
}

TEST_CASE("a look sees what another has written, and a read too") {
  if (skipped()) return;
  Rig rig;
  CHECK(rig.write(0, kPageBytes, 1));
  const Bytes before = pattern(kPageBytes, 1);
  CHECK((rig.looked(8, 16) == Bytes(before.begin() + 8, before.begin() + 24)));
  const int fd = ::open(rig.file->path().c_str(), O_RDWR | O_CLOEXEC);
  if (GENERATE(true, false)) ::fcntl(fd, F_SETFL, O_DIRECT);
  const PageMemory page(kPageBytes);
  const Bytes bytes = pattern(kPageBytes, 2);
  std::copy(bytes.begin(), bytes.end(), page.bytes().begin());
  REQUIRE(::pwrite(fd, page.bytes().data(), kPageBytes, 0) == kPageBytes);
  ::close(fd);
  CHECK((rig.there(0, kPageBytes) == bytes));
}

TEST_CASE("a small write that fails, or comes short, is kept and told by every later call") {
  if (skipped()) return;
  const std::int64_t result = GENERATE(std::int64_t{-EIO}, -ENOSPC, 0, 512);
  const bool word = GENERATE(true, false);
  CAPTURE(result, word);
  Rig rig;
  CHECK(rig.write(0, kPageBytes, 1));
  rig.tap->write_cached = [&](unsigned, std::int64_t) { return result; };
  const auto fails = [&](const std::function<void()>& call) {
    const auto error = error_of(call);
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == (result < 0 ? static_cast<int>(-result) : 0));
  };
  if (word) {
    fails([&] { rig.medium->store_word(8, 1); });
  } else {
    fails([&] { rig.write(kMiB, kPageBytes, 2); });
  }
  rig.tap->write_cached = nullptr;
  fails([&] { rig.medium->write(0, pattern(1, 1), 0); });
  fails([&] { rig.medium->write(0, pattern(kMiB, 1), 0); });
  fails([&] { rig.medium->store_word(8, 1); });
  fails([&] { rig.medium->wait(rig.last); });
  fails([&] { rig.medium->barrier(); });
  CHECK(rig.tap->syncs == 0);
  CHECK((read_back(*rig.medium, 8192, 16) == Bytes(16)));  // reads go on
}

TEST_CASE("a flush that fails behind small writes fails the medium for good") {
  if (skipped()) return;
  Rig rig;
  CHECK(rig.write(0, kPageBytes, 1));
  rig.tap->sync = [](int) { return -EIO; };
  CHECK(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  rig.tap->sync = nullptr;
  CHECK(code_of([&] { rig.write(0, kPageBytes, 1); }) == Errc::io);
  CHECK(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  CHECK(rig.tap->syncs == 1);
}

TEST_CASE("without a second descriptor all writes go around the page cache") {
  const Folder folder;
  const auto file = folder.create();
  BlockSeam seam;
  bool has = true;
  seam.wrap = [&](std::unique_ptr<BlockBackend> inner) {
    has = inner->caches();
    return inner;
  };
  const std::string said = in_child([&]() -> std::string {
    if (!refuse_call(SYS_openat, EACCES)) return "no seccomp";
    const auto medium = make_block_medium(file, {}, seam);
    if (has) return "it has a page cache";
    medium->reserve(kMiB);
    medium->wait(medium->write(0, pattern(kPageBytes, 1), 0));
    medium->store_word(8192, 3);
    medium->barrier();
    return read_back(*medium, 0, kPageBytes) == pattern(kPageBytes, 1) ? "" : "other bytes";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  CHECK(said == "");
}

TEST_CASE("a medium that only reads has no descriptor to write through") {
  const Folder folder;
  make_block_medium(folder.create(), {})->reserve(kMiB);
  bool has = true;
  BlockSeam seam;
  seam.wrap = [&](std::unique_ptr<BlockBackend> inner) {
    has = inner->caches();
    return inner;
  };
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), false));
  const auto medium = make_block_medium(file, {}, seam);
  CHECK_FALSE(has);
  CHECK((read_back(*medium, 0, kPageBytes) == Bytes(kPageBytes)));
}

namespace {

// Pages of a file that the kernel has in its cache.
std::ptrdiff_t cached_pages(const std::string& path, std::size_t pages) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const at = ::mmap(nullptr, pages * kPageBytes, PROT_READ, MAP_SHARED, fd, 0);
  REQUIRE(at != MAP_FAILED);
  std::vector<unsigned char> there(pages);
  REQUIRE(::mincore(at, pages * kPageBytes, there.data()) == 0);
  ::munmap(at, pages * kPageBytes);
  ::close(fd);
  return std::ranges::count_if(there, [](unsigned char one) { return (one & 1) != 0; });
}

}  // namespace

TEST_CASE("a writer trusts no page that another has left in the cache") {
  if (skipped()) return;
  constexpr std::size_t kPages = 64;
  const Folder folder;
  const auto file = folder.create();
  const std::string path = folder.file();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const Bytes bytes = pattern(kPages * kPageBytes, 1);
  REQUIRE(::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  REQUIRE(::fsync(fd) == 0);  // clean, as a flush that fails leaves them
  ::close(fd);
  if (cached_pages(path, kPages) == 0) return;  // such a file system keeps none
  const auto medium = make_block_medium(file, {});
  CHECK(cached_pages(path, kPages) == 0);
}

TEST_CASE("a file system that others may reach has no page cache to trust") {
  const Folder folder;
  const std::string said = in_child([&]() -> std::string {
    const std::string there = folder.file("there").native();
    if (!mount_small(there, 8)) return "no mount";
    for (const char* name : {"/lower", "/upper", "/work", "/all"}) {
      std::filesystem::create_directory(there + name);
    }
    const std::string layers =
        "lowerdir=" + there + "/lower,upperdir=" + there + "/upper,workdir=" + there + "/work";
    if (::mount("overlay", (there + "/all").c_str(), "overlay", 0, layers.c_str()) != 0) {
      return "no mount";
    }
    bool has = true;
    BlockSeam seam;
    seam.wrap = [&](std::unique_ptr<BlockBackend> inner) {
      has = inner->caches();
      return inner;
    };
    const auto file = std::make_shared<ShelfFile>(ShelfFile::create(there + "/all/a.shelf"));
    const auto medium = make_block_medium(file, {}, seam);
    if (medium->promises().one_machine) return "it is this machine's alone";
    return has ? "it has a page cache" : "";
  });
  if (said == "no mount") {
    WARN("skipped: an overlay, which needs the right to mount");
    return;
  }
  CHECK(said == "");
}
