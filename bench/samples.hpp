// Timing and output of the bench programs: one JSON object per line on standard output, which
// run_bench.py turns into ratios and a table.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace tensorshelf::bench {

template <typename Call>
double seconds_of(Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Two things measured in turn: ours, and the limit it is held against.
struct Pairs {
  std::vector<double> ours;
  std::vector<double> limit;
};

// `rounds` of each in alternation, after one of each that is not counted.
template <typename Ours, typename Limit>
Pairs alternate(int rounds, Ours&& ours, Limit&& limit) {
  Pairs pairs;
  for (int round = -1; round < rounds; ++round) {
    const double a = seconds_of(limit);
    const double b = seconds_of(ours);
    if (round < 0) continue;
    pairs.limit.push_back(a);
    pairs.ours.push_back(b);
  }
  return pairs;
}

inline void print(const std::string& name, const Pairs& pairs, double bytes) {
  fmt::print("{{\"case\": \"{}\", \"bytes\": {}, \"ours\": [{}], \"limit\": [{}]}}\n", name, bytes,
             fmt::join(pairs.ours, ", "), fmt::join(pairs.limit, ", "));
  std::fflush(stdout);
}

inline void print_value(const std::string& name, double value) {
  fmt::print("{{\"case\": \"{}\", \"value\": {}}}\n", name, value);
  std::fflush(stdout);
}

}  // namespace tensorshelf::bench
