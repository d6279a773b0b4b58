// tensorshelf-crashtest-planted: the explorer over a library with mistakes in it. Every planted bug
// must be caught, and the same library with none switched on must pass; else the explorer proves
// nothing. Prints the kill matrix.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bugs.hpp"
#include "campaign.hpp"
#include "child.hpp"
#include "scenarios.hpp"

namespace tensorshelf::crash {
namespace {

struct Options {
  bool list = false;
  std::uint64_t seed = 1;
  std::string bug;
  std::string workload;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
};

constexpr std::uint64_t kRounds = 6;  // seeds, before a bug counts as survivor: some are rare
// In some which thread comes first is chance: beside other work three in a row showed nothing.
constexpr int kPlays = 20;

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// The first scenario that goes wrong, of all or of that name, in the form of an explorer's
// violation.
std::string play(std::string_view name) {
  for (const Scenario& scenario : scenarios()) {
    if (!name.empty() && scenario.name != name) continue;
    const std::string text = violation_of(scenario);
    if (!text.empty()) return fmt::format("{}\n  {}\n", scenario.name, text);
  }
  return {};
}

// Plays and explores with the bug planted until it is caught.
Result hunt(const PlantedBug& bug, const Options& options) {
  planted_bug = bug.in_store;
  Result sum;
  if (!bug.scenario.empty()) {
    for (int round = 0; round < kPlays && sum.violation.empty(); ++round) {
      sum.violation = play(bug.scenario);
    }
    return sum;
  }
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (const Workload& workload :
         select_workloads(options.workload.empty() ? bug.workload : options.workload, Effort::quick,
                          options.seed)) {
      for (const MediumMode& mode : kMediumModes) {
        Settings settings = settings_for({workload, mode, options.seed + round}, Effort::quick);
        settings.bugs = bug.in_medium;
        const Result result = explore_workload(workload, mode, settings);
        sum.counts += result.counts;
        sum.seconds += result.seconds;
        sum.violation = result.violation;
        if (!sum.violation.empty()) return sum;
      }
    }
  }
  return sum;
}

int hunt_one(const Options& options) {
  for (const PlantedBug& bug : planted_bugs()) {
    if (bug.name != options.bug) continue;
    Result result;
    run_in_children({[&] { return hunt(bug, options); }}, 1,
                    [&](std::size_t, const Result& found) { result = found; });
    if (result.violation.empty()) {
      say(fmt::format("{} was not caught in {} images\n", bug.name, result.counts.images));
      return 0;
    }
    say(fmt::format("{} caught after {} images:\nVIOLATION {}\n", bug.name, result.counts.images,
                    result.violation));
    return 1;
  }
  say(fmt::format("no bug \"{}\"; --list names them\n", options.bug));
  return 2;
}

std::string line(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0 && begin != std::string::npos; --number) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return {};
  const std::string found = text.substr(begin, text.find('\n', begin) - begin);
  return found.substr(std::min(found.find_first_not_of(' '), found.size()));
}

int hunt_all(const Options& options) {
  const std::vector<PlantedBug>& bugs = planted_bugs();
  std::vector<Task> tasks;
  for (const PlantedBug& bug : bugs) {
    tasks.push_back([&bug, &options] { return hunt(bug, options); });
  }
  // The control: one round without any bug, which must pass.
  tasks.push_back([&options] {
    Result sum;
    sum.violation = play({});
    for (const char* name : {"assign", "reuse", "threads"}) {
      for (const MediumMode& mode : kMediumModes) {
        const Workload workload = select_workloads(name, Effort::quick, 0).front();
        const Result result = explore_workload(
            workload, mode, settings_for({workload, mode, options.seed}, Effort::quick));
        sum.counts += result.counts;
        if (sum.violation.empty()) sum.violation = result.violation;
      }
    }
    return sum;
  });
  say(fmt::format("seed {}\n{:<28} {:<3} {:>9}  {:<18} {}\n", options.seed, "planted bug", "",
                  "images", "caught by", "as"));
  std::vector<std::string_view> survivors;
  bool control = true;
  run_in_children(tasks, options.jobs, [&](std::size_t index, const Result& result) {
    const bool caught = !result.violation.empty();
    const std::string row = fmt::format("{:>9}  {:<18} {}\n", result.counts.images,
                                        caught ? line(result.violation, 0) : "-",
                                        caught ? line(result.violation, 1) : "-");
    if (index == bugs.size()) {
      control = !caught;
      say(fmt::format("{:<28} {:<3} {}", "(none planted)", "", row));
      if (!control) say(result.violation);
      return;
    }
    if (!caught) survivors.push_back(bugs[index].name);
    say(fmt::format("{:<28} {:<3} {}", bugs[index].name, bugs[index].invariant,
                    caught ? row : fmt::format("{:>9}  SURVIVED\n", result.counts.images)));
  });
  say(fmt::format("{} of {} caught{}{}; without a bug the same build {}\n",
                  bugs.size() - survivors.size(), bugs.size(), survivors.empty() ? "" : ", not ",
                  fmt::join(survivors, ", "), control ? "passes" : "FAILS"));
  return survivors.empty() && control ? 0 : 1;
}

int list() {
  for (const PlantedBug& bug : planted_bugs()) {
    say(fmt::format("  {:<28} {}\n", bug.name, bug.invariant));
  }
  return 0;
}

}  // namespace
}  // namespace tensorshelf::crash

int main(int argc, char** argv) {
  using namespace tensorshelf::crash;
  Options options;
  CLI::App app("Explores a store with planted bugs: each must be caught.");
  app.add_option("--seed", options.seed, "repeats a run (1)");
  app.add_option("--bug", options.bug, "only this one, in detail; exits with 1 when it is caught");
  app.add_option("--workload", options.workload, "only this one");
  app.add_option("--jobs", options.jobs, "processes at once")->check(CLI::PositiveNumber);
  app.add_flag("--list", options.list, "names the bugs and the invariant that each breaks");
  CLI11_PARSE(app, argc, argv);
  keep_freed_memory();
  try {
    if (options.list) return list();
    return options.bug.empty() ? hunt_all(options) : hunt_one(options);
  } catch (const std::exception& error) {
    say(fmt::format("tensorshelf-crashtest-planted: {}\n", error.what()));
    return 2;
  }
}
