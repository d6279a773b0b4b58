// A shelf in a pool set over both NVDIMMs of the guest: one replica a file on FS-DAX, the other the
// DevDAX device.
//
//   guest_pool kill N   writers in it, killed by SIGKILL at random moments, N times
//   guest_pool write    a writer that prints WRITTEN once it has made some steps, and writes on
//   guest_pool check    what is there holds one step, and `pmempool check` finds nothing
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <stdexcept>
#include <string>

#include "tests/kill_writer.hpp"

using namespace tensorshelf;
using namespace tensorshelf::killtest;
namespace fs = std::filesystem;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(fmt::format("{} is not set", name));
  return value;
}

fs::path pool_set() {
  const fs::path directory = environment("TENSORSHELF_TEST_FSDAX");
  const fs::path path = directory / "run.set";
  if (!fs::exists(path)) {
    std::ofstream(path) << fmt::format("PMEMPOOLSET\n128M {}/part\nREPLICA\nAUTO {}\n",
                                       directory.native(), environment("TENSORSHELF_TEST_DEVDAX"));
  }
  return path;
}

Pulse& shared_pulse() {
  void* const memory =
      ::mmap(nullptr, sizeof(Pulse), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return *new (memory) Pulse;
}

pid_t start_writer(const fs::path& path, Pulse& pulse) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    write_forever({path, {}, ::open("/dev/null", O_WRONLY | O_CLOEXEC), &pulse});
  } catch (const std::exception& error) {
    fmt::print("the writer failed: {}\n", error.what());
  }
  ::_exit(3);
}

// Until it has made so many steps; false where it ended by itself.
bool await_steps(pid_t child, const Pulse& pulse, std::uint64_t steps) {
  while (pulse.acknowledged < steps) {
    if (::waitpid(child, nullptr, WNOHANG) == child) return false;
    ::usleep(200);
  }
  return true;
}

int kill_writers(const fs::path& path, int kills) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  std::uint64_t durable = fs::exists(path.parent_path() / "part") ? reopen_and_check(path, {}) : 0;
  for (int n = 0; n < kills; ++n) {
    Pulse& pulse = shared_pulse();
    const pid_t child = start_writer(path, pulse);
    if (!await_steps(child, pulse, 1 + random() % 3)) return 1;
    ::usleep(static_cast<useconds_t>(random() % 30'000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::uint64_t least = durable + pulse.acknowledged;
    const std::uint64_t found = reopen_and_check(path, {});
    if (found < least || found > least + 2) {  // one in flight, one acknowledged and not counted
      fmt::print("seed {}, kill {}: {} found, {} acknowledged\n", seed, n, found, least);
      return 1;
    }
    durable = found;
  }
  const Shelf shelf = Shelf::open(path);
  fmt::print("pool: {} kills over {} steps, seed {}: {}\n", kills, durable, seed,
             shelf.info().promises.detail);
  return shelf.info().promises.survives == Survives::power_loss ? 0 : 1;
}

int check(const fs::path& path) {
  const std::uint64_t step = reopen_and_check(path, {});
  const int status = std::system(fmt::format("pmempool check -v {}", path.native()).c_str());
  fmt::print("pool: step {} in one piece, pmempool check: {}\n", step, status);
  return step > 0 && status == 0 ? 0 : 1;
}

int run(const std::string& verb, const std::string& count) {
  const fs::path path = pool_set();
  if (verb == "kill") return kill_writers(path, std::stoi(count)) | check(path);
  if (verb == "check") return check(path);
  Pulse& pulse = shared_pulse();
  const pid_t child = start_writer(path, pulse);
  if (!await_steps(child, pulse, 20)) return 1;
  fmt::print("WRITTEN\n");
  std::fflush(stdout);
  ::waitpid(child, nullptr, 0);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    return run(argv[1], argc > 2 ? argv[2] : "10");
  } catch (const std::exception& error) {
    fmt::print("guest_pool: {}\n", error.what());
    return 1;
  }
}
