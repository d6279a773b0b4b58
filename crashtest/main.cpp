// tensorshelf-crashtest: opens the images that a crash can leave, all where they are few, else a
// sample by seed, and shows one that the store does not survive. With --bug and --bugs it hands
// over to its twin, which is built with the planted bugs in it.
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "campaign.hpp"
#include "child.hpp"
#include "scenarios.hpp"

namespace tensorshelf::crash {
namespace {

struct Options {
  bool full = false;
  bool list = false;
  std::uint64_t seconds = 600;
  std::uint64_t seed = 1;
  std::string workload;
  unsigned randoms = kRandoms;
  std::string bug;
  bool bugs = false;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
};

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

using Clock = std::chrono::steady_clock;

// That all processes so far ran.
double core_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Round {
  const Options& options;
  std::uint64_t seed;
  Effort effort;
  Clock::time_point end;  // no workload is begun after this
};

// Explores every chosen workload under every mode once; false where there was a violation.
bool run_round(const Round& round, Result& total) {
  std::vector<Cell> cells;
  for (const Workload& workload :
       select_workloads(round.options.workload, round.effort, round.seed, round.options.randoms)) {
    for (const MediumMode& mode : kMediumModes) cells.push_back({workload, mode, round.seed});
  }
  std::vector<Task> tasks;
  for (const Cell& cell : cells) {
    tasks.push_back([&cell, &round] {
      if (Clock::now() >= round.end) return Result{};
      return explore_workload(cell.workload, cell.mode, settings_for(cell, round.effort));
    });
  }
  bool good = true;
  run_in_children(tasks, round.options.jobs, [&](std::size_t index, const Result& result) {
    const auto& [workload, mode, seed] = cells[index];
    if (result.counts.images == 0 && result.violation.empty()) {
      if (Clock::now() >= round.end) return;
      good = false;
      say(fmt::format("VIOLATION {} under {}: no image was looked at\n", workload.name, mode.name));
      return;
    }
    say(counts_row(workload.name, mode.name, result));
    total.counts += result.counts;
    if (result.violation.empty()) return;
    good = false;
    say(fmt::format("VIOLATION {}\n  again with: --workload {} --seed {}{}\n", result.violation,
                    workload.name, seed, round.effort == Effort::full ? " --full" : ""));
  });
  return good;
}

bool play_scenarios() {
  bool good = true;
  for (const Scenario& scenario : scenarios()) {
    const std::string text = violation_of(scenario);
    if (text.empty()) continue;
    good = false;
    say(fmt::format("VIOLATION {}\n  {}\n", scenario.name, text));
  }
  say(fmt::format("{} scenarios played\n", scenarios().size()));
  return good;
}

int run(const Options& options) {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end =
      options.full ? begin + std::chrono::seconds(options.seconds) : Clock::time_point::max();
  Result total;
  bool good = !options.workload.empty() || play_scenarios();
  std::uint64_t round = 0;
  do {
    const std::uint64_t seed = options.seed + round++;
    const Effort effort = options.full ? Effort::full : Effort::quick;
    say(fmt::format("{}, seed {}, {} jobs\n{}", options.full ? "full" : "quick", seed, options.jobs,
                    counts_heading()));
    good = run_round({options, seed, effort, end}, total) && good;
  } while (good && options.full && Clock::now() < end);
  total.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  say(counts_row("all", "", total));
  say(fmt::format("{} violations in {:.1f} s. seed {}: {}", good ? "no" : "THERE ARE",
                  total.seconds, options.seed, counts_line(total.counts, core_seconds())));
  return good ? 0 : 1;
}

int list() {
  say("workloads\n");
  for (const Workload& workload : workloads()) {
    say(fmt::format("  {:<14} {}\n", workload.name, workload.program));
  }
  say("scenarios\n");
  for (const Scenario& scenario : scenarios()) {
    say(fmt::format("  {:<14} {}\n", scenario.name, scenario.invariant));
  }
  say("media\n  pmem   8-byte words land in any order until the barrier\n"
      "  block  512-byte sectors, and only the barrier after the wait covers them\n"
      "  trash  the same, and an unsettled sector may hold garbage\n"
      "planted bugs: --bugs tries all, tensorshelf-crashtest-planted --list names them\n");
  return 0;
}

int hand_over(const Options& options) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string twin = self.string() + "-planted";
  const std::string seed = std::to_string(options.seed);
  const std::string jobs = std::to_string(options.jobs);
  std::vector<const char*> arguments = {twin.c_str(), "--seed", seed.c_str(), "--jobs",
                                        jobs.c_str()};
  if (!options.bug.empty()) arguments.insert(arguments.end(), {"--bug", options.bug.c_str()});
  if (!options.workload.empty()) {
    arguments.insert(arguments.end(), {"--workload", options.workload.c_str()});
  }
  arguments.push_back(nullptr);
  ::execv(twin.c_str(), const_cast<char**>(arguments.data()));
  say(fmt::format("{} is missing: build the target tensorshelf-crashtest-planted\n", twin));
  return 2;
}

}  // namespace
}  // namespace tensorshelf::crash

int main(int argc, char** argv) {
  using namespace tensorshelf::crash;
  Options options;
  CLI::App app("Opens the images that a crash can leave, and checks what recovery makes of them.");
  bool quick = false;
  auto* quick_flag = app.add_flag("--quick", quick, "one round, some minutes (the default)");
  app.add_flag("--full", options.full, "rounds with rising seeds, for --seconds")
      ->excludes(quick_flag);
  app.add_option("--seconds", options.seconds, "with --full: begin no workload after this (600)");
  app.add_option("--seed", options.seed, "repeats a run (1)");
  app.add_option("--workload", options.workload,
                 "only this one; \"random\": what the seed makes up; \"on-2\": all, on two media; "
                 "\"mirrored\": all, on a medium and its mirror");
  app.add_option("--randoms", options.randoms, "so many of those, of either kind (6)");
  app.add_option("--jobs", options.jobs, "processes at once")->check(CLI::PositiveNumber);
  app.add_option("--bug", options.bug, "plant this bug; exits with 1 when it is caught");
  app.add_flag("--bugs", options.bugs, "plant every bug; exits with 0 when all are caught");
  app.add_flag("--list", options.list, "names workloads and media");
  CLI11_PARSE(app, argc, argv);
  keep_freed_memory();
  try {
    if (options.list) return list();
    if (options.bugs || !options.bug.empty()) return hand_over(options);
    return run(options);
  } catch (const std::exception& error) {
    say(fmt::format("tensorshelf-crashtest: {}\n", error.what()));
    return 2;
  }
}
