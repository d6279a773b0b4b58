// SIGKILL at random moments, 500 times on a mapped medium (a file on tmpfs), 500 on the block
// medium, 100 on a pool and 100 on a pool set of two replicas. After each: all tensors hold one
// step, the last acknowledged or the one after.
//
// One supervisor forks each writer (no exec, so a life costs a millisecond) and judges by what came
// through the pipe. TENSORSHELF_KILLS and TENSORSHELF_SEED change count and seed; the seed is
// printed. SIGKILL shows what survives a process crash; power loss is crashtest's subject.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <thread>

#include "catch.hpp"
#include "kill_writer.hpp"
#include "media/pool/medium.hpp"
#include "scratch.hpp"

using namespace tensorshelf;
using namespace tensorshelf::killtest;
namespace fs = std::filesystem;

namespace {

std::uint64_t number_from_env(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Memory that a forked writer shares with its supervisor.
class SharedPulse {
 public:
  SharedPulse()
      : memory_(::mmap(nullptr, sizeof(Pulse), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    pulse_ = new (memory_) Pulse;
  }
  SharedPulse(const SharedPulse&) = delete;
  SharedPulse& operator=(const SharedPulse&) = delete;
  ~SharedPulse() { ::munmap(memory_, sizeof(Pulse)); }
  Pulse* operator->() { return pulse_; }
  Pulse* get() { return pulse_; }

 private:
  void* memory_;
  Pulse* pulse_ = nullptr;
};

struct Life {
  std::optional<std::uint64_t> last_acknowledged;
  Phase killed_in = Phase::opening;
};

// When a writer is to die: some while it opens, most some time after its first step.
struct Moment {
  std::uint64_t after_steps = 0;
  std::chrono::microseconds delay{0};
};

std::optional<std::uint64_t> last_step_in(int pipe_end) {
  std::optional<std::uint64_t> last;
  std::uint64_t step = 0;
  while (::read(pipe_end, &step, sizeof step) == sizeof step) last = step;
  return last;
}

// In the child. Never returns into the test framework, whose output and clean-up are the parent's.
[[noreturn]] void live(const Writer& writer) {
  try {
    write_forever(writer);
  } catch (const std::exception& error) {
    fmt::print(stderr, "the writer failed: {}\n", error.what());
  }
  ::_exit(3);
}

Life run_and_kill(Writer writer, const Moment& moment) {
  SharedPulse pulse;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  writer.acknowledge_fd = ends[1];
  writer.pulse = pulse.get();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) live(writer);
  ::close(ends[1]);

  int status = 0;
  bool ended = false;
  while (pulse->acknowledged < moment.after_steps && !ended) {
    ended = ::waitpid(child, &status, WNOHANG) == child;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::this_thread::sleep_for(moment.delay);
  ::kill(child, SIGKILL);
  if (!ended) REQUIRE(::waitpid(child, &status, 0) == child);
  const Life life{last_step_in(ends[0]), pulse->phase};
  ::close(ends[0]);
  REQUIRE(WIFSIGNALED(status));  // and not an error of the writer's own
  return life;
}

struct Tally {
  std::uint64_t kills = 0;
  std::uint64_t opening = 0;
  std::uint64_t assigning = 0;
  std::uint64_t persisting = 0;
  std::uint64_t last_step = 0;

  void count(Phase phase) {
    ++kills;
    opening += phase == Phase::opening;
    assigning += phase == Phase::assigning;
    persisting += phase == Phase::persisting;
  }
};

// How long one step takes here, so that kills spread evenly over it.
std::chrono::microseconds time_of_a_step(Writer writer) {
  const auto begin = std::chrono::steady_clock::now();
  constexpr std::uint64_t kSteps = 5;
  run_and_kill(std::move(writer), {kSteps, std::chrono::microseconds(0)});
  const auto spent = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration_cast<std::chrono::microseconds>(spent) / kSteps;
}

void kill_many_times(Writer writer, std::uint64_t usual_kills) {
  const std::uint64_t kills = number_from_env("TENSORSHELF_KILLS", usual_kills);
  const std::uint64_t seed = number_from_env("TENSORSHELF_SEED", std::random_device{}());
  std::mt19937_64 random(seed);
  const auto step_time = time_of_a_step(writer);
  std::uniform_int_distribution<std::int64_t> within(0, 2 * step_time.count() + 100);
  std::uint64_t durable = reopen_and_check(writer.path, writer.options);
  Tally tally;
  while (tally.kills < kills) {
    const bool early = random() % 8 == 0;  // while it opens
    const auto delay = early ? static_cast<std::int64_t>(random() % 1'000) : within(random);
    const Moment moment{early ? 0 : 1 + random() % 3, std::chrono::microseconds(delay)};
    const Life life = run_and_kill(writer, moment);
    tally.count(life.killed_in);
    const std::uint64_t acknowledged = life.last_acknowledged.value_or(durable);
    INFO("seed " << seed << ", kill " << tally.kills << ", acknowledged " << acknowledged);
    const std::uint64_t found = reopen_and_check(writer.path, writer.options);
    REQUIRE(found >= acknowledged);
    REQUIRE(found <= acknowledged + 1);
    durable = found;
  }
  tally.last_step = durable;
  const Shelf shelf = Shelf::open(writer.path, writer.options);
  REQUIRE(shelf.verify().damage.empty());
  const std::uint64_t hits = tally.opening + tally.assigning + tally.persisting;
  fmt::print(
      "kill: {} on {} ({}), seed {}: {} kills over {} steps; {} in a write ({:.0f}%): "
      "{} while opening, {} assigning, {} persisting; every reopen found one step\n",
      shelf.info().promises.medium, writer.path.parent_path().string(),
      shelf.info().promises.detail, seed, tally.kills, tally.last_step, hits,
      100.0 * static_cast<double>(hits) / static_cast<double>(tally.kills), tally.opening,
      tally.assigning, tally.persisting);
  CHECK(hits > tally.kills / 4);  // else the kills miss what they are meant to hit
}

fs::path tmpfs_or_temporary() {
  return fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
}

}  // namespace

TEST_CASE("killed at any moment, a shelf on tmpfs reopens at one step") {
  const scratch::Directory home(tmpfs_or_temporary());
  kill_many_times({home / "run.shelf", {}}, 500);
}

TEST_CASE("killed at any moment, a shelf on the block medium reopens at one step") {
  const scratch::Directory home;
  OpenOptions options;
  options.tier = "block";
  kill_many_times({home / "run.shelf", options}, 500);
}

TEST_CASE("killed at any moment, a shelf in a pool reopens at one step") {
  if (!pool_supported()) return;
  const scratch::Directory home(tmpfs_or_temporary());
  OpenOptions options;
  options.tier = "pool";
  options.max_size_bytes = 32 << 20;
  kill_many_times({home / "run.shelf", options}, 100);
}

TEST_CASE("killed at any moment, a shelf in a pool of two replicas reopens at one step") {
  if (!pool_supported()) return;
  const scratch::Directory home(tmpfs_or_temporary());
  scratch::put(home / "run.set",
               fmt::format("PMEMPOOLSET\n32M {0}/a\nREPLICA\n32M {0}/b\n", home.path().native()));
  kill_many_times({home / "run.set", {}}, 100);
}
