// What leaves together on the block medium: the pages of a commit in one submission, the words of a
// flip in another; and what a kernel that takes only some of them leaves behind.
#include <unistd.h>

#include <tensorshelf/shelf.hpp>

#include "block_fixture.hpp"
#include "format/format.hpp"
#include "forwarding_medium.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kPlaces = 6;  // of pages that do not touch

struct Rig {
  explicit Rig(bool io_uring) {
    BlockTuning tuning;
    tuning.io_uring = io_uring;
    medium = make_block_medium(folder.create(), {.block = tuning}, tapped(tap));
    medium->reserve(64 * kPageBytes);
    *tap = Tap{};
  }
  static std::uint64_t place(std::uint64_t i) { return 3 * i * kPageBytes; }
  Ticket write_pages() {
    Ticket last;
    for (std::uint64_t i = 0; i < kPlaces; ++i) {
      last = medium->write(place(i), pattern(kPageBytes, i + 1), 0);
    }
    return last;
  }

  Folder folder;
  std::shared_ptr<Tap> tap = std::make_shared<Tap>();
  std::unique_ptr<Medium> medium;
};

// How often a commit looks for a rival.
unsigned looks_of_a_commit(bool one_machine) {
  struct Counting final : ForwardingMedium {
    Counting(std::shared_ptr<Medium> inner, bool alone)
        : ForwardingMedium(std::move(inner)), one_machine(alone) {}
    void look(std::uint64_t at, std::span<std::byte> bytes) override {
      ++looks;
      ForwardingMedium::look(at, bytes);
    }
    Promises promises() const override {
      Promises found = ForwardingMedium::promises();
      found.one_machine = one_machine;
      return found;
    }
    const bool one_machine;
    unsigned looks = 0;
  };
  const Folder folder;
  auto medium = std::make_unique<Counting>(make_block_medium(folder.create(), {}), one_machine);
  unsigned& looks = medium->looks;
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
  make(shelf, "w", 5000).write(pattern(5000, 1));
  shelf.persist(1);
  looks = 0;
  shelf.find("w")->write(pattern(5000, 2));
  shelf.persist(2);
  return looks;
}

}  // namespace

TEST_CASE("pages that are waited for leave in one submission") {
  const bool io_uring = GENERATE(true, false);
  Rig rig(io_uring);
  const Ticket last = rig.write_pages();
  CHECK(rig.tap->submissions == 0);
  rig.medium->wait(last);
  CHECK(rig.tap->submissions == 1);
  CHECK(rig.tap->submitted.size() == kPlaces);
  for (std::uint64_t i = 0; i < kPlaces; ++i) {
    CHECK((read_back(*rig.medium, Rig::place(i), kPageBytes) == pattern(kPageBytes, i + 1)));
  }
}

TEST_CASE("words leave together at the barrier, which waits for them and for nothing else") {
  const bool io_uring = GENERATE(true, false);
  Rig rig(io_uring);
  for (const std::uint64_t page : {0, 3}) {  // the medium reads a word's page once
    rig.medium->store_word(page * kPageBytes + 16, 1);
  }
  rig.medium->barrier();
  *rig.tap = Tap{};
  rig.medium->write(40 * kPageBytes, pattern(kPageBytes, 9), 0);  // another's, for a later version
  rig.medium->store_word(16, 2);
  rig.medium->store_word(3 * kPageBytes + 16, 3);
  CHECK(rig.tap->submissions == 0);
  rig.medium->barrier();
  CHECK(rig.tap->submissions == 1);
  CHECK(rig.tap->submitted.size() == 2);
  CHECK(rig.tap->completions == 2);
  CHECK(rig.tap->syncs == 1);
  rig.medium->barrier();
  CHECK(rig.tap->submissions == 1);
  CHECK(rig.tap->syncs == 2);
  for (const std::uint64_t page : {0, 3}) {
    std::uint64_t word = 0;
    rig.medium->read(page * kPageBytes + 16, std::as_writable_bytes(std::span(&word, 1)));
    CHECK(word == (page == 0 ? 2U : 3U));
  }
}

TEST_CASE("of writes begun at once some are refused: that is told, the others end, none is lost") {
  const bool io_uring = GENERATE(true, false);
  for (unsigned refused = 0; refused < kPlaces; ++refused) {
    CAPTURE(io_uring, refused);
    ::alarm(300);  // rather than wait for ever
    Rig rig(io_uring);
    unsigned asked = 0;
    rig.tap->refuse_submit = [&] { return asked++ == refused ? -ENXIO : 0; };
    const Ticket last = rig.write_pages();
    const auto error = error_of([&] { rig.medium->wait(last); });
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == ENXIO);
    CHECK(rig.tap->completions == refused);
    CHECK(code_of([&] { rig.medium->barrier(); }) == Errc::io);
    CHECK(code_of([&] { rig.medium->store_word(16, 1); }) == Errc::io);
    CHECK(rig.tap->syncs == 0);
    CHECK((read_back(*rig.medium, Rig::place(refused), kPageBytes) == Bytes(kPageBytes)));
    rig.medium.reset();
    CHECK(rig.tap->submitted.size() == refused);
    ::alarm(0);
  }
}

TEST_CASE("a small commit is two submissions and two flushes") {
  const bool io_uring = GENERATE(true, false);
  const Folder folder;
  const auto tap = std::make_shared<Tap>();
  BlockTuning tuning;
  tuning.io_uring = io_uring;
  auto medium = make_block_medium(folder.create(), {.block = tuning}, tapped(tap));
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
  make(shelf, "w", 5000).write(pattern(5000, 1));
  for (std::uint64_t step = 1; step <= 4; ++step) {  // each home's word once: its page is kept
    shelf.find("w")->write(pattern(5000, step));
    *tap = Tap{};
    shelf.persist(step);
  }
  CHECK(tap->submissions == 2);
  CHECK(tap->syncs == 2);
}

TEST_CASE("where the lock is sure, a rival is looked for before the flip alone") {
  CHECK(looks_of_a_commit(true) == 1);
  CHECK(looks_of_a_commit(false) == 3);
}

TEST_CASE("a file of this machine's own is told from what others may reach") {
  const auto of = [](const std::filesystem::path& parent) {
    const Folder folder(parent);
    return make_block_medium(folder.create(), {})->promises();
  };
  CHECK(of("/dev/shm").one_machine);  // tmpfs
  const Promises here = of(std::filesystem::current_path());
  bool local = false;
  for (const char* type : {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"}) {
    local = local || here.detail.starts_with(std::string("file on ") + type + ",");
  }
  if (here.detail.starts_with("file on overlay")) CHECK_FALSE(here.one_machine);
  if (local) CHECK(here.one_machine);
}
