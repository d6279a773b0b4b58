// How a block medium reads that is open beside its writer: through rings of its own, or by pread.
#if __has_include(<liburing.h>)
#include <liburing.h>
#endif
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "block_fixture.hpp"
#include "media/block/backend.hpp"
#include "refused_call.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

// Stands before liburing's, and has the kernel asked for what none knows.
namespace {
std::atomic<bool> knows_no_reads = false;
std::atomic<unsigned> reads_not_known = 0;
}  // namespace
#ifdef LIB_URING_H
extern "C" int io_uring_submit_and_wait(io_uring* ring, unsigned wait) {
  using Call = int (*)(io_uring*, unsigned);
  static const auto real = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "io_uring_submit_and_wait"));
  const io_uring_sq& queue = ring->sq;
  if (knows_no_reads && queue.sqe_head != queue.sqe_tail) {
    queue.sqes[queue.sqe_head & *queue.kring_mask].opcode = 255;
    ++reads_not_known;
  }
  return real(ring, wait);
}
#endif

namespace {

constexpr std::uint64_t MiB = 1024 * 1024;
constexpr std::uint64_t kSize = 6 * MiB;

struct Written {
  Folder folder;
  Bytes data = pattern(kSize, 21);

  Written() {
    const auto writer = make_block_medium(folder.create(), {});
    writer->reserve(kSize);
    for (std::uint64_t at = 0; at < kSize; at += MiB) {
      writer->wait(writer->write(at, std::span<const std::byte>(data).subspan(at, MiB), 0));
    }
    writer->barrier();
  }

  std::unique_ptr<Medium> reader(BlockTuning tuning = {}) const {
    auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), false));
    return make_block_medium(std::move(file), {.block = tuning});
  }

  // Of places and lengths as they come.
  bool reads_right(Medium& medium, unsigned seed, int reads) const {
    std::mt19937_64 random(seed);
    for (int i = 0; i < reads; ++i) {
      const std::uint64_t at = random() % kSize;
      const std::uint64_t size = 1 + random() % std::min<std::uint64_t>(kSize - at, 80'000);
      const Bytes back = read_back(medium, at, size);
      if (std::memcmp(back.data(), &data[at], size) != 0) return false;
    }
    return true;
  }
};

std::size_t rings_here() {
  std::size_t rings = 0;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;  // the one that reads the folder is closed by then
    rings += std::filesystem::read_symlink(fd.path(), ignored) == "anon_inode:[io_uring]";
  }
  return rings;
}

bool rings_work_here() {
  const Folder folder;
  const std::string detail = make_block_medium(folder.create(), {})->promises().detail;
  return detail.find("io_uring") != std::string::npos && detail.find("O_DIRECT") != detail.npos;
}

}  // namespace

TEST_CASE("a reader has a ring for each thread that reads, up to a limit") {
  const bool io_uring = GENERATE(true, false);
  const unsigned threads = GENERATE(1u, 3u, 24u);
  CAPTURE(io_uring, threads);
  const Written written;
  const std::size_t before = rings_here();
  {
    const auto medium = written.reader({.io_uring = io_uring});
    CHECK(rings_here() == before);  // before anything is read through one
    std::vector<std::thread> running;
    std::vector<int> right(threads, 0);
    for (unsigned t = 0; t < threads; ++t) {
      running.emplace_back([&, t] { right[t] = written.reads_right(*medium, t, 60) ? 1 : 0; });
    }
    for (std::thread& thread : running) thread.join();
    REQUIRE(right == std::vector<int>(threads, 1));
    const std::size_t rings = rings_here() - before;
    const bool some = io_uring && rings_work_here();
    CHECK(rings >= (some ? 1u : 0u));
    CHECK(rings <= (some ? std::min(threads, 8u) : 0u));
  }
  CHECK(rings_here() == before);
}

TEST_CASE("a reader reads where io_uring is refused, from the start or later") {
  if (!rings_work_here()) {
    WARN("skipped: seccomp on io_uring, which does not work here");
    return;
  }
  const long call = GENERATE(SYS_io_uring_setup, SYS_io_uring_enter);
  const int error = GENERATE(EPERM, ENOSYS, EAGAIN);
  const bool later = GENERATE(true, false);
  CAPTURE(call, error, later);
  const Written written;
  const std::string said = in_child([&]() -> std::string {
    const auto medium = written.reader();
    if (later && !written.reads_right(*medium, 1, 3)) return "wrong bytes before";
    if (!refuse_call(call, error)) return "no seccomp";
    return written.reads_right(*medium, 2, 30) ? "" : "wrong bytes";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("a reader reads where the kernel has rings, and knows no reads through them") {
  if (!rings_work_here()) {
    WARN("skipped: a kernel before 5.6, as which one plays where io_uring works");
    return;
  }
  const Written written;
  const std::size_t before = rings_here();
  const auto medium = written.reader();
  knows_no_reads = true;
  const bool right = written.reads_right(*medium, 4, 30);
  knows_no_reads = false;
  CHECK(right);
  CHECK(reads_not_known >= 30);
  CHECK(rings_here() == before + 1);  // which is kept
}

TEST_CASE("signals that come all the while change nothing that is read") {
  const Written written;
  const std::string said = in_child([&]() -> std::string {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // without SA_RESTART: calls are interrupted
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 200}, {0, 200}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    return written.reads_right(*written.reader(), 3, 400) ? "" : "wrong bytes";
  });
  REQUIRE(said == "");
}

TEST_CASE("a file that was cut short is told so behind its end, and read before it") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Written written;
  const auto medium = written.reader({.io_uring = io_uring});
  std::filesystem::resize_file(written.folder.file(), kSize - MiB - 100);
  Bytes back(2 * MiB);
  CHECK(code_of([&] { medium->read(kSize - 2 * MiB, back); }) == Errc::truncated);
  back.resize(MiB);
  medium->read(0, back);
  CHECK(std::memcmp(back.data(), written.data.data(), MiB) == 0);
}

TEST_CASE("a forked child lets go of the rings, and the parent reads on") {
  const Written written;
  auto medium = written.reader();
  REQUIRE(written.reads_right(*medium, 5, 3));
  const std::size_t rings = rings_here();
  const std::string said = in_child([&]() -> std::string {
    medium.reset();
    return rings_here() == 0 ? "" : "the child has a ring";
  });
  REQUIRE(said == "");
  CHECK(rings_here() == rings);
  REQUIRE(written.reads_right(*medium, 6, 30));
}
