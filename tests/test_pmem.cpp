// The mapped medium: growth, the two mappings, room, and what is refused. On tmpfs, which every
// Linux has, and where TENSORSHELF_TEST_FSDAX and TENSORSHELF_TEST_DEVDAX name them (tests/guest
// does) also on real FS-DAX and DevDAX.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <xxhash.h>

#include "asleep.hpp"
#include "base/size_text.hpp"
#include "bytes.hpp"
#include "catch.hpp"
#include "media/file.hpp"
#include "media/file_system.hpp"
#include "media/media.hpp"
#include "media/own_directory.hpp"
#include "media/pmem/environment.hpp"
#include "media/pmem/promises.hpp"
#include "pmem_fixture.hpp"
#include "refused_call.hpp"
#include "scratch.hpp"
#include "tensorshelf/error.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::uint64_t allocated_bytes(const fs::path& path) {
  struct stat node {};
  REQUIRE(::stat(path.c_str(), &node) == 0);
  return static_cast<std::uint64_t>(node.st_blocks) * 512;
}

}  // namespace

TEST_CASE("what a mapped medium promises follows from what is found where it lies") {
  const FileSystem dax{.name = "xfs", .options = {}, .dax = true};
  const FileSystem memory{.name = "tmpfs", .options = {}, .tmpfs = true};
  PmemEnvironment flushes;
  flushes.flushes = true;
  PmemEnvironment forced;
  forced.flushes = false;
  using Domain = PowerFailDomain;
  const auto promised = [](const FileSystem& system, const PmemEnvironment& environment,
                           Domain domain, bool needs_flush) {
    return pmem_promises({.system = system,
                          .environment = environment,
                          .domain = domain,
                          .needs_flush = needs_flush});
  };
  const Promises adr = promised(dax, flushes, Domain::memory_controller, true);
  CHECK(adr.needs_flush);
  CHECK(adr.survives == Survives::power_loss);
  const Promises eadr = promised(dax, flushes, Domain::cpu_cache, false);
  CHECK_FALSE(eadr.needs_flush);
  CHECK(eadr.survives == Survives::power_loss);
  CHECK(contains(eadr.detail, "eADR"));
  CHECK(promised(dax, flushes, Domain::none, true).survives == Survives::process_crash);
  CHECK(promised(dax, forced, Domain::unknown, true).survives == Survives::process_crash);
  const Promises tmpfs = promised(memory, flushes, Domain::unknown, true);
  CHECK_FALSE(tmpfs.needs_flush);
  CHECK(tmpfs.survives == Survives::process_crash);
}

TEST_CASE("a build without libpmem2 says so", "[pmem]") {
  if (pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  const auto error = error_of([&] { make_pmem_medium(open_file(dir / "s"), {}); });
  REQUIRE(error);
  CHECK(error->code() == Errc::unsupported);
  CHECK(contains(error->remedy(), "libpmem2-dev"));
}

TEST_CASE("growth keeps addresses and data, reads as zero and has blocks", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const fs::path path = dir / "s";
    const auto medium = make_pmem_medium(open_file(path), {});
    CHECK(medium->size() == 0);
    REQUIRE(medium->reserve(1) >= kPageBytes);
    const std::span<const std::byte> first = medium->view({0, kPageBytes});
    const auto data = pattern(kPageBytes, 1);
    medium->wait(medium->write(0, data, 7));

    std::uint64_t size = medium->size();
    for (const std::uint64_t wanted : {kMebibyte, 3 * kMebibyte, 17 * kMebibyte, 64 * kMebibyte}) {
      const std::uint64_t grown = medium->reserve(wanted);
      CHECK(grown >= wanted);
      CHECK(grown == fs::file_size(path));
      CHECK(allocated_bytes(path) >= grown);
      CHECK(medium->view({0, kPageBytes}).data() == first.data());
      CHECK(same(first, data));
      CHECK(all_zero(medium->view({size, grown - size})));
      // Across the seam of two segments as anywhere else.
      const auto more = pattern(2 * kPageBytes, static_cast<unsigned>(wanted));
      medium->write(grown - 2 * kPageBytes, more, 0);
      CHECK(same(medium->view({grown - 2 * kPageBytes, 2 * kPageBytes}), more));
      medium->write(grown - 2 * kPageBytes, std::vector<std::byte>(2 * kPageBytes), 0);
      size = grown;
    }
    CHECK(medium->reserve(1) == size);  // never shrinks
  }
}

TEST_CASE("write: bytes and hash of any length, word for word", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const auto medium = make_pmem_medium(open_file(dir / "s"), {});
    medium->reserve(2 * kMebibyte);
    std::uint64_t last = 0;
    for (const std::size_t size : {0UL, 1UL, 7UL, 63UL, 64UL, 65UL, 240UL, 241UL, 4095UL, 4096UL,
                                   4097UL, 65535UL, 1048575UL, 1048576UL}) {
      INFO(size << " bytes");
      const auto padded = pattern(size + 3, static_cast<unsigned>(size));
      const auto bytes = std::span(padded).subspan(3);  // from an odd address
      const Ticket ticket = medium->write(kPageBytes, bytes, 42);
      CHECK(ticket.sequence > last);
      last = ticket.sequence;
      CHECK(ticket.checksum == XXH3_64bits_withSeed(bytes.data(), size, 42));
      CHECK(same(medium->view({kPageBytes, size}), bytes));
      std::vector<std::byte> read(size);
      medium->read(kPageBytes, read);
      CHECK(same(read, bytes));
    }
  }
}

TEST_CASE("store_word changes its eight bytes alone", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const auto medium = make_pmem_medium(open_file(dir / "s"), {});
    medium->reserve(kPageBytes);
    auto expected = pattern(kPageBytes, 3);
    medium->write(0, expected, 0);
    for (const std::uint64_t at : {0UL, 8UL, 56UL, 64UL, 4088UL}) {
      const std::uint64_t word = 0x0102030405060708UL + at;
      medium->store_word(at, word);
      medium->barrier();
      std::memcpy(expected.data() + at, &word, sizeof word);
      CHECK(same(medium->view({0, kPageBytes}), expected));
    }
  }
}

TEST_CASE("a store through a view faults", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const auto medium = make_pmem_medium(open_file(dir / "s"), {});
    for (const std::uint64_t size : {2 * kMebibyte, 8 * kMebibyte}) {  // first and later segments
      const std::uint64_t end = medium->reserve(size);
      const std::span<const std::byte> view = medium->view({0, end});
      const int status = scratch::in_child([&] {
        const_cast<volatile std::byte&>(view.back()) = std::byte{1};
        return true;
      });
      CHECK(WIFSIGNALED(status));
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
      CHECK(view.back() == std::byte{0});
    }
  }
}

TEST_CASE("what was written is there at the next open, also after SIGKILL", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const auto data = pattern(kMebibyte, 5);
    scratch::put(dir / "s", "");
    const int status = scratch::in_child([&] {
      const auto medium = make_pmem_medium(open_file(dir / "s"), {});
      medium->reserve(3 * kMebibyte);
      medium->write(kMebibyte, data, 0);
      medium->store_word(kPageBytes, 11);
      medium->barrier();
      return ::raise(SIGKILL) != 0;
    });
    REQUIRE(WIFSIGNALED(status));
    for (const bool writable : {false, true}) {
      const auto medium = make_pmem_medium(open_file(dir / "s", writable), {});
      CHECK(medium->size() == 4 * kMebibyte);
      CHECK(same(medium->view({kMebibyte, kMebibyte}), data));
      CHECK(medium->view({kPageBytes, 1}).front() == std::byte{11});
    }
  }
}

TEST_CASE("threads write side by side", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const auto medium = make_pmem_medium(open_file(dir / "s"), {});
    constexpr unsigned kThreads = 4;
    constexpr std::uint64_t kEach = kMebibyte / 4;
    medium->reserve(kThreads * kEach);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (unsigned round = 0; round < 8; ++round) {
          medium->wait(medium->write(i * kEach, pattern(kEach, i * 100 + round), round));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (unsigned i = 0; i < kThreads; ++i) {
      CHECK(same(medium->view({i * kEach, kEach}), pattern(kEach, i * 100 + 7)));
    }
  }
}

TEST_CASE("a file open for reading", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const auto writer = make_pmem_medium(open_file(dir / "s"), {});
    writer->reserve(2 * kMebibyte);
    const auto reader = make_pmem_medium(open_file(dir / "s", false), {});
    const auto error = error_of([&] { reader->reserve(64 * kMebibyte); });
    REQUIRE(error);
    CHECK(error->code() == Errc::read_only);

    const std::byte* const before = reader->view({0, 1}).data();
    const std::uint64_t grown = writer->reserve(16 * kMebibyte);
    const auto data = pattern(kPageBytes, 9);
    writer->write(grown - kPageBytes, data, 0);
    CHECK(reader->size() == grown);  // sees what the writer added, at the old addresses
    CHECK(reader->view({0, 1}).data() == before);
    CHECK(same(reader->view({grown - kPageBytes, kPageBytes}), data));
  }
}

TEST_CASE("the cap", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const std::uint64_t cap = 5 * kMebibyte + kPageBytes;
    const auto medium = make_pmem_medium(open_file(dir / "s"), {.max_size_bytes = cap});
    CHECK(medium->reserve(kMebibyte) == 2 * kMebibyte);
    const auto error = error_of([&] { medium->reserve(cap + 1); });
    REQUIRE(error);
    CHECK(error->code() == Errc::full);
    CHECK(contains(error->what(), (dir / "s").native()));
    CHECK(contains(error->what(), "cap"));
    CHECK(medium->size() == 2 * kMebibyte);
    CHECK(fs::file_size(dir / "s") == 2 * kMebibyte);
    CHECK(medium->reserve(cap) == cap);
  }
}

TEST_CASE("a full file system: full, nothing lost, and room again later", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  fs::create_directory(dir / "small");
  if (::mount("tensorshelf-test", (dir / "small").c_str(), "tmpfs", 0, "size=16m") != 0) {
    WARN("skipped: a full tmpfs (mounting one is not permitted here)");
    return;
  }
  const std::shared_ptr<void> unmount(
      nullptr, [&](void*) { ::umount2((dir / "small").c_str(), MNT_DETACH); });
  const auto medium = make_pmem_medium(open_file(dir / "small/s"), {});
  const std::uint64_t size = medium->reserve(4 * kMebibyte);
  const auto data = pattern(kMebibyte, 2);
  medium->write(0, data, 0);

  const auto error = error_of([&] { medium->reserve(64 * kMebibyte); });
  REQUIRE(error);
  CHECK(error->code() == Errc::full);
  INFO(error->what());
  CHECK(error->os_error() == ENOSPC);
  CHECK(contains(error->what(), size_text(60 * kMebibyte)));            // wanted
  CHECK(contains(error->what(), size_text(12 * kMebibyte) + " free"));  // once given back
  CHECK(contains(error->what(), "tmpfs"));
  CHECK(medium->size() == size);
  CHECK(fs::file_size(dir / "small/s") == size);
  CHECK(same(medium->view({0, kMebibyte}), data));
  CHECK(medium->reserve(12 * kMebibyte) == 12 * kMebibyte);

  SECTION("a file with holes gets its blocks before a store, or an error: never SIGBUS") {
    scratch::put(dir / "small/sparse", "");
    fs::resize_file(dir / "small/sparse", 8 * kMebibyte);
    const auto sparse = make_pmem_medium(open_file(dir / "small/sparse"), {});
    const auto chunk = pattern(kMebibyte, 4);
    std::uint64_t at = 0;
    const auto failed = error_of([&] {
      for (; at < 8 * kMebibyte; at += kMebibyte) sparse->write(at, chunk, 0);
    });
    REQUIRE(failed);
    CHECK(failed->code() == Errc::io);
    CHECK(failed->os_error() == ENOSPC);
    CHECK(at == 4 * kMebibyte);  // 16 MiB hold 12 of the one and 4 of the other
    CHECK(same(sparse->view({3 * kMebibyte, kMebibyte}), chunk));
  }
}

TEST_CASE("files of odd sizes are mapped as far as they have whole pages", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    scratch::put(dir / "s", std::string(kPageBytes + 100, 'x'));
    const auto medium = make_pmem_medium(open_file(dir / "s"), {});
    CHECK(medium->size() == kPageBytes);
    CHECK(medium->view({0, 1}).front() == std::byte{'x'});
    const std::uint64_t grown = medium->reserve(kMebibyte);
    CHECK(medium->view({kPageBytes - 1, 1}).front() == std::byte{'x'});
    CHECK(all_zero(medium->view({kPageBytes, grown - kPageBytes})));
  }
}

TEST_CASE("many opens leak neither addresses nor descriptors", "[pmem]") {
  const std::uint64_t cap =
      GENERATE(std::uint64_t{0}, kPageBytes, kMebibyte, 2 * kMebibyte, 3 * kMebibyte);
  for (const std::string& place : mapped_places()) {
    INFO(place << ", cap " << cap);
    const scratch::Directory dir(place);
    const auto usage = [] {
      std::ifstream maps("/proc/self/statm");
      std::uint64_t pages = 0;
      maps >> pages;
      return std::pair(pages, scratch::entries("/proc/self/fd"));
    };
    const auto once = [&] {
      make_pmem_medium(open_file(dir / "s"), {.max_size_bytes = cap})
          ->reserve(cap != 0 ? cap : 8 * kMebibyte);
    };
    once();
    const auto before = usage();
    for (int i = 0; i < 50; ++i) once();
    const auto after = usage();
    CHECK(after.second == before.second);
    CHECK(after.first <= before.first + 1024);  // 4 MiB of heap at most, not 50 reservations
  }
}

TEST_CASE("what is not persistent memory is refused by name", "[pmem]") {
  const scratch::Directory dir;
  const auto file = open_file(dir / "s");
  const FileSystem system = probe_file_system(file->fd());
  if (system.tmpfs || system.dax) {
    WARN("skipped: not DAX (" << dir.path() << " is " << system.name << ")");
    return;
  }
  if (!pmem_supported()) return;
  for (const char* forced : {"", "BYTE", "CACHE_LINE"}) {  // which would have libpmem2 take it
    INFO("PMEM2_FORCE_GRANULARITY=" << forced);
    const Variable variable("PMEM2_FORCE_GRANULARITY", forced);
    OpenOptions options;
    options.tier = "pmem";
    const auto error = error_of([&] { make_medium(file, options); });
    REQUIRE(error);
    CHECK(error->code() == Errc::not_dax);
    CHECK(contains(error->what(), (dir / "s").native() + " is " + system.name + " without DAX"));
    CHECK(contains(error->remedy(), "tier=\"block\""));
    CHECK(contains(error->remedy(), "-o dax"));
  }
}

TEST_CASE("promises on tmpfs", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  const Promises promises = make_medium(open_file(dir / "s"), {})->promises();
  CHECK(promises.medium == "pmem");
  CHECK(promises.detail == "file on tmpfs");
  CHECK(promises.survives == Survives::process_crash);
  CHECK(promises.mapped);
  CHECK_FALSE(promises.needs_flush);
  CHECK_FALSE(promises.volatile_cache);
  CHECK(promises.atomic_bytes == 8);
  CHECK(mentions(promises.notes, "not a power loss"));
}

TEST_CASE("variables that weaken durability are named, and believed", "[pmem]") {
  struct Row {
    const char* name;
    const char* value;
    PowerFailDomain domain;
    bool flushes;
    bool noted;
  };
  using enum PowerFailDomain;
  const Row rows[] = {
      {"PMEM2_FORCE_GRANULARITY", "BYTE", memory_controller, false, true},
      {"PMEM2_FORCE_GRANULARITY", "byte", unknown, false, true},
      {"PMEM2_FORCE_GRANULARITY", "BYTE", cpu_cache, true, true},
      {"PMEM2_FORCE_GRANULARITY", "CACHE_LINE", memory_controller, true, true},
      {"PMEM2_FORCE_GRANULARITY", "PAGE", memory_controller, true, true},
      {"PMEM_NO_FLUSH", "1", memory_controller, true, true},
      {"PMEM_NO_FLUSH", "0", memory_controller, true, false},
      {"PMEM_IS_PMEM_FORCE", "1", memory_controller, true, true},
      {"PMEM_NO_CLWB", "1", memory_controller, true, false},
  };
  for (const Row& row : rows) {
    INFO(row.name << "=" << row.value);
    const Variable variable(row.name, row.value);
    const PmemEnvironment found = pmem_environment(row.domain);
    CHECK(found.flushes == row.flushes);
    CHECK(found.notes.size() == (row.noted ? 1 : 0));
    CHECK(mentions(found.notes, row.name) == row.noted);
    if (!pmem_supported()) continue;
    const scratch::Directory dir(kTmpfs);
    const auto promises = make_pmem_medium(open_file(dir / "s"), {})->promises();
    CHECK(mentions(promises.notes, row.name) == row.noted);
    CHECK(promises.survives == Survives::process_crash);
  }
  CHECK(pmem_environment(memory_controller).notes.empty());
}

TEST_CASE("the cap is kept by whatever tier is chosen", "[pmem]") {
  const std::string tier = GENERATE(as<std::string>{}, "auto", "pmem", "block");
  if (tier == "pmem" && !pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  CAPTURE(tier);
  OpenOptions options;
  options.tier = tier;
  options.max_size_bytes = 4 * kMebibyte;
  const auto medium = make_medium(open_file(dir / "s"), options);
  CHECK(code_of([&] { medium->reserve(4 * kMebibyte + 1); }) == Errc::full);
  CHECK(medium->reserve(4 * kMebibyte) == 4 * kMebibyte);
}

TEST_CASE("the tier chooses, or is obeyed", "[pmem]") {
  const scratch::Directory memory(kTmpfs);
  const scratch::Directory disk;
  const auto medium_of = [](const fs::path& path, const std::string& tier) {
    OpenOptions options;
    options.tier = tier;
    return make_medium(open_file(path), options)->promises();
  };
  CHECK(medium_of(memory / "block", "block").medium == "block");
  const Promises automatic = medium_of(memory / "auto", "auto");
  CHECK(automatic.medium == (pmem_supported() ? "pmem" : "block"));
  CHECK(mentions(automatic.notes, "libpmem2-dev") == !pmem_supported());
  if (pmem_supported()) CHECK(medium_of(memory / "pmem", "pmem").medium == "pmem");
  const auto file = open_file(disk / "auto");
  const FileSystem system = probe_file_system(file->fd());
  if (!system.tmpfs && !system.dax) {
    CHECK(make_medium(file, {})->promises().medium == "block");
  }
}

TEST_CASE("FS-DAX as it is", "[pmem]") {
  const char* const dax = ::getenv("TENSORSHELF_TEST_FSDAX");
  if (dax == nullptr || !pmem_supported()) return;
  const scratch::Directory dir(dax);
  const fs::path path = dir / "s";

  SECTION("promises") {
    const auto medium = make_medium(open_file(path), {});
    medium->reserve(kMebibyte);
    const Promises promises = medium->promises();
    INFO(promises.detail);
    CHECK(contains(promises.detail, "FS-DAX file on "));
    CHECK(contains(promises.detail, "MAP_SYNC"));
    CHECK(promises.survives == Survives::power_loss);
    CHECK(promises.needs_flush);
    CHECK(promises.notes.empty());
  }
  SECTION("a variable that stops flushing takes the promise away") {
    const Variable variable("PMEM2_FORCE_GRANULARITY", "BYTE");
    const auto medium = make_medium(open_file(path), {});
    medium->reserve(kMebibyte);
    CHECK(medium->promises().survives == Survives::process_crash);
    CHECK(mentions(medium->promises().notes, "PMEM2_FORCE_GRANULARITY"));
  }
  SECTION("room is written, not only allocated: no extent is left to convert") {
    const auto file = open_file(path);
    const auto medium = make_medium(file, {});
    const std::uint64_t size = medium->reserve(5 * kMebibyte);
    CHECK(::lseek(file->fd(), 0, SEEK_HOLE) == static_cast<off_t>(size));
  }
  SECTION("a full file system: full, and nothing lost") {
    const auto medium = make_medium(open_file(path), {});
    const std::uint64_t size = medium->reserve(2 * kMebibyte);
    const auto data = pattern(kMebibyte, 6);
    medium->write(0, data, 0);
    const auto error = error_of([&] { medium->reserve(std::uint64_t{1} << 33); });
    REQUIRE(error);
    CHECK(error->code() == Errc::full);
    CHECK(error->os_error() == ENOSPC);
    CHECK(fs::file_size(path) == size);
    CHECK(same(medium->view({0, kMebibyte}), data));
    CHECK(medium->reserve(4 * kMebibyte) == 4 * kMebibyte);
  }
  SECTION("holes get blocks before a store") {
    scratch::put(path, "");
    fs::resize_file(path, 8 * kMebibyte);
    const auto medium = make_medium(open_file(path), {});
    const auto data = pattern(kMebibyte, 8);
    medium->write(4 * kMebibyte, data, 0);
    CHECK(same(medium->view({4 * kMebibyte, kMebibyte}), data));
    CHECK(allocated_bytes(path) >= kMebibyte);
  }
}

TEST_CASE("DevDAX as it is", "[pmem]") {
  const char* const device = ::getenv("TENSORSHELF_TEST_DEVDAX");
  if (device == nullptr || !pmem_supported()) return;
  const auto file = open_file(device);
  CHECK(file->kind() == FileKind::dax_device);
  const std::uint64_t size = file->size_bytes();
  CHECK(size > 0);
  const auto error = error_of([&] { open_file(device); });
  REQUIRE(error);
  CHECK(error->code() == Errc::busy);
  OpenOptions options;
  options.tier = "block";
  CHECK(error_of([&] { make_medium(file, options); })->code() == Errc::unsupported);

  const auto medium = make_medium(file, {});
  CHECK(medium->size() == size);
  CHECK(error_of([&] { medium->reserve(size + 1); })->code() == Errc::full);
  const Promises promises = medium->promises();
  INFO(promises.detail);
  CHECK(contains(promises.detail, "DevDAX device"));
  CHECK(promises.survives == Survives::power_loss);
  CHECK(promises.needs_flush);

  const auto data = pattern(kMebibyte, 12);
  medium->write(size - kMebibyte, data, 0);
  medium->store_word(size - kMebibyte, 77);
  medium->barrier();
  const auto reader = make_medium(open_file(device, false), {});
  CHECK(same(reader->view({size - kMebibyte + 8, kMebibyte - 8}), std::span(data).subspan(8)));
  CHECK(reader->view({size - kMebibyte, 1}).front() == std::byte{77});
}

TEST_CASE("DevDAX and msync: refused, not aborted", "[pmem]") {
  const char* const device = ::getenv("TENSORSHELF_TEST_DEVDAX");
  if (device == nullptr || !pmem_supported()) return;
  const Variable variable("PMEM2_FORCE_GRANULARITY", "PAGE");
  const auto error = error_of([&] {
    const auto medium = make_medium(open_file(device), {});
    medium->store_word(0, 0);
  });
  REQUIRE(error);
  CHECK(error->code() == Errc::unsupported);
  CHECK(contains(error->what(), device));
  CHECK(contains(error->what(), "PMEM2_FORCE_GRANULARITY=PAGE"));
  CHECK(contains(error->remedy(), "PMEM2_FORCE_GRANULARITY"));
  CHECK(make_medium(open_file(device, false), {})->size() > 0);  // a reader flushes nothing
}

TEST_CASE("two nodes of one DevDAX device: one writer", "[pmem]") {
  const char* const device = ::getenv("TENSORSHELF_TEST_DEVDAX");
  if (device == nullptr || !pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  struct stat node {};
  REQUIRE(::stat(device, &node) == 0);
  const fs::path twin = dir / "twin";
  REQUIRE(::mknod(twin.c_str(), S_IFCHR | 0600, node.st_rdev) == 0);

  auto writer = make_medium(open_file(device), {});
  const auto file = open_file(twin);  // another inode, with a lock of its own
  const auto error = error_of([&] { make_medium(file, {}); });
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->code() == Errc::busy);
  CHECK(contains(error->what(), twin.native()));
  CHECK(contains(error->what(), "in this process"));
  CHECK(make_medium(open_file(twin, false), {})->size() == writer->size());  // may read
  writer.reset();
  writer = make_medium(file, {});
  CHECK(code_of([&] { make_medium(open_file(device), {}); }) == Errc::busy);
}

// libpmem2 walks through sysfs whenever it maps, and the walk changes the working directory.
TEST_CASE("opening and growing leave the working directory as it is, whoever looks meanwhile") {
  if (!pmem_supported() || !std::filesystem::is_directory("/dev/shm")) return;
  const scratch::Directory dir("/dev/shm");
  const auto before = std::filesystem::current_path();
  bool has_own = false;  // where a thread may have none of its own, others see the walk
  std::thread([&] { has_own = ::unshare(CLONE_FS) == 0; }).join();
  std::atomic<int> at_work = 2;
  std::vector<std::thread> openers;
  for (int number = 0; number < 2; ++number) {
    openers.emplace_back([&, number] {
      const auto path = dir.path() / std::to_string(number);
      for (int round = 0; round < 200; ++round) {
        make_pmem_medium(open_file(path), {})->reserve((round + 1) * kPageBytes);
      }
      --at_work;
    });
  }
  int moved = 0;
  while (at_work > 0) moved += std::filesystem::current_path() != before;
  for (std::thread& opener : openers) opener.join();
  if (has_own) CHECK(moved == 0);
  CHECK(std::filesystem::current_path() == before);
  std::filesystem::current_path(before);  // for those that come after
}

TEST_CASE("where threads share their working directory, one call at a time changes it") {
  const std::string said = in_child([]() -> std::string {
    if (!refuse_call(SYS_unshare, EPERM)) return "no seccomp";
    bool met = false;
    for (int round = 0; round < 20; ++round) {
      std::atomic<bool> inside = false;
      std::unique_ptr<Waiter> other;
      in_own_directory([&] {
        inside = true;
        other = std::make_unique<Waiter>([&] { in_own_directory([&] { met |= inside; }); });
        other->waits();  // for a thread that calls, or would, if it were let in
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        inside = false;
      });
      other->join();
    }
    return met ? "two calls at once" : "";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  CHECK(said == "");
}
