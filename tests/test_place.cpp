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
