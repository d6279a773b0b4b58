// Growth of a mapped shelf that the system refuses half-way: after some of the file's new room,
// after all of it, after one of the two mappings. Nothing is lost, no room stays behind, and the
// medium can grow again. The system's calls are those below, which refuse on demand.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bytes.hpp"
#include "media/media.hpp"
#include "pmem_fixture.hpp"

namespace {

// Refuses the nth call from now, once.
struct Refusal {
  int calls_left = 0;
  int error = 0;

  bool due() {
    if (calls_left == 0 || --calls_left > 0) return false;
    errno = error;
    return true;
  }
};
Refusal refused_view;  // a mapping of a file to read
Refusal refused_work;  // and to write
Refusal refused_addresses;
Refusal refused_fallocate;
Refusal refused_fsync;

}  // namespace

// In front of the C library's, for libpmem2 too.
extern "C" {
void* mmap(void* at, std::size_t size, int protection, int flags, int fd, off_t from) noexcept {
  Refusal& refusal = (protection & PROT_WRITE) == 0 ? refused_view : refused_work;
  if ((flags & MAP_TYPE) != MAP_PRIVATE && refusal.due()) return MAP_FAILED;
  const bool addresses = (flags & MAP_ANONYMOUS) != 0 && protection == PROT_NONE;
  if (addresses && refused_addresses.due()) return MAP_FAILED;
  const long place = ::syscall(SYS_mmap, at, size, protection, flags, fd, from);
  return reinterpret_cast<void*>(place);  // MAP_FAILED is -1, too
}
int fallocate(int fd, int mode, off_t from, off_t size) {
  if (refused_fallocate.due()) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, from, size));
}
int fsync(int fd) {
  if (refused_fsync.due()) return -1;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
}

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

TEST_CASE("growth refused half-way: an error, nothing lost, and room again later", "[pmem]") {
  struct Row {
    const char* what;
    Refusal& call;
    int nth;
    int error;
    Errc code;
    bool room_stays;  // the file is left longer, of which the next open makes room
  };
  const Row rows[] = {
      {"no blocks at all", refused_fallocate, 1, ENOSPC, Errc::full, false},
      {"no blocks for the second piece", refused_fallocate, 2, ENOSPC, Errc::full, false},
      {"quota ends in the second piece", refused_fallocate, 2, EDQUOT, Errc::full, false},
      {"memory limit in the second piece", refused_fallocate, 2, ENOMEM, Errc::full, false},
      {"a device error in the second piece", refused_fallocate, 2, EIO, Errc::io, false},
      {"the new size cannot be synced", refused_fsync, 1, EIO, Errc::io, true},
      {"the mapping for views", refused_view, 1, ENOMEM, Errc::io, false},
      {"the mapping for writes", refused_work, 1, ENOMEM, Errc::io, false},
      {"the mapping for writes, no more of them", refused_work, 1, EAGAIN, Errc::io, false},
  };
  for (const std::string& place : mapped_places()) {
    for (const Row& row : rows) {
      INFO(place << ": " << row.what);
      const scratch::Directory dir(place);
      const fs::path path = dir / "s";
      const auto medium = make_pmem_medium(open_file(path), {});
      const std::uint64_t size = medium->reserve(2 * kMebibyte);
      const auto data = pattern(kMebibyte, 3);
      medium->write(kMebibyte, data, 0);
      const auto view = medium->view({kMebibyte, kMebibyte});

      const std::uint64_t wanted = 68 * kMebibyte;  // in two pieces, of 64 MiB and less
      row.call = {row.nth, row.error};
      const auto error = error_of([&] { medium->reserve(wanted); });
      const bool reached = row.call.calls_left == 0;
      row.call = {};
      CHECK(reached);
      REQUIRE(error);
      INFO(error->what());
      CHECK(error->code() == row.code);
      CHECK(error->os_error() == row.error);
      CHECK(contains(error->what(), path.native()));
      CHECK_FALSE(error->remedy().empty());

      CHECK(medium->size() == size);
      CHECK((fs::file_size(path) == size) != row.room_stays);
      CHECK(same(view, data));
      medium->write(0, data, 0);
      medium->barrier();
      CHECK(same(medium->view({0, kMebibyte}), data));

      const std::uint64_t grown = medium->reserve(wanted);
      CHECK(grown >= wanted);
      CHECK(medium->view({0, 1}).data() + kMebibyte == view.data());
      CHECK(same(view, data));
      medium->write(grown - kMebibyte, data, 0);
      CHECK(same(medium->view({grown - kMebibyte, kMebibyte}), data));
    }
  }
}

TEST_CASE("what was given back is mapped still, and grows again where it was", "[pmem]") {
  constexpr std::uint64_t kEnd = 3 * kMebibyte + kPageBytes;  // within a huge page
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const fs::path path = dir / "s";
    const auto medium = make_pmem_medium(open_file(path), {});
    medium->reserve(8 * kMebibyte);
    const auto data = pattern(kMebibyte, 3);
    medium->write(2 * kMebibyte, data, 0);
    medium->write(6 * kMebibyte, data, 0);
    const auto view = medium->view({2 * kMebibyte, kMebibyte});
    REQUIRE(medium->shrink(kEnd) == kEnd);
    CHECK(fs::file_size(path) == kEnd);

    std::vector<std::byte> bytes(kMebibyte);
    const auto error = error_of([&] { medium->read(6 * kMebibyte, bytes); });  // no guard around it
    REQUIRE(error);
    CHECK(error->code() == Errc::truncated);
    const auto source = medium->view({6 * kMebibyte, kMebibyte});
    CHECK(code_of([&] { medium->write(0, source, 0); }) == Errc::corrupt);

    // All that the mappings have already, and more: refused half-way it ends where it did.
    for (const std::uint64_t wanted : {8 * kMebibyte, 80 * kMebibyte}) {
      CAPTURE(wanted);
      refused_fallocate = {wanted == 8 * kMebibyte ? 1 : 2, ENOSPC};
      CHECK(code_of([&] { medium->reserve(wanted); }) == Errc::full);
      refused_fallocate = {};
      CHECK(medium->size() == kEnd);
      CHECK(fs::file_size(path) == kEnd);
    }
    refused_view = {1, ENOMEM};
    CHECK(code_of([&] { medium->reserve(80 * kMebibyte); }) == Errc::io);
    CHECK(medium->size() == kEnd);
    CHECK(fs::file_size(path) == kEnd);
    refused_view = {1, ENOMEM};
    CHECK(medium->reserve(8 * kMebibyte) == 8 * kMebibyte);  // no mapping is asked for
    CHECK(refused_view.calls_left == 1);
    refused_view = {};
    CHECK(fs::file_size(path) == 8 * kMebibyte);

    CHECK(same(medium->view({6 * kMebibyte, kMebibyte}), Bytes(kMebibyte)));
    CHECK(medium->view({2 * kMebibyte, 1}).data() == view.data());
    CHECK(same(view, data));
    medium->write(6 * kMebibyte, data, 0);
    const std::uint64_t grown = medium->reserve(80 * kMebibyte);
    CHECK(medium->view({2 * kMebibyte, 1}).data() == view.data());
    CHECK(same(medium->view({6 * kMebibyte, kMebibyte}), data));
    medium->write(grown - kMebibyte, data, 0);
    CHECK(same(medium->view({grown - kMebibyte, kMebibyte}), data));
  }
}

TEST_CASE("a length that was found is room once it is durable, with blocks or without", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    for (const bool holes : {true, false}) {
      CAPTURE(place, holes);
      const scratch::Directory dir(place);
      scratch::put(dir / "s", holes ? std::string() : std::string(4 * kMebibyte, '\1'));
      fs::resize_file(dir / "s", 4 * kMebibyte);  // as a growth leaves it that was never synced
      const auto medium = make_pmem_medium(open_file(dir / "s"), {});
      refused_fsync = {1, EIO};
      const auto error = error_of([&] { medium->reserve(kMebibyte); });
      const bool asked = refused_fsync.calls_left == 0;
      refused_fsync = {};
      CHECK(asked);
      REQUIRE(error);
      CHECK(error->code() == Errc::io);
      CHECK(error->os_error() == EIO);

      refused_fsync = {2, EIO};  // one is asked for, and as far as there is room no other
      CHECK(medium->reserve(kMebibyte) >= kMebibyte);
      CHECK(medium->reserve(kMebibyte) >= kMebibyte);
      CHECK(refused_fsync.calls_left == 1);
      refused_fsync = {};
    }
  }
}

TEST_CASE("only a full medium is no failure", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  GuardedMedium medium(make_pmem_medium(open_file(dir / "s"), {}));
  medium.reserve(2 * kMebibyte);
  refused_fallocate = {2, ENOSPC};
  CHECK(code_of([&] { medium.reserve(68 * kMebibyte); }) == Errc::full);
  CHECK_FALSE(medium.failed());
  refused_work = {1, ENOMEM};
  CHECK(code_of([&] { medium.reserve(68 * kMebibyte); }) == Errc::io);
  CHECK(medium.failed());  // I8
}

TEST_CASE("addresses that another thread takes in between: others, and none is leaked", "[pmem]") {
  if (!pmem_supported()) return;
  struct Row {
    const char* what;
    int nth;  // of the calls that one of the two mappings' addresses take
  };
  const Row rows[] = {{"none were found", 1}, {"the first of them", 2}, {"the rest", 3}};
  const scratch::Directory dir(kTmpfs);
  const auto pages = [] {
    std::ifstream memory("/proc/self/statm");
    std::uint64_t count = 0;
    memory >> count;
    return count;
  };
  make_pmem_medium(open_file(dir / "s"), {})->reserve(2 * kMebibyte);
  for (const Row& row : rows) {
    INFO(row.what);
    const std::uint64_t before = pages();
    for (int round = 0; round < 50; ++round) {
      refused_addresses = {row.nth, row.nth == 1 ? ENOMEM : EEXIST};
      const auto medium = make_pmem_medium(open_file(dir / "s"), {});
      const bool reached = refused_addresses.calls_left == 0;
      refused_addresses = {};
      REQUIRE(reached);
      const std::uint64_t size = medium->reserve(8 * kMebibyte);
      const auto data = pattern(kPageBytes, 4);
      medium->write(size - kPageBytes, data, 0);
      CHECK(same(medium->view({size - kPageBytes, kPageBytes}), data));
    }
    CHECK(pages() <= before + 1024);  // 4 MiB of heap at most, not 50 huge pages
  }
}

TEST_CASE("all of new room is touched before anything is written there", "[pmem]") {
  if (!pmem_supported()) return;
#if defined(MADV_POPULATE_WRITE)
  constexpr std::uint64_t kOdd = 1001 * kPageBytes;  // behind whole parts of many pages
  constexpr std::uint64_t kRoom = 96 * kMebibyte + kOdd;
  const scratch::Directory dir(kTmpfs);
  const auto medium = make_pmem_medium(open_file(dir / "s"), {});
  medium->reserve(kRoom);
  const auto faults = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
  };
  const auto page = pattern(kPageBytes, 1);
  medium->write(0, page, 0);
  const auto before = faults();
  for (std::uint64_t at = 0; at < kRoom; at += kPageBytes) medium->write(at, page, 0);
  CHECK(faults() - before < 100);  // of 25,577 pages
  CHECK(medium->size() >= kRoom);
#else
  SKIP("the kernel's headers have no MADV_POPULATE_WRITE");
#endif
}
