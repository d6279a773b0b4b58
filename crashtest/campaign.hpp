// Which workloads are explored under which settings, and how that is told.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "child.hpp"
#include "explorer.hpp"
#include "workload.hpp"

namespace tensorshelf::crash {

// A medium that breaks things in its own way.
struct MediumMode {
  std::string_view name;
  Personality personality;
  bool trash;
};
inline constexpr std::array kMediumModes = {
    MediumMode{"pmem", Personality::pmem, false}, MediumMode{"block", Personality::block, false},
    MediumMode{"trash", Personality::block, true},  // unsettled sectors may be garbage
};

enum class Effort { quick, full };

// What is explored in one process.
struct Cell {
  Workload workload;
  MediumMode mode;
  std::uint64_t seed;
};

// Random workloads that once ended in a violation. Every quick round explores them again, each with
// readers enough to find what was found then.
struct FailedOnce {
  std::string_view name;
  std::uint64_t seed;
  std::uint64_t number;  // among those that the seed makes up
};
inline constexpr std::array kFailedOnce = {
    FailedOnce{"seed-1025", 1025, 3},  // a reader overtaken twice within one scan cried damage
};
inline constexpr std::uint64_t kReadersOfThose = 10'000;

// Settings for one workload under one mode; the seed is mixed with both.
Settings settings_for(const Cell& cell, Effort effort);

// Explores it in this process, from an empty disk. A violation becomes part of the result.
Result explore_workload(const Workload& workload, const MediumMode& mode, const Settings& settings);

inline constexpr unsigned kRandoms = 6;  // of either kind, for one seed

// All workloads, or the one of that name; throws std::invalid_argument where there is none.
// "random" are those that the seed makes up; "on-2" and "mirrored" are those of the table once
// more, each as NAME-on-2 on two media and as NAME-mirrored. With full effort all of these belong
// to all, else those do that failed once.
std::vector<Workload> select_workloads(std::string_view name, Effort effort, std::uint64_t seed,
                                       unsigned randoms = kRandoms);

// One line: what was done, and how fast.
std::string counts_line(const Counts& counts, double core_seconds);
std::string counts_row(std::string_view name, std::string_view mode, const Result& result);
std::string counts_heading();

}  // namespace tensorshelf::crash
