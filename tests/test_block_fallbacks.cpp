// Each fallback of the block medium, provoked by the real refusal where a child process can
// provoke it (seccomp, limits, a full tmpfs), and what promises() then says.
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <fstream>

#include <tensorshelf/shelf.hpp>

#include "block_fixture.hpp"
#include "media/file_system.hpp"
#include "media/media.hpp"
#include "media/pmem/medium.hpp"
#include "own_mounts.hpp"
#include "refused_call.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t MiB = 1024 * 1024;

// Grows, writes, makes durable and reads back; what was wrong, or nothing.
std::string exercise(Medium& medium) {
  const Bytes data = pattern(9 * MiB, 1);
  medium.reserve(data.size() + kPageBytes);
  Ticket last;
  for (std::uint64_t at = 0; at < data.size(); at += MiB) {
    last = medium.write(at, std::span<const std::byte>(data).subspan(at, MiB), 0);
  }
  medium.wait(last);
  medium.store_word(data.size() + 8, 42);
  medium.barrier();
  Bytes back(data.size());
  medium.read(0, back);
  if (back != data) return "other bytes came back";
  std::uint64_t word = 0;
  medium.read(data.size() + 8, std::as_writable_bytes(std::span(&word, 1)));
  return word == 42 ? "" : "another word came back";
}

bool uring_works_here() {
  const Folder folder;
  return make_block_medium(folder.create(), {})->promises().detail.find("io_uring") !=
         std::string::npos;
}

}  // namespace

TEST_CASE("switching features off is obeyed and reported") {
  const bool io_uring = GENERATE(true, false);
  const bool direct = GENERATE(true, false);
  CAPTURE(io_uring, direct);
  const Folder folder;
  BlockTuning tuning;
  tuning.io_uring = io_uring;
  tuning.direct = direct;
  const auto file = folder.create();
  const auto medium = make_block_medium(file, {.block = tuning});
  REQUIRE(exercise(*medium) == "");
  REQUIRE(has_note(*medium, "io_uring switched off by option") == !io_uring);
  REQUIRE(has_note(*medium, "O_DIRECT switched off by option") == !direct);
  const Promises promises = medium->promises();
  REQUIRE(promises.medium == "block");
  REQUIRE(promises.detail.starts_with("file on "));
  REQUIRE_FALSE(promises.mapped);
  REQUIRE_FALSE(promises.needs_flush);
  REQUIRE(promises.atomic_bytes >= 512);
  if (!io_uring) REQUIRE(promises.detail.find("pwrite") != std::string::npos);
  if (!direct) {
    REQUIRE(promises.detail.find("buffered") != std::string::npos);
    REQUIRE((::fcntl(file->fd(), F_GETFL) & O_DIRECT) == 0);
  }
}

TEST_CASE("io_uring refused by seccomp: pwrite, with cause and remedy") {
  if (!io_uring_supported()) {
    WARN("skipped: seccomp on io_uring (built without liburing)");
    return;
  }
  struct Case {
    long call;
    int error;
    const char* words;
  };
  const auto c = GENERATE(Case{SYS_io_uring_setup, EPERM, "kernel.io_uring_disabled"},
                          Case{SYS_io_uring_setup, ENOSYS, "CONFIG_IO_URING"},
                          Case{SYS_io_uring_setup, ENOMEM, "ulimit -l"},
                          Case{SYS_io_uring_enter, EPERM, "kernel.io_uring_disabled"});
  CAPTURE(c.call, c.error);
  const Folder folder;
  const auto file = folder.create();
  const std::string said = in_child([&]() -> std::string {
    if (!refuse_call(c.call, c.error)) return "no seccomp";
    const auto medium = make_block_medium(file, {});
    if (!has_note(*medium, c.words)) return "no such note";
    if (medium->promises().detail.find("pwrite") == std::string::npos) return "not pwrite";
    return exercise(*medium);
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("registering refused: io_uring goes on without") {
  if (!uring_works_here()) {
    WARN("skipped: io_uring does not work here");
    return;
  }
  const Folder folder;
  const auto file = folder.create();
  const std::string said = in_child([&]() -> std::string {
    if (!refuse_call(SYS_io_uring_register, ENOMEM)) return "no seccomp";
    const auto medium = make_block_medium(file, {});
    if (medium->promises().detail.find("io_uring") == std::string::npos) return "not io_uring";
    if (std::string wrong = exercise(*medium); !wrong.empty()) return wrong;
    return has_note(*medium, "buffers not registered (ENOMEM") ? "" : "no such note";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("a low RLIMIT_MEMLOCK costs the registered buffers only") {
  if (!uring_works_here()) {
    WARN("skipped: io_uring does not work here");
    return;
  }
  const Folder folder;
  const auto file = folder.create();
  const std::string said = in_child([&]() -> std::string {
    const rlimit low{64 * 1024, 64 * 1024};
    if (::setrlimit(RLIMIT_MEMLOCK, &low) != 0) return "no limit";
    // Root may lock what it likes, so be nobody.
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return "no setresuid";
    const auto medium = make_block_medium(file, {});
    if (std::string wrong = exercise(*medium); !wrong.empty()) return wrong;
    return has_note(*medium, "RLIMIT_MEMLOCK is 64 KiB") ? "" : "no such note";
  });
  REQUIRE(said == "");
}

TEST_CASE("O_DIRECT refused at the flag, the read or the write: buffered, and said so") {
  enum class At { flag, read, write };
  const At refused_at = GENERATE(At::flag, At::read, At::write);
  const int error = GENERATE(EINVAL, EOPNOTSUPP);
  const bool fresh = GENERATE(true, false);
  if (fresh && refused_at == At::read) return;  // an empty file is not read
  CAPTURE(static_cast<int>(refused_at), error, fresh);
  const Folder folder;
  const auto file = folder.create();
  const Bytes before = pattern(fresh ? 0 : 3 * kPageBytes, 2);
  REQUIRE(::pwrite(file->fd(), before.data(), before.size(), 0) ==
          static_cast<ssize_t>(before.size()));

  BlockSeam seam;
  const ProbeCalls real = real_probe_calls();
  seam.probe.set_direct = [&](int fd, bool direct) {
    return refused_at == At::flag && direct ? -error : real.set_direct(fd, direct);
  };
  seam.probe.read = [&](int fd, std::uint64_t at, std::span<std::byte> bytes) {
    return refused_at == At::read ? std::int64_t{-error} : real.read(fd, at, bytes);
  };
  seam.probe.write = [&](int fd, std::uint64_t at, std::span<const std::byte> bytes) {
    return refused_at == At::write ? std::int64_t{-error} : real.write(fd, at, bytes);
  };
  const auto medium = make_block_medium(file, {}, seam);
  REQUIRE((bytes_on_disk(folder.file()) == before));
  // That a write is refused shows with the first one, and not before.
  if (refused_at == At::write) REQUIRE(exercise(*medium) == "");
  REQUIRE((::fcntl(file->fd(), F_GETFL) & O_DIRECT) == 0);
  REQUIRE(has_note(*medium, "O_DIRECT refused by the file system"));
  REQUIRE(medium->promises().detail.find("buffered") != std::string::npos);
  REQUIRE(exercise(*medium) == "");
}

TEST_CASE("O_DIRECT is tried on the page that the first write is for, and on no other") {
  enum class By { write, word, growth, lent, lent_of_odd_size };
  const By by = GENERATE(By::write, By::word, By::growth, By::lent, By::lent_of_odd_size);
  CAPTURE(static_cast<int>(by));
  const Folder folder;
  const auto file = folder.create();
  const Bytes before = pattern(3 * kPageBytes, 2);
  REQUIRE(::pwrite(file->fd(), before.data(), before.size(), 0) ==
          static_cast<ssize_t>(before.size()));
  BlockSeam seam;
  std::vector<std::uint64_t> places;
  seam.probe.write = [&](int fd, std::uint64_t at, std::span<const std::byte> bytes) {
    places.push_back(at);
    const auto real = real_probe_calls().write(fd, at, bytes);
    if (at < before.size()) CHECK(bytes_on_disk(folder.file()) == before);
    return real;
  };
  const auto medium = make_block_medium(file, {}, seam);
  REQUIRE((read_back(*medium, 0, before.size()) == before));
  REQUIRE(medium->size() == before.size());
  REQUIRE(places.empty());
  if (by == By::write) medium->write(2 * kPageBytes, Bytes(kPageBytes), 0);
  if (by == By::word) medium->store_word(2 * kPageBytes + 8, 1);
  if (by == By::growth) medium->reserve(2 * before.size());
  const PageMemory lent(kPageBytes);
  if (by == By::lent) medium->write_lent(2 * kPageBytes, lent.bytes(), 0);
  if (by == By::lent_of_odd_size) medium->write_lent(2 * kPageBytes, lent.bytes().first(100), 0);
  medium->await_lent(lent.bytes());
  medium->write(kPageBytes, Bytes(kPageBytes), 0);
  REQUIRE(places == std::vector<std::uint64_t>{2 * kPageBytes});
}

TEST_CASE("trying O_DIRECT leaves the file as it was, each byte and its length") {
  const std::uint64_t size_bytes =
      GENERATE(std::uint64_t{0}, 100, kPageBytes, kPageBytes + 100, 3 * kPageBytes);
  const std::uint64_t at = GENERATE(std::uint64_t{0}, kPageBytes);
  if (at > size_bytes) return;
  CAPTURE(size_bytes, at);
  const Folder folder;
  const auto file = folder.create();
  const Bytes before = pattern(size_bytes, 2);
  REQUIRE(::pwrite(file->fd(), before.data(), before.size(), 0) ==
          static_cast<ssize_t>(before.size()));
  const ProbeCalls real = real_probe_calls();
  ProbeCalls calls = real;
  real.set_direct(file->fd(), true);

  SECTION("where it works") {}
  SECTION("where it is refused") {
    calls.write = [](int, std::uint64_t, std::span<const std::byte>) {
      return std::int64_t{-EINVAL};
    };
  }
  SECTION("where the write is cut short") {
    calls.write = [&](int fd, std::uint64_t to, std::span<const std::byte> bytes) {
      return real.write(fd, to, bytes.first(512));
    };
  }
  SECTION("where what is there cannot be read whole: nothing is written back") {
    const auto there = static_cast<std::int64_t>(std::min(size_bytes - at, kPageBytes));
    if (there == 0) return;
    const std::int64_t got = GENERATE_COPY(std::int64_t{-EIO}, 0, 64, there - 1);
    CAPTURE(got);
    calls.read = [got](int, std::uint64_t, std::span<std::byte>) { return got; };
    calls.write = [&](int fd, std::uint64_t to, std::span<const std::byte> bytes) {
      FAIL_CHECK("written");
      return real.write(fd, to, bytes);
    };
  }
  probe_direct_write(*file, at, calls);
  REQUIRE(file->size_bytes() == size_bytes);
  REQUIRE((bytes_on_disk(folder.file()) == before));
}

TEST_CASE("a shelf says of itself what only its first write showed") {
  const Folder folder;
  BlockSeam seam;
  seam.probe.write = [](int, std::uint64_t, std::span<const std::byte>) {
    return std::int64_t{-EINVAL};
  };
  auto medium = make_block_medium(folder.create(), {}, seam);
  Shelf::format(*medium);
  const std::string detail = Shelf::open(std::move(medium)).info().promises.detail;
  REQUIRE(detail.find("buffered") != std::string::npos);
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), true));
  const Shelf again = Shelf::open(make_block_medium(file, {}, seam));
  REQUIRE(again.info().promises.detail == detail);
}

TEST_CASE("opening a file that is no shelf writes nothing to it") {
  const Mode mode = GENERATE(Mode::read, Mode::update, Mode::append);
  const std::uint64_t size_bytes = GENERATE(std::uint64_t{0}, 100, 4096, 100'000);
  if (size_bytes == 0 && mode == Mode::append) return;  // becomes one
  CAPTURE(static_cast<int>(mode), size_bytes);
  const Folder folder;
  const Bytes data = pattern(size_bytes, 4);
  const int fd = ::open(folder.file().c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  REQUIRE(::write(fd, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  REQUIRE(::futimens(fd, long_ago) == 0);
  OpenOptions options;
  options.mode = mode;
  options.tier = "block";
  REQUIRE(code_of([&] { Shelf::open(folder.file(), options); }) == Errc::not_a_shelf);
  struct stat after {};
  REQUIRE(::fstat(fd, &after) == 0);
  ::close(fd);
  REQUIRE(after.st_mtim.tv_sec == 1);  // every write would have moved it, whatever it wrote
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("through a read-only descriptor nothing is written, not even to probe") {
  const Folder folder;
  make_block_medium(folder.create(), {})->reserve(MiB);
  BlockSeam seam;
  unsigned writes = 0;
  seam.probe.write = [&](int, std::uint64_t, std::span<const std::byte> bytes) {
    ++writes;
    return static_cast<std::int64_t>(bytes.size());
  };
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), false));
  const auto medium = make_block_medium(file, {}, seam);
  REQUIRE((read_back(*medium, 0, MiB) == Bytes(MiB)));
  REQUIRE(writes == 0);
}

TEST_CASE("the cap on a file's growth") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {.max_size_bytes = 2 * MiB});
  REQUIRE(medium->reserve(2 * MiB) == 2 * MiB);
  try {
    medium->reserve(2 * MiB + 1);
    FAIL("grew beyond the cap");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::full);
    REQUIRE(std::string(error.what()).find("2 MiB") != std::string::npos);
    REQUIRE_FALSE(error.remedy().empty());
  }
  REQUIRE(medium->size() == 2 * MiB);
}

TEST_CASE("a full file system: Errc::full, the file as long as before") {
  const Folder folder;
  const std::string said = in_child([&]() -> std::string {
    if (!mount_small(folder.file("small"), 8)) return "no mount";
    const auto file = std::make_shared<ShelfFile>(ShelfFile::create(folder.file("small/a.shelf")));
    file->publish(false);
    const auto medium = make_block_medium(file, {});
    const Promises promises = medium->promises();
    if (promises.survives != Survives::process_crash) return "tmpfs survives " + promises.detail;
    if (promises.detail.find("tmpfs") == std::string::npos) return promises.detail;
    medium->reserve(4 * MiB);
    const Bytes data = pattern(MiB, 3);
    medium->wait(medium->write(0, data, 0));
    try {
      medium->reserve(64 * MiB);
      return "grew beyond the file system";
    } catch (const Error& error) {
      if (error.code() != Errc::full) return std::string("other code: ") + error.what();
      const std::string text = error.what();
      for (const char* word : {"a.shelf", "64 MiB", "60 MiB more", "4 MiB free"}) {
        if (text.find(word) == std::string::npos) return "unnamed in: " + text;
      }
    }
    if (file->size_bytes() != 4 * MiB) return "the file kept another length";
    if (read_back(*medium, 0, MiB) != data) return "other bytes came back";
    medium->wait(medium->write(MiB, data, 0));
    medium->barrier();
    return medium->reserve(5 * MiB) == 5 * MiB ? "" : "no growth after the failed one";
  });
  if (said == "no mount") {
    WARN("skipped: a full tmpfs, which needs the right to mount");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("what cannot fit is refused before any of it is taken") {
  const Folder folder;
  const auto file = folder.create();
  make_block_medium(file, {})->reserve(MiB);
  const std::uint64_t wanted = std::uint64_t{1} << GENERATE(50u, 62u, 63u);
  CAPTURE(wanted);
  const std::string said = in_child([&]() -> std::string {
    if (!refuse_call(SYS_fallocate, EIO) || !refuse_call(SYS_ftruncate, EIO)) return "no seccomp";
    GuardedMedium medium(make_block_medium(file, {}));
    try {
      medium.reserve(wanted);
      return "grew without end";
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.code() != Errc::full) return "other code: " + text;
      if (text.find(" free") == std::string::npos) return "unnamed in: " + text;
    }
    return medium.failed() ? "the medium is poisoned" : "";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("of mapped memory, too, what cannot fit is refused before any of it is taken") {
  if (!pmem_supported() || !std::filesystem::is_directory("/dev/shm")) {
    WARN("skipped: tmpfs mapped by libpmem2");
    return;
  }
  const Folder folder("/dev/shm");
  const auto space = std::filesystem::space("/dev/shm");
  const std::string said = in_child([&]() -> std::string {
    GuardedMedium medium(make_pmem_medium(folder.create(), {}));
    if (!refuse_call(SYS_fallocate, EIO)) return "no seccomp";
    const auto error = error_of([&] { medium.reserve(space.capacity + MiB); });
    if (!error || error->code() != Errc::full) return error ? error->what() : "it grew";
    return medium.failed() ? "the medium is poisoned" : "";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("a tensor of 2^62 bytes is full, and the shelf goes on") {
  const Folder folder;
  OpenOptions options;
  options.tier = "block";
  Shelf shelf = Shelf::open(folder.file(), options);
  const std::int64_t size_bytes = std::int64_t{1} << GENERATE(46u, 61u, 62u);
  CAPTURE(size_bytes);
  REQUIRE(code_of([&] { shelf.create("x", DType::uint8, {{size_bytes}}); }) == Errc::full);
  shelf.create("y", DType::uint8, {{1000}}).write(Bytes(1000, std::byte{7}));
  REQUIRE(shelf.persist().version == 1);
}

TEST_CASE("of a file that somebody lengthened, only what becomes room gets blocks") {
  const Folder folder;
  const std::string said = in_child([&]() -> std::string {
    if (!mount_small(folder.file("small"), 16)) return "no mount";
    const auto path = folder.file("small/a.shelf");
    OpenOptions options;
    options.tier = "block";
    Shelf::open(path, options);
    std::filesystem::resize_file(path, 1024 * MiB);
    Shelf shelf = Shelf::open(path, options);
    const Bytes data = pattern(3 * MiB, 5);
    shelf.create("w", DType::uint8, {{3 * MiB}}).write(data);
    shelf.persist();
    struct stat node {};
    if (::stat(path.c_str(), &node) != 0 || node.st_blocks * 512 > 8 * std::int64_t{MiB}) {
      return "it took " + std::to_string(node.st_blocks * 512) + " bytes";
    }
    try {
      shelf.create("v", DType::uint8, {{9 * MiB}});
      return "18 MiB found room in 16";
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.code() != Errc::full) return "other code: " + text;
      if (text.find(" free") == std::string::npos) return "unnamed in: " + text;
    }
    Bytes back(data.size());
    shelf.find("w")->write(data);
    shelf.persist();
    shelf.find("w")->read(back);
    return back == data ? "" : "other bytes came back";
  });
  if (said == "no mount") {
    WARN("skipped: a small tmpfs, which needs the right to mount");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("blocks that a lengthened file has already are not asked for again") {
  const bool has_blocks = GENERATE(true, false);
  CAPTURE(has_blocks);
  const Folder folder;
  const std::string said = in_child([&]() -> std::string {
    if (!mount_small(folder.file("small"), 16)) return "no mount";
    const auto path = folder.file("small/a.shelf");
    Shelf::open(path, {.tier = "block"});
    // 4 MiB stay free; the tensor's two slots want 8 MiB of the 12 that lie past the shelf's end.
    const std::string& takes = has_blocks ? path : folder.file("small/other");
    const int fd = ::open(takes.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int failed = ::posix_fallocate(fd, 0, 12 * static_cast<off_t>(MiB));
    ::close(fd);
    if (failed != 0) return "no blocks";
    std::filesystem::resize_file(path, 12 * MiB);
    Shelf shelf = Shelf::open(path, {.tier = "block"});
    const Bytes data = pattern(4 * MiB, 5);
    const auto error = error_of([&] { shelf.create("w", DType::uint8, {{4 * MiB}}); });
    if (!has_blocks) return error && error->code() == Errc::full ? "" : "8 MiB fit into 4";
    if (error) return error->what();
    shelf.find("w")->write(data);
    shelf.persist();
    Bytes back(data.size());
    shelf.find("w")->read(back);
    return back == data ? "" : "other bytes came back";
  });
  if (said == "no mount") {
    WARN("skipped: a small tmpfs, which needs the right to mount");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("every hole of a file that somebody lengthened is filled before it is room") {
  const Folder folder;
  const auto path = folder.file("a.shelf");
  Shelf::open(path, {.tier = "block"}).close();
  const std::uint64_t before = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, before + 64 * MiB);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(before + 8 * MiB));
    file.write(std::string(kPageBytes, 'x').data(), kPageBytes);
  }
  Shelf shelf = Shelf::open(path, {.mode = Mode::update, .tier = "block"});
  shelf.create("w", DType::uint8, {{20 * MiB}});  // in two slots
  struct stat node {};
  REQUIRE(::stat(path.c_str(), &node) == 0);
  CHECK(node.st_blocks * 512 >= 40 * std::int64_t{MiB});
}

TEST_CASE("options of a mount without flushes") {
  //                                           options                          names
  const auto [options, names] = GENERATE(table<const char*, const char*>({
      {"rw,nobarrier,data=ordered", "nobarrier"},
      {"nobarrier", "nobarrier"},
      {"rw,barrier=0", "barrier=0"},
      {"rw,barrier=none,acl", "barrier=none"},
      {"rw,lowerdir=/a,upperdir=/b,volatile", "volatile"},
      {"rw,fsync_mode=nobarrier", "fsync_mode=nobarrier"},
      {"", ""},
      {"rw,relatime", ""},
      {"rw,barrier=1", ""},
      {"rw,lowerdir=/volatile/nobarrier", ""},
      {"rw,,xnobarrier,nobarrier2", ""},
  }));
  CAPTURE(options);
  REQUIRE(option_without_flushes(options) == names);
}

TEST_CASE("a file system mounted with nobarrier is not promised to survive a power loss") {
  const Folder folder;
  const auto image = folder.file("image").string();
  std::filesystem::create_directory(folder.file("mount"));
  const auto mount = "mount -o loop," + std::string(GENERATE("barrier=1", "nobarrier")) + " " +
                     image + " " + folder.file("mount").string();
  CAPTURE(mount);
  const std::string said = in_child([&]() -> std::string {
    const auto runs = [](const std::string& command) {
      return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
    };
    if (!own_mounts() || !runs("truncate -s 16M " + image + " && mkfs.ext4 -q " + image) ||
        !runs(mount)) {
      return "no mount";
    }
    const auto file = std::make_shared<ShelfFile>(ShelfFile::create(folder.file("mount/a.shelf")));
    file->publish(false);
    const auto medium = make_block_medium(file, {});
    const bool weak = mount.find("nobarrier") != std::string::npos;
    const Promises promises = medium->promises();
    if ((promises.survives == Survives::process_crash) != weak) return "another promise";
    if (has_note(*medium, "mounted with nobarrier") != weak) return "another note";
    if (has_note(*medium, "Memory holds the bytes")) return "taken for memory";
    return exercise(*medium);
  });
  if (said == "no mount") {
    WARN("skipped: ext4 on a loop device, which needs root, mkfs.ext4 and a kernel with both");
    return;
  }
  REQUIRE(said == "");
}

namespace {

// A shelf on a device is not made anew while a reader holds a version of it: that stays as it was.
void check_made_anew_but_for_pins(const std::string& device) {
  const OpenOptions anew{.mode = Mode::replace, .pin_timeout = std::chrono::milliseconds(20)};
  Shelf::open(device, anew).persist(1);
  Shelf reader = Shelf::open(device, {.mode = Mode::read});
  {
    const VersionPin pin = reader.pin();
    CHECK(code_of([&] { Shelf::open(device, anew); }) == Errc::pinned);
    CHECK(Shelf::open(device, {.mode = Mode::read}).step() == 1U);
  }
  reader.close();
  CHECK_FALSE(Shelf::open(device, anew).step());
}

}  // namespace

TEST_CASE("a raw block device: its size decides") {
  const Folder folder;
  constexpr std::uint64_t kDevice = 16 * MiB;
  const auto backing = folder.create("backing.img");
  make_block_medium(backing, {})->reserve(kDevice);
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
  if (control >= 0) ::close(control);
  const std::string path = "/dev/loop" + std::to_string(number);
  const int loop = number < 0 ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (loop < 0 || ::ioctl(loop, LOOP_SET_FD, backing->fd()) != 0) {
    if (loop >= 0) ::close(loop);
    WARN("skipped: a loop device, which needs root");
    return;
  }
  loop_info64 info{};
  info.lo_flags = LO_FLAGS_AUTOCLEAR;  // gone when the last descriptor closes
  ::ioctl(loop, LOOP_SET_STATUS64, &info);
  {
    const auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, true));
    REQUIRE(file->kind() == FileKind::block_device);
    const auto medium = make_block_medium(file, {});
    REQUIRE(medium->promises().detail.starts_with("block device"));
    REQUIRE(medium->size() == kDevice);
    REQUIRE(medium->reserve(kDevice) == kDevice);
    REQUIRE(code_of([&] { medium->reserve(kDevice + 1); }) == Errc::full);
    REQUIRE(exercise(*medium) == "");
  }
  check_made_anew_but_for_pins(path);
  ::ioctl(loop, LOOP_CLR_FD);
  ::close(loop);
}
