// The lock that the nodes of one device have in common.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catch.hpp"
#include "media/file_lock.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

TEST_CASE("two nodes of one device have one lock in common") {
  // No DAX device is needed to see it: any character device has a place in sysfs.
  const scratch::Directory dir;
  const fs::path twin = dir / "twin";
  struct stat node {};
  REQUIRE(::stat("/dev/full", &node) == 0);
  if (::mknod(twin.c_str(), S_IFCHR | 0600, node.st_rdev) != 0) {
    WARN("skipped: device nodes (not permitted here)");
    return;
  }
  // Opened without access: a mount may forbid devices, and the number is all that is needed.
  const int first = ::open("/dev/full", O_PATH | O_CLOEXEC);
  const int second = ::open(twin.c_str(), O_PATH | O_CLOEXEC);
  REQUIRE(second >= 0);
  {
    const DeviceLock held(first, "/dev/full");
    if (!held.held()) {
      WARN("skipped: the lock of a device (no sysfs here)");
      return;
    }
    const auto error = error_of([&] { const DeviceLock other(second, twin); });
    REQUIRE(error);
    CHECK(error->code() == Errc::busy);
    CHECK(contains(error->what(), twin.native()));
  }
  CHECK(DeviceLock(second, twin).held());
  ::close(first);
  ::close(second);
}
