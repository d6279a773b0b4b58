#include "campaign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>

#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char letter : text) hash = mixed(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace

Settings settings_for(const Cell& cell, Effort effort) {
  const auto& [workload, mode, seed] = cell;
  Settings settings;
  settings.personality = mode.personality;
  settings.trash = mode.trash;
  settings.seed = mixed(seed ^ hash_text(workload.program) ^ mixed(hash_text(mode.name)));
  constexpr std::uint64_t granule_bytes = 40 * kPageBytes;  // no power of two
  if (settings.seed % 2 == 0) settings.granule_bytes = granule_bytes;
  for (const FailedOnce& kept : kFailedOnce) {
    if (workload.name == kept.name) settings.readers = kReadersOfThose;
  }
  if (effort == Effort::full) {
    settings.cap = 256;
    settings.deep_cap = 16;
    settings.recovery_one_in = 8;
    settings.work_one_in = 16;
    settings.fault_one_in = 32;
  }
  // Each death and failure is followed by work and a walk of its own, most of the time that a
  // workload takes.
  if (effort != Effort::full) {
    settings.death_one_in *= 2;
    settings.failure_one_in *= 2;
  }
  settings.cap = std::max<std::size_t>(settings.cap / workload.weight, 8);
  settings.deep_cap = std::max<std::size_t>(settings.deep_cap / workload.weight, 4);
  settings.recovery_one_in *= workload.weight;
  settings.work_one_in *= workload.weight;
  settings.fault_one_in *= workload.weight;
  settings.settled_fault_one_in *= workload.weight;
  return settings;
}

Result explore_workload(const Workload& workload, const MediumMode& mode,
                        const Settings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  Disk disk(kDiskBytes + kMirrorBytes);
  Explorer explorer(disk, settings);
  const std::string where = fmt::format("{}/{}", workload.name, mode.name);
  note_workload(where, &explorer.counts());
  Result result;
  try {
    explorer.explore(workload.program);
  } catch (const Violation& violation) {
    result.violation = fmt::format("{}\n  {}\n  {}\n", where, violation.what(), workload.program);
  }
  note_workload("the end", nullptr);
  result.counts = explorer.counts();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

namespace {

// Each that says nothing of media, once more on two. Not those that want more room than there is
// then, or a format with one medium alone.
const std::vector<Workload>& on_two_media() {
  static std::deque<std::string> names;  // which stay where they are
  static const std::vector<Workload> table = [] {
    std::vector<Workload> all;
    for (const Workload& workload : workloads()) {
      const auto says = [&](std::string_view text) {
        return workload.program.find(text) != std::string::npos;
      };
      if (says("media") || says("mirror") || says("format 2") || says("refuse")) continue;
      names.push_back(fmt::format("{}-on-2", workload.name));
      all.push_back({names.back(), "media 2; " + workload.program, workload.weight});
      names.push_back(fmt::format("{}-mirrored", workload.name));
      all.push_back({names.back(), "mirror; " + workload.program, 4 * workload.weight});
    }
    return all;
  }();
  return table;
}

}  // namespace

std::vector<Workload> select_workloads(std::string_view name, Effort effort, std::uint64_t seed,
                                       unsigned randoms) {
  std::vector<Workload> chosen;
  for (const Workload& workload : workloads()) {
    if (name.empty() || workload.name == name) chosen.push_back(workload);
  }
  for (const Workload& workload : on_two_media()) {
    const bool all = name.empty() && effort == Effort::full;
    const bool group = !name.empty() && (name == "on-2" || name == "mirrored") &&
                       std::string_view(workload.name).ends_with(fmt::format("-{}", name));
    if (all || group || workload.name == name) chosen.push_back(workload);
  }
  if (name == "random" || (name.empty() && effort == Effort::full)) {
    for (std::uint64_t i = 0; i < randoms; ++i) {
      chosen.push_back({"random", random_program(mixed(seed) + i)});
      chosen.push_back({"random", random_attempts(mixed(seed) + i)});
    }
  }
  for (const FailedOnce& kept : kFailedOnce) {
    if (name == kept.name || name.empty()) {
      chosen.push_back({kept.name, random_program(mixed(kept.seed) + kept.number)});
    }
  }
  if (chosen.empty()) {
    throw std::invalid_argument(fmt::format("no workload \"{}\"; --list names them", name));
  }
  return chosen;
}

std::string counts_heading() {
  return fmt::format("{:<14} {:<6} {:>7} {:>11} {:>9} {:>9} {:>11} {:>9} {:>8} {:>8}\n", "workload",
                     "medium", "crashes", "exhaustive", "images", "distinct", "recoveries", "per s",
                     "failures", "readers");
}

std::string counts_line(const Counts& counts, double core_seconds) {
  return fmt::format(
      "{} recoveries, {} per second of a core; {} crash points, {} images, {} failed calls, {} "
      "processes that died, {} readers\n",
      counts.recoveries,
      static_cast<std::uint64_t>(static_cast<double>(counts.recoveries) /
                                 std::max(core_seconds, 1e-3)),
      counts.crash_points, counts.images, counts.failures, counts.deaths, counts.readers);
}

std::string counts_row(std::string_view name, std::string_view mode, const Result& result) {
  const Counts& counts = result.counts;
  const double rate =
      result.seconds > 0 ? static_cast<double>(counts.recoveries) / result.seconds : 0;
  return fmt::format("{:<14} {:<6} {:>7} {:>11} {:>9} {:>9} {:>11} {:>9.0f} {:>8} {:>8}\n", name,
                     mode, counts.crash_points, counts.exhaustive_points, counts.images,
                     counts.distinct, counts.recoveries, rate, counts.failures, counts.readers);
}

}  // namespace tensorshelf::crash
