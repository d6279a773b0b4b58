// A lease that a forked child inherited: the pin is counted in its parent, so the child's bytes
// keep still as long as the parent keeps its own lease, whatever the child does with its copy, and
// no longer. docs/design.md, "Leases".
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "media/pmem/medium.hpp"
#include "scratch.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// One step of one process, waited for by the other.
class Steps {
 public:
  Steps() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()) == 0); }
  void become_child() {
    ::close(ends_[0]);
    mine_ = 1;
  }
  void say(bool good) const {
    const char word = good ? 'y' : 'n';
    if (::write(ends_[mine_], &word, 1) != 1) ::_exit(3);
  }
  bool hear() const {  // false, too, where the other side is gone
    char word = 0;
    return ::read(ends_[mine_], &word, 1) == 1 && word == 'y';
  }
  void close_childs() const { ::close(ends_[1]); }

 private:
  std::array<int, 2> ends_{};
  unsigned mine_ = 0;
};

bool holds(const Lease& lease, unsigned seed) { return same(lease.bytes(), pattern(kMiB, seed)); }

}  // namespace

TEST_CASE("a lease in a forked child") {
  if (!pmem_supported() || !std::filesystem::is_directory("/dev/shm")) {
    WARN("skipped: a mapped shelf (no tmpfs to map, or a build without libpmem2)");
    return;
  }
  const scratch::Directory directory("/dev/shm");
  Shelf shelf = Shelf::open(directory / "a.shelf", {.tier = "pmem"});
  TensorRef a = make(shelf, "a", kMiB);
  a.write(pattern(kMiB, 1));
  shelf.persist(1);
  auto lease = std::make_unique<Lease>(a.lease());
  REQUIRE(lease->in_place());

  Steps steps;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    steps.become_child();
    auto copy = std::make_unique<Lease>(*lease);
    steps.say(holds(*lease, 1));
    const std::span<const std::byte> bytes = lease->bytes();
    if (!steps.hear()) ::_exit(1);  // the parent was refused the slot
    steps.say(holds(*lease, 1));
    copy.reset();
    lease.reset();  // which unpins nothing in the parent
    steps.say(true);
    if (!steps.hear()) ::_exit(1);  // the parent dropped its own and wrote
    steps.say(same(bytes, pattern(kMiB, 3)));
    ::_exit(0);
  }
  steps.close_childs();
  CHECK(steps.hear());
  a.write(pattern(kMiB, 2));
  shelf.persist(2);
  const auto refused = [&] { return code_of([&] { a.write(pattern(kMiB, 3)); }) == Errc::leased; };
  steps.say(refused());
  CHECK(steps.hear());  // the child's bytes kept still
  CHECK(steps.hear());
  CHECK(refused());  // although the child dropped what it had
  lease.reset();
  a.write(pattern(kMiB, 3));
  steps.say(true);
  CHECK(steps.hear());  // the limit: what the child still looks at has changed
  int status = -1;
  while (::waitpid(child, &status, 0) < 0) {
  }
  CHECK(scratch::exited_well(status));
}
