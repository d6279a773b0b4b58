// What the media and files ask of the system, call by call, where nothing but the call itself shows
// it: a failed flush that is not repeated, the fsync of a directory, memory that no child inherits,
// a call that a signal interrupts. This program puts functions of its own in place of the C
// library's.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "base/huge_pages.hpp"
#include "block_fixture.hpp"
#include "media/file_system.hpp"
#include "media/media.hpp"
#include "media/pmem/medium.hpp"
#include "scratch.hpp"
#include "tensorshelf/shelf.hpp"

namespace {

// Empty: the real call alone. Each is set and called by the test's own thread.
std::function<int(int fd)> on_fdatasync;    // the errno that it fails with; 0: the real call
std::function<int(int fd)> on_fsync;        // the same
std::function<void(int fd)> on_flock;       // what others do just before
std::function<void(struct statfs&)> facts;  // changes what the system says
std::optional<uid_t> user;
// Where a mapping is to lie, if there is room.
std::function<void*(std::size_t size)> on_mmap;
std::function<int()> on_fallocate;  // the errno that it fails with; 0: the real call
std::function<int()> on_kill;       // the same
std::function<int()> on_ftruncate;  // the same

int fails(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" int fdatasync(int fd) {
  if (const int error = on_fdatasync ? on_fdatasync(fd) : 0; error != 0) return fails(error);
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

extern "C" int fsync(int fd) {
  if (const int error = on_fsync ? on_fsync(fd) : 0; error != 0) return fails(error);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int flock(int fd, int operation) noexcept {
  if (on_flock) on_flock(fd);
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

extern "C" int fallocate(int fd, int mode, off_t at, off_t size) {
  if (const int error = on_fallocate ? on_fallocate() : 0; error != 0) return fails(error);
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, size));
}

extern "C" int ftruncate(int fd, off_t size) noexcept {
  if (const int error = on_ftruncate ? on_ftruncate() : 0; error != 0) return fails(error);
  return static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}

extern "C" void* mmap(void* at, std::size_t size, int protection, int flags, int fd,
                      off_t offset) noexcept {
  if (on_mmap) at = on_mmap(size);
  const long mapped = ::syscall(SYS_mmap, at, size, protection, flags, fd, offset);
  return reinterpret_cast<void*>(mapped);
}

extern "C" int kill(pid_t process, int signal) noexcept {
  if (const int error = on_kill ? on_kill() : 0; error != 0) return fails(error);
  return static_cast<int>(::syscall(SYS_kill, process, signal));
}

extern "C" int fstatfs(int fd, struct statfs* found) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_fstatfs, fd, found));
  if (facts) facts(*found);
  return result;
}

extern "C" uid_t geteuid() noexcept {
  return user ? *user : static_cast<uid_t>(::syscall(SYS_geteuid));
}

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

struct stat stat_of(int fd) {
  struct stat node {};
  REQUIRE(::fstat(fd, &node) == 0);
  return node;
}

bool leads_to(const fs::path& path, int fd) {
  struct stat named {};
  return ::stat(path.c_str(), &named) == 0 && named.st_ino == stat_of(fd).st_ino;
}

// Addresses where nothing is mapped.
constexpr std::size_t kRoom = 16 * kMiB;
std::byte* free_room() {
  void* const room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(room != MAP_FAILED);
  REQUIRE(::munmap(room, kRoom) == 0);
  return static_cast<std::byte*>(room);
}

// In huge pages, of the mappings that have a part there.
std::uint64_t huge_bytes(std::span<const std::byte> place) {
  const auto first = reinterpret_cast<std::uintptr_t>(place.data());
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t bytes = 0;
  bool there = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0;
    unsigned long long number = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &number) == 2) {
      there = begin < first + place.size() && first < number;
    } else if (there && std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &number) == 1) {
      bytes += number << 10;
    }
  }
  return bytes;
}

// Whether this kernel makes so much of what was touched into huge pages, and has as many now.
bool huge_pages_are_made(std::uint64_t size_bytes) {
  const PageMemory tried(size_bytes);
  std::ranges::fill(tried.bytes(), std::byte{1});
  make_huge_pages(tried.bytes());
  const bool made = huge_bytes(tried.bytes()) >= size_bytes;
  if (!made) WARN("skipped: the kernel has no huge pages for " << size_bytes << " bytes");
  return made;
}

// The ways in which a file gets its name.
enum class Way { fresh, replace, over_empty };

void publish(ShelfFile& file, Way way) {
  way == Way::over_empty ? file.publish_over_empty() : file.publish(way == Way::replace);
}

}  // namespace

TEST_CASE("a failed fdatasync is told, and is not called again") {
  const Folder folder;
  const auto file = folder.create();
  int calls = 0;
  on_fdatasync = [&](int) { return ++calls == 1 ? EIO : 0; };  // the second would seem to go well
  const int result = sync_once(file->fd());
  on_fdatasync = {};
  CHECK(result == -EIO);
  CHECK(calls == 1);
}

TEST_CASE("staging memory is not there in a forked child") {
  const PageMemory memory(GENERATE(std::uint64_t{kPageBytes}, std::uint64_t{4 * kMiB}));
  memory.bytes()[0] = std::byte{1};
  CHECK(scratch::exited_well(scratch::in_child([&] {
    unsigned char resident = 0;
    return ::mincore(memory.bytes().data(), kPageBytes, &resident) != 0 && errno == ENOMEM;
  })));
}

TEST_CASE("staging memory that huge pages fit into lies within what was mapped for it") {
  constexpr std::uint64_t kHuge = 2 * kMiB;
  const auto size = GENERATE_COPY(std::uint64_t{kPageBytes}, kHuge - kPageBytes, kHuge,
                                  kHuge + kPageBytes, 2 * kHuge);
  CAPTURE(size);
  // A kernel that knows of no huge pages maps at any page: here right behind where one begins.
  const auto place = round_up(reinterpret_cast<std::uintptr_t>(free_room()), kHuge) + kPageBytes;
  std::size_t mapped_bytes = 0;
  on_mmap = [&](std::size_t bytes) {
    mapped_bytes = bytes;
    return reinterpret_cast<void*>(place);
  };
  const PageMemory memory(size);
  on_mmap = {};
  const auto first = reinterpret_cast<std::uintptr_t>(memory.bytes().data());
  REQUIRE(memory.bytes().size() == size);
  CHECK(first == (size < kHuge ? place : round_up(place, kHuge)));
  CHECK(first + size <= place + mapped_bytes);
}

TEST_CASE("staging memory that large writes go through lies in huge pages") {
  constexpr std::uint64_t kBuffer = 2 * kMiB;
  constexpr unsigned kBuffers = 3;
  if (!huge_pages_are_made(kBuffers * kBuffer)) return;
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  std::byte* const room = free_room();
  on_mmap = [&](std::size_t bytes) { return bytes > kBuffers * kBuffer ? room : nullptr; };
  const Folder folder;
  const auto medium = make_block_medium(
      folder.create(),
      {.block = {.buffer_bytes = kBuffer, .queue_depth = kBuffers, .io_uring = io_uring}});
  on_mmap = {};
  medium->reserve(16 * kMiB);
  const Bytes data(kMiB, std::byte{7});
  for (std::uint64_t at = 0; at < 2 * kBuffers; ++at) medium->write(at * kMiB, data, 0);
  medium->wait(Ticket{~std::uint64_t{0}, 0});
  CHECK(huge_bytes({room, kRoom}) >= kBuffers * kBuffer);
}

TEST_CASE("the room that versions are copied through lies in huge pages") {
#ifdef __SANITIZE_ADDRESS__
  return;  // its allocator has touched a part of the room in small pages by then
#endif
  if (!huge_pages_are_made(4 * kMiB)) return;
  const auto room = std::make_unique_for_overwrite<HugeRoom<4 * kMiB>>();
  std::ranges::fill(room->bytes, std::byte{1});
  CHECK(huge_bytes(room->bytes) >= 4 * kMiB);
}

TEST_CASE("memory that large reads go through lies in huge pages") {
  if (!huge_pages_are_made(2 * kMiB)) return;
  const bool small_before = GENERATE(false, true);
  CAPTURE(small_before);
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {});
  medium->reserve(4 * kMiB);
  std::byte* const room = free_room();
  on_mmap = [&](std::size_t bytes) { return bytes > 2 * kMiB ? room : nullptr; };
  Bytes bytes(2 * kMiB);
  const auto odd = std::span(bytes).subspan(1);  // in no place that the drive could write to
  if (small_before) medium->read(0, odd.first(100));
  medium->read(0, odd);
  on_mmap = {};
  CHECK(huge_bytes({room, kRoom}) >= 2 * kMiB);
}

TEST_CASE("a write that the system cuts short is carried on, and its end is told") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Folder folder;
  CHECK(scratch::exited_well(scratch::in_child([&] {  // a limit is for the life of a process
    ::signal(SIGXFSZ, SIG_IGN);
    const auto medium = make_block_medium(folder.create(), {.block = {.io_uring = io_uring}});
    medium->reserve(4 * kMiB);
    const rlimit limit{2 * kMiB + kMiB / 2, 2 * kMiB + kMiB / 2};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const Bytes data(kMiB, std::byte{7});
    const auto error = error_of([&] { medium->wait(medium->write(2 * kMiB, data, 0)); });
    return error && error->code() == Errc::io && error->os_error() == EFBIG;
  })));
}

TEST_CASE("publish: the directory is flushed after the name leads to the new file") {
  const Way way = GENERATE(Way::fresh, Way::replace, Way::over_empty);
  CAPTURE(static_cast<int>(way));
  const Folder folder;
  const fs::path path = folder.file();
  if (way != Way::fresh) scratch::put(path, "");
  auto file = ShelfFile::create(path);
  bool refuse = false;
  bool flushed = false;
  on_fsync = [&](int fd) {
    if (!S_ISDIR(stat_of(fd).st_mode) || !leads_to(path, file.fd())) return 0;
    flushed = true;
    return refuse ? EIO : 0;
  };
  SECTION("done") { publish(file, way); }
  SECTION("refused: an error") {
    refuse = true;
    const auto error = error_of([&] { publish(file, way); });
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == EIO);
  }
  on_fsync = {};
  CHECK(flushed);
}

TEST_CASE("open by a link: the directory that it leads to is flushed") {
  const Folder folder;
  const fs::path there = folder.file().parent_path() / "there";
  fs::create_directory(there);
  scratch::put(there / "run.shelf", "");
  fs::create_symlink(there / "run.shelf", folder.file());
  bool flushed = false;
  on_fsync = [&](int fd) {
    flushed |= leads_to(there, fd);
    return 0;
  };
  { ShelfFile::open(folder.file(), true); }
  on_fsync = {};
  CHECK(flushed);
}

TEST_CASE("a name that is given is durable") {
  const Folder folder;
  const fs::path left = folder.file().native() + ".left";
  scratch::put(left, "bytes");
  bool flushed = false;
  on_fsync = [&](int fd) {
    flushed |= S_ISDIR(stat_of(fd).st_mode) && fs::exists(folder.file());
    return 0;
  };
  give_name(left, folder.file());
  on_fsync = {};
  CHECK(flushed);
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("a shelf that was replaced in part is replaced again, where a medium has no name yet") {
  const Folder folder;
  const fs::path path = folder.file();
  const fs::path part = path.parent_path() / "part";
  const auto replace = [&] {
    Shelf::open(path, {.mode = Mode::replace, .also = {part.native()}}).persist();
  };
  replace();
  const auto before = scratch::contents(path);
  on_fsync = [&](int fd) {  // of the medium's file, once the shelf has its name
    const bool named = !S_ISDIR(stat_of(fd).st_mode) && scratch::contents(path) != before;
    return named ? ENOSPC : 0;
  };
  const auto error = error_of(replace);
  on_fsync = {};
  REQUIRE(error);
  CHECK(error->os_error() == ENOSPC);
  CHECK(error->remedy().find("mode=\"w\"") != std::string::npos);
  const auto refused = [&](Mode mode) {
    return error_of([&] { Shelf::open(path, {.mode = mode, .also = {part.native()}}); });
  };
  CHECK(refused(Mode::read)->code() == Errc::medium_missing);
  CHECK(refused(Mode::append)->code() == Errc::medium_missing);
  const auto old_part = scratch::contents(part);
  on_fsync = [&](int fd) {  // of its directory, once the medium that was left has its name
    return S_ISDIR(stat_of(fd).st_mode) && scratch::contents(part) != old_part ? EIO : 0;
  };
  const auto unsure = error_of(replace);
  on_fsync = {};
  REQUIRE(unsure);
  CHECK(unsure->os_error() == EIO);
  replace();
  CHECK_FALSE(refused(Mode::append));
  CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 2);
}

TEST_CASE("a medium that another shelf took meanwhile is not replaced") {
  const Folder folder;
  const fs::path part = folder.file().parent_path() / "part";
  const fs::path other = folder.file().native() + ".other";
  scratch::put(part, "");  // blank, as both shelves find it
  on_fsync = [&](int fd) {
    if (S_ISDIR(stat_of(fd).st_mode) || !fs::is_empty(part)) return 0;
    on_fsync = {};
    Shelf::open(other, {.mode = Mode::create, .also = {part.native()}}).persist(7);
    return 0;
  };
  const auto error = error_of(
      [&] { Shelf::open(folder.file(), {.mode = Mode::create, .also = {part.native()}}); });
  on_fsync = {};
  REQUIRE(error);
  CHECK(error->code() == Errc::exists);
  CHECK(Shelf::open(other, {.mode = Mode::read}).step() == 7U);
}

TEST_CASE("publish over an empty file: bytes that came before the lock are seen") {
  const Folder folder;
  const fs::path path = folder.file();
  scratch::put(path, "");
  auto file = ShelfFile::create(path);
  on_flock = [&](int) { scratch::put(path, "x"); };
  const auto error = error_of([&] { file.publish_over_empty(); });
  on_flock = {};
  REQUIRE(error);
  CHECK(error->code() == Errc::exists);
  CHECK(scratch::contents(path) == "x");
}

TEST_CASE("open: a holder that lives is not waited for, though it be another user's") {
  const int answer = GENERATE(0, EPERM);  // to whether it lives
  CAPTURE(answer);
  const Folder folder;
  const auto held = folder.create();
  const bool named =
      !scratch::contents("/proc/locks").empty();  // else nobody can tell who holds it
  const pid_t holder = ::getpid();
  CHECK(scratch::exited_well(scratch::in_child([&] {
    int tries = 0;
    on_flock = [&](int) {
      if (named && ++tries > 1) ::_exit(2);  // it waits
    };
    on_kill = [&] { return answer; };
    const auto error = error_of([&] { ShelfFile::open(folder.file(), true); });
    if (!error || error->code() != Errc::busy) return false;
    return !named || contains(error->what(), fmt::format("open for writing by pid {}", holder));
  })));
}

TEST_CASE("growing goes on where signals interrupt it") {
  const bool mapped = GENERATE(true, false);
  CAPTURE(mapped);
  if (mapped && !pmem_supported()) return;
  const Folder folder(mapped ? fs::path("/dev/shm") : fs::current_path());
  const auto medium =
      mapped ? make_pmem_medium(folder.create(), {}) : make_block_medium(folder.create(), {});
  int interrupts = 3;
  on_fallocate = [&] { return interrupts > 0 ? (--interrupts, EINTR) : 0; };
  CHECK_NOTHROW(medium->reserve(8 * kMiB));
  on_fallocate = {};
  CHECK(interrupts == 0);
  CHECK(fs::file_size(folder.file()) == 8 * kMiB);
}

TEST_CASE("a shrink that the system refuses leaves all as it was, and one interrupted goes on") {
  const bool mapped = GENERATE(true, false);
  const int cause = GENERATE(EIO, EPERM, EINTR);
  CAPTURE(mapped, cause);
  if (mapped && !pmem_supported()) return;
  const Folder folder(mapped ? fs::path("/dev/shm") : fs::current_path());
  GuardedMedium medium(mapped ? make_pmem_medium(folder.create(), {})
                              : make_block_medium(folder.create(), {}));
  REQUIRE(medium.reserve(8 * kMiB) == 8 * kMiB);
  const Bytes data = pattern(kMiB, 1);
  medium.wait(medium.write(6 * kMiB, data, 0));
  medium.store_word(7 * kMiB, 1);
  medium.barrier();
  int refusals = 1;
  on_ftruncate = [&] { return refusals > 0 ? (--refusals, cause) : 0; };
  std::uint64_t left = 0;
  const auto error = error_of([&] { left = medium.shrink(6 * kMiB); });
  on_ftruncate = {};
  CHECK(refusals == 0);
  CHECK_FALSE(medium.failed());
  if (cause == EINTR) {
    CHECK_FALSE(error);
    CHECK(left == 6 * kMiB);
    return;
  }
  REQUIRE(error);
  CHECK(error->code() == Errc::io);
  CHECK(error->os_error() == cause);
  CHECK(contains(error->what(), folder.file().native()));
  CHECK_FALSE(error->remedy().empty());
  CHECK(medium.size() == 8 * kMiB);
  CHECK(fs::file_size(folder.file()) == 8 * kMiB);
  CHECK((read_back(medium, 6 * kMiB, kMiB) == data));
  medium.store_word(7 * kMiB + 8, 2);
  medium.wait(medium.write(7 * kMiB + kPageBytes, std::span(data).first(kPageBytes), 0));
  medium.barrier();
  CHECK(medium.reserve(8 * kMiB) == 8 * kMiB);
  const Bytes words = read_back(medium, 7 * kMiB, 16);
  CHECK(words[0] == std::byte{1});
  CHECK(words[8] == std::byte{2});
  CHECK(medium.shrink(6 * kMiB) == 6 * kMiB);
}

TEST_CASE("a file that somebody else cut shorter still is not made longer by a shrink") {
  const bool mapped = GENERATE(true, false);
  CAPTURE(mapped);
  if (mapped && !pmem_supported()) return;
  const Folder folder(mapped ? fs::path("/dev/shm") : fs::current_path());
  const auto medium =
      mapped ? make_pmem_medium(folder.create(), {}) : make_block_medium(folder.create(), {});
  medium->reserve(8 * kMiB);
  fs::resize_file(folder.file(), kMiB);
  CHECK_NOTHROW(medium->shrink(2 * kMiB));
  CHECK(fs::file_size(folder.file()) == kMiB);
}

TEST_CASE("holes that are filled by rewriting them take no write under way with them") {
  const Folder folder;
  const auto file = folder.create();
  fs::resize_file(folder.file(), 4 * kMiB);  // a hole, as `cp --sparse` leaves them
  const auto tap = std::make_shared<Tap>();
  const auto medium = make_block_medium(
      file, {.block = {.buffer_bytes = kMiB, .queue_depth = 4, .io_uring = false}}, tapped(tap));
  const Bytes data = pattern(kMiB, 1);
  const Ticket ticket = medium->write(0, data, 0);  // a full buffer: begun, and not performed yet
  tap->read_now = [&](std::uint64_t, std::int64_t real) {
    medium->wait(ticket);  // at the worst moment: between the read and the write of a page
    return real;
  };
  on_fallocate = [] { return EOPNOTSUPP; };
  CHECK_NOTHROW(medium->reserve(4 * kMiB));
  on_fallocate = {};
  tap->read_now = {};
  medium->barrier();
  CHECK((read_back(*medium, 0, kMiB) == data));
  CHECK((read_back(*medium, kMiB, kMiB) == Bytes(kMiB)));
}

TEST_CASE("what is kept for root is free for root alone") {
  const Folder folder;
  const auto file = folder.create();
  facts = [](struct statfs& system) {
    system.f_bsize = 4096;
    system.f_blocks = 1000;
    system.f_bfree = 100;
    system.f_bavail = 50;
  };
  user = GENERATE(uid_t{0}, uid_t{1000});
  const std::uint64_t free = *user == 0 ? 100 : 50;
  CHECK_FALSE(exceeds_free_space(file->fd(), free * 4096));
  CHECK(exceeds_free_space(file->fd(), free * 4096 + 1));
  facts = {};
  user = {};
}

TEST_CASE("a file system that tells no size is not taken for a full one") {
  const bool mapped = GENERATE(true, false);
  const bool holes = GENERATE(true, false);
  CAPTURE(mapped, holes);
  if (mapped && !pmem_supported()) return;
  const Folder folder(mapped ? fs::path("/dev/shm") : fs::current_path());
  const auto file = folder.create();
  if (holes) fs::resize_file(folder.file(), 2 * kMiB);
  facts = [](struct statfs& system) {  // as a tmpfs without a limit
    system.f_blocks = 0;
    system.f_bfree = 0;
    system.f_bavail = 0;
  };
  CHECK_FALSE(exceeds_free_space(file->fd(), 1));
  CHECK_FALSE(exceeds_free_space(file->fd(), 1ULL << 60));
  {
    const auto medium = mapped ? make_pmem_medium(file, {}) : make_block_medium(file, {});
    std::uint64_t room = 0;
    CHECK_NOTHROW(room = medium->reserve(4 * kMiB));
    CHECK(room == 4 * kMiB);
  }
  facts = {};
}

TEST_CASE("a region that declares no power-fail domain has none; without a region, who knows") {
  const scratch::Directory sysfs;
  const Folder folder;
  const auto file = folder.create();
  const dev_t device = stat_of(file->fd()).st_dev;
  const auto domain = [&] { return power_fail_domain(file->fd(), sysfs.path()); };
  const auto lies_at = [&](const char* place) {  // as the kernel lays it out
    fs::create_directories(sysfs / place);
    fs::create_directories(sysfs / "dev/block");
    fs::create_directory_symlink(
        sysfs / place, sysfs.path() / fmt::format("dev/block/{}:{}", major(device), minor(device)));
  };
  CHECK(domain() == PowerFailDomain::unknown);
  SECTION("no persistent memory") {
    lies_at("devices/pci0/block/sda/sda1");
    CHECK(domain() == PowerFailDomain::unknown);
  }
  SECTION("persistent memory") {
    lies_at("devices/ndbus0/region0/namespace0.0/block/pmem0");
    CHECK(domain() == PowerFailDomain::none);  // no such file at all
    const auto declared = [&](const char* name) {
      scratch::put(sysfs / "devices/ndbus0/region0/persistence_domain", name);
      return domain();
    };
    CHECK(declared("") == PowerFailDomain::none);
    CHECK(declared("unknown\n") == PowerFailDomain::none);
    CHECK(declared("memory_controller\n") == PowerFailDomain::memory_controller);
    CHECK(declared("cpu_cache\n") == PowerFailDomain::cpu_cache);
  }
}
