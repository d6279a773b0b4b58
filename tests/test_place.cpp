// A shelf's file beside others that rename, replace and remove it: what a new file takes over from
// the one it replaces, and what persist() says when the name leads elsewhere.
#include <tensorshelf/shelf.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "media/file.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

struct stat stat_of(const fs::path& path) {
  struct stat node {};
  REQUIRE(::stat(path.c_str(), &node) == 0);
  return node;
}

Shelf open(const fs::path& path, Mode mode = Mode::append) {
  OpenOptions options;
  options.mode = mode;
  return Shelf::open(path, options);
}

void put(Shelf& shelf, const char* name, std::byte value) {
  auto tensor = shelf.find(name);
  if (!tensor) tensor = shelf.create(name, DType::uint8, std::vector<std::int64_t>{1});
  tensor->write(std::span(&value, 1));
}

std::byte value(const Shelf& shelf, const char* name) {
  std::byte value{};
  shelf.find(name).value().read(std::span(&value, 1));
  return value;
}

unsigned mode_of(const fs::path& path) { return stat_of(path).st_mode & 07777; }

}  // namespace

TEST_CASE("publish over an empty file: a rival that renames over it is no file without a name") {
  const scratch::Directory dir("/dev/shm");
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "");
  for (const char* name : {"a", "b"}) scratch::put(dir / name, "");
  std::atomic<bool> stop = false;
  std::thread rival([&] {  // two calls a rename, so that many fall between two looks of publish
    for (bool second = false; !stop; second = !second) {
      if (::link((dir / (second ? "b" : "a")).c_str(), (dir / "next").c_str()) != 0) break;
      if (::rename((dir / "next").c_str(), path.c_str()) != 0) break;
    }
  });
  for (int round = 0; round < 20000; ++round) {
    ShelfFile file = ShelfFile::create(path);
    const auto error = error_of([&] { file.publish_over_empty(); });
    if (error && error->code() != Errc::busy && error->code() != Errc::exists) {
      stop = true;
      rival.join();
      FAIL("round " << round << ": " << error->what());
    }
  }
  stop = true;
  rival.join();
}

TEST_CASE("publish: the permissions of a replaced file stay, and no moment is wider") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  const mode_t mask = ::umask(022);
  for (const mode_t mode : {0600U, 0640U, 0644U, 0664U, 0400U}) {
    CAPTURE(mode);
    fs::remove(path);
    scratch::put(path, "old");
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    ShelfFile file = ShelfFile::create(path);
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      CHECK((mode_of(entry.path()) & ~mode) == 0);  // the temporary one too
    }
    file.publish(true);
    CHECK(scratch::contents(path).empty());
    CHECK(mode_of(path) == mode);
  }
  fs::remove(path);
  ShelfFile::create(path).publish(true);
  CHECK(mode_of(path) == 0644);  // there was none: as the umask allows
  ::umask(mask);
}

TEST_CASE("publish: root gives the new file to the owner of the replaced one") {
  if (::geteuid() != 0) {
    WARN("skipped: ownership (not root)");
    return;
  }
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  for (const bool empty : {false, true}) {
    fs::remove(path);
    scratch::put(path, empty ? "" : "old");
    REQUIRE(::chown(path.c_str(), 65534, 65533) == 0);
    REQUIRE(::chmod(path.c_str(), 0640) == 0);
    ShelfFile file = ShelfFile::create(path);
    empty ? file.publish_over_empty() : file.publish(true);
    CHECK(stat_of(path).st_uid == 65534);
    CHECK(stat_of(path).st_gid == 65533);
    CHECK(mode_of(path) == 0640);
  }
}

TEST_CASE("publish: who cannot keep the group lets no other group read instead") {
  if (::geteuid() != 0) {
    WARN("skipped: another's group (not root)");
    return;
  }
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  REQUIRE(::chmod(dir.path().c_str(), 0777) == 0);
  scratch::put(path, "old");
  REQUIRE(::chown(path.c_str(), 0, 65533) == 0);
  REQUIRE(::chmod(path.c_str(), 0664) == 0);
  CHECK(scratch::exited_well(scratch::in_child([&] {
    ::umask(022);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return false;
    ShelfFile::create(path).publish(true);
    return true;
  })));
  CHECK(stat_of(path).st_gid == 65534);
  CHECK(mode_of(path) == 0644);  // the group's right to write is gone with the group
}

namespace {

// A shelf with a version, and with something written since.
struct Run {
  const scratch::Directory dir{
      GENERATE(as<std::string>{}, "/dev/shm", fs::temp_directory_path().native())};
  const fs::path path = dir / "a day's run.shelf";  // as it stands no word of a command
  Shelf shelf = open(path);

  Run() {
    put(shelf, "w", std::byte{1});
    REQUIRE(shelf.persist(1).version == 1);
    put(shelf, "w", std::byte{2});
  }
};

}  // namespace

TEST_CASE("persist: a deleted file is gone, and the command of the remedy saves the last version") {
  Run run;
  const fs::path saved = run.dir / "a day's run.shelf.saved";
  fs::remove(run.path);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto error = error_of([&] { run.shelf.persist(2); });
    REQUIRE(error);
    CHECK(error->code() == Errc::gone);
    CHECK(error->os_error() == ENOENT);
    CHECK(contains(error->what(), run.path.native() + " was deleted"));
    CHECK(code_of([&] { run.shelf.persist_async(2); }) == Errc::gone);
  }
  const std::string remedy = error_of([&] { run.shelf.persist(2); })->remedy();
  const auto begin = remedy.find('`') + 1;
  CHECK(::system(remedy.substr(begin, remedy.find('`', begin) - begin).c_str()) == 0);
  CHECK(value(open(saved, Mode::update), "w") == std::byte{1});
  CHECK(value(run.shelf, "w") == std::byte{2});
  CHECK(run.shelf.info().version == 1);
  CHECK(run.shelf.verify().damage.empty());
}

TEST_CASE("persist: a file that was moved, and deleted there, is gone") {
  Run run;
  fs::rename(run.path, run.dir / "moved.shelf");
  fs::remove(run.dir / "moved.shelf");
  const auto error = error_of([&] { run.shelf.persist(2); });
  REQUIRE(error);
  CHECK(contains(error->what(), (run.dir / "moved.shelf").native() + " was deleted"));
  CHECK(contains(error->remedy(), "discard()"));
  CHECK(contains(error->remedy(), "moved.shelf.saved"));
}

TEST_CASE("persist: a file is gone when another was renamed over it") {
  Run run;
  scratch::put(run.dir / "other", "x");
  fs::rename(run.dir / "other", run.path);
  const auto error = error_of([&] { run.shelf.persist(2); });
  REQUIRE(error);
  CHECK(error->code() == Errc::gone);
  CHECK(contains(error->what(), "another file has taken the place of " + run.path.native()));
  CHECK(contains(error->remedy(), "cp /proc/"));
}

TEST_CASE("persist: a file is gone while another is in its place, until it is moved back") {
  Run run;
  fs::rename(run.path, run.dir / "aside");
  scratch::put(run.path, "x");
  const auto error = error_of([&] { run.shelf.persist(2); });
  REQUIRE(error);
  CHECK(error->code() == Errc::gone);
  CHECK(contains(error->what(), "own is " + (run.dir / "aside").native()));
  CHECK(contains(error->remedy(), "Move it back"));
  fs::rename(run.dir / "aside", run.path);
  CHECK(run.shelf.persist(2).version == 2);
  run.shelf.close();
  CHECK(value(open(run.path), "w") == std::byte{2});
}

TEST_CASE("persist: a file that lay there for long is gone, too, while another is in its place") {
  Run run;
  const auto age = [&] {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    struct stat node {};
    if (::stat(run.path.c_str(), &node) != 0) return 1000L;
    const timespec changed = node.st_ctim;
    return (now.tv_sec - changed.tv_sec) * 1000 + (now.tv_nsec - changed.tv_nsec) / 1'000'000;
  };
  while (age() < 300) {
  }
  CHECK(run.shelf.persist(2).version == 2);
  CHECK(run.shelf.persist(3).version == 3);
  fs::rename(run.path, run.dir / "aside");
  scratch::put(run.path, "x");
  CHECK(code_of([&] { run.shelf.persist(4); }) == Errc::gone);
}

TEST_CASE("persist: a file is gone while another directory is in the place of its own") {
  Run run;
  const fs::path runs = run.dir / "runs";
  fs::create_directory(runs);
  Shelf moved = open(runs / "run.shelf");
  for (std::uint64_t step = 1; step <= 3; ++step) moved.persist(step);
  fs::rename(runs, run.dir / "aside");
  fs::create_directory(runs);
  open(runs / "run.shelf").persist(77);
  const auto error = error_of([&] { moved.persist(4); });
  REQUIRE(error);
  CHECK(error->code() == Errc::gone);
  CHECK(contains(error->what(), "another file has taken the place of"));
  CHECK(contains(error->what(), "own is " + (run.dir / "aside/run.shelf").native()));
  fs::remove_all(runs);
  fs::rename(run.dir / "aside", runs);
  CHECK(moved.persist(4).version == 4);
  moved.close();
  CHECK(open(runs / "run.shelf").info().step == 4U);
}

TEST_CASE("persist: a file that was renamed over is gone, though it has a second name left") {
  Run run;
  fs::create_hard_link(run.path, run.dir / "second");
  scratch::put(run.dir / "other", "x");
  fs::rename(run.dir / "other", run.path);
  CHECK(code_of([&] { run.shelf.persist(2); }) == Errc::gone);
}

TEST_CASE("close: neither it nor what comes after it asks for the name of the file") {
  Run run;
  fs::remove(run.path);
  run.shelf.close();
  CHECK(code_of([&] { run.shelf.persist(2); }) == Errc::closed);
}

TEST_CASE("persist: in whatever way a file was opened, that its name is lost is told") {
  enum class Before { nothing, empty, shelf };
  struct Row {
    const char* what;
    Before before;
    Mode mode;
  };
  const Row rows[] = {
      {"made, where there was none", Before::nothing, Mode::create},
      {"made on opening", Before::nothing, Mode::append},
      {"made to replace, and there was none", Before::nothing, Mode::replace},
      {"made over an empty file", Before::empty, Mode::append},
      {"replaced an empty file", Before::empty, Mode::replace},
      {"replaced a shelf", Before::shelf, Mode::replace},
      {"found", Before::shelf, Mode::append},
      {"found, and to be there", Before::shelf, Mode::update},
  };
  for (const Row& row : rows) {
    for (const bool overtaken : {false, true}) {
      CAPTURE(row.what, overtaken);
      const scratch::Directory dir;
      const fs::path path = dir / "run.shelf";
      if (row.before == Before::empty) scratch::put(path, "");
      if (row.before == Before::shelf) open(path).persist(1);
      Shelf shelf = open(path, row.mode);
      const auto version = shelf.persist(2).version;
      fs::remove(path);
      if (overtaken) scratch::put(path, "x");
      CHECK(code_of([&] { shelf.persist(3); }) == Errc::gone);
      CHECK(shelf.info().version == version);
    }
  }
}

TEST_CASE("persist: what leads to the file still is no reason to refuse") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  const fs::path before = fs::current_path();
  fs::create_directory(dir / "elsewhere");

  SECTION("the file was moved, and opening its new name finds the version") {
    Shelf shelf = open(path);
    fs::rename(path, dir / "moved");
    CHECK(shelf.persist(1).version == 1);
    shelf.close();
    CHECK(open(dir / "moved", Mode::update).info().step == 1U);
  }
  SECTION("its directory was moved") {
    fs::create_directory(dir / "runs");
    Shelf shelf = open(dir / "runs/run.shelf");
    fs::rename(dir / "runs", dir / "moved");
    CHECK(shelf.persist(1).version == 1);
  }
  SECTION("it was moved, or its directory, and a link put in its place: opening finds it") {
    fs::create_directory(dir / "runs");
    const fs::path from = dir / (GENERATE(true, false) ? "runs" : "runs/run.shelf");
    Shelf shelf = open(dir / "runs/run.shelf");
    fs::rename(from, dir / "moved");
    fs::create_symlink(dir / "moved", from);
    CHECK(shelf.persist(1).version == 1);
    shelf.close();
    CHECK(open(dir / "runs/run.shelf", Mode::update).info().step == 1U);
  }
  SECTION("a relative path, after a change of directory to where there is such a name") {
    scratch::put(dir / "elsewhere/run.shelf", "x");
    fs::current_path(dir.path());
    Shelf shelf = open("run.shelf");
    fs::current_path(dir / "elsewhere");
    CHECK(shelf.persist(1).version == 1);
    fs::current_path(before);
  }
  SECTION("a link that is turned elsewhere, at a new shelf and at one that was there") {
    scratch::put(dir / "other", "x");
    fs::create_symlink("run.shelf", dir / "latest");
    for (int round = 0; round < 2; ++round) {
      Shelf shelf = open(dir / "latest");
      fs::remove(dir / "latest");
      fs::create_symlink("other", dir / "latest");
      CHECK_NOTHROW(shelf.persist(1));
      fs::remove(dir / "latest");
      fs::create_symlink("run.shelf", dir / "latest");
    }
  }
  SECTION("a file that never had a name") {
    open(path).close();
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    fs::remove(path);
    Shelf shelf = open("/proc/self/fd/" + std::to_string(fd), Mode::update);
    ::close(fd);
    CHECK(shelf.persist(1).version == 1);
  }
  SECTION("a shelf that replaced another, and one that replaced an empty file") {
    scratch::put(path, "");
    { CHECK(open(path).persist(1).version == 1); }
    CHECK(open(path, Mode::replace).persist(1).version == 1);
  }
}

TEST_CASE("persist: a shelf that was moved asks for the name of its own file") {
  const scratch::Directory dir;
  Shelf shelf = open(dir / "a");
  SECTION("assigned over another") {
    shelf = open(dir / "b");
    fs::remove(dir / "a");
  }
  SECTION("assigned over one that was closed") {
    shelf.close();
    shelf = open(dir / "b");
    fs::remove(dir / "a");
  }
  SECTION("made of another") {
    Shelf made = open(dir / "b");
    const Shelf before = std::exchange(shelf, std::move(made));
    fs::remove(dir / "a");
  }
  CHECK(shelf.persist(1).version == 1);
  CHECK(open(dir / "b", Mode::read).info().step == 1U);
  fs::remove(dir / "b");
  CHECK(code_of([&] { shelf.persist(2); }) == Errc::gone);
  CHECK(code_of([&] { shelf.persist_async(2); }) == Errc::gone);
}

TEST_CASE("info: whether this opening made the shelf") {
  const scratch::Directory dir;
  CHECK(open(dir / "a").info().created);
  CHECK_FALSE(open(dir / "a").info().created);
  CHECK_FALSE(open(dir / "a", Mode::read).info().created);
  CHECK_FALSE(open(dir / "a", Mode::update).info().created);
  CHECK(open(dir / "a", Mode::replace).info().created);
  CHECK(open(dir / "x", Mode::create).info().created);
  scratch::put(dir / "empty", "");
  Shelf shelf = open(dir / "empty");
  CHECK(shelf.info().created);
  Shelf other = open(dir / "a");
  other = std::move(shelf);
  CHECK(other.info().created);
}

TEST_CASE("persist: the step that stands for none is refused, and nothing is lost") {
  const scratch::Directory dir;
  Shelf shelf = open(dir / "run.shelf");
  shelf.persist(7);
  CHECK(code_of([&] { shelf.persist(~0ULL); }) == Errc::bad_argument);
  CHECK(code_of([&] { shelf.persist_async(~0ULL); }) == Errc::bad_argument);
  CHECK(shelf.info().version == 1);
  CHECK(shelf.persist(~0ULL - 1).step == ~0ULL - 1);
  CHECK(shelf.persist().step == ~0ULL - 1);
}

TEST_CASE("open: where a permission lacks, the remedy asks for that one") {
  if (::geteuid() != 0) {
    WARN("skipped: permissions (not root)");
    return;
  }
  const scratch::Directory dir;
  fs::create_directory(dir / "shut");
  fs::create_directory(dir / "shut/inner");
  for (const char* name : {"secret", "shown", "shut/inner/run.shelf"}) scratch::put(dir / name, "");
  REQUIRE(::chmod((dir / "secret").c_str(), 0600) == 0);
  REQUIRE(::chmod((dir / "shut").c_str(), 0700) == 0);
  struct Row {
    const char* name;
    bool writable;
    std::string remedy;
  };
  const Row rows[] = {
      {"secret", false, "Get permission to read " + (dir / "secret").native()},
      {"secret", true, "Get permission to read it and to write to it"},
      {"shown", true, "mode=\"r\" needs to read it only"},
      {"shut/inner/run.shelf", false, "Get permission to enter " + (dir / "shut").native() + "."},
      {"shut/inner/run.shelf", true, "Get permission to enter " + (dir / "shut").native() + "."},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name, row.writable);
    CHECK(scratch::exited_well(scratch::in_child([&] {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) return false;
      const auto error = error_of([&] { ShelfFile::open(dir / row.name, row.writable); });
      return error && error->code() == Errc::read_only && contains(error->remedy(), row.remedy);
    })));
  }
  CHECK(scratch::exited_well(scratch::in_child([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return false;
    const auto error = error_of([&] { ShelfFile::create(dir / "new"); });
    return error && contains(error->remedy(), "permission to write to " + dir.path().native());
  })));
}
