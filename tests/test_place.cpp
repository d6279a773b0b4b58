// A shelf's file beside others that rename, replace and remove it: what a new file takes over from
// the one it replaces, and what persist() says when the name leads elsewhere.
#include <tensorshelf/shelf.hpp>

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
