// How long opening takes, for two shelves in alternation: it must not grow with the shelf, and
// little with the number of its tensors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <optional>

#include <tensorshelf/shelf.hpp>

#include "samples.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;
namespace fs = std::filesystem;

OpenOptions options_for(const std::string& tier, Mode mode) {
  OpenOptions options;
  options.tier = tier;
  options.mode = mode;
  return options;
}

// One tensor of `bytes`, of which only the first chunk is ever written by hand: opening reads
// metadata alone, and the metadata is that of a full shelf.
void make(const fs::path& path, const std::string& tier, std::uint64_t bytes) {
  Shelf shelf = Shelf::open(path, options_for(tier, Mode::replace));
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(bytes)};
  shelf.create("w", DType::uint8, shape);
  shelf.persist();
}

// As models have them: so many of 4 KiB, with names that differ in a number.
void make_many(const fs::path& path, const std::string& tier, int tensors) {
  Shelf shelf = Shelf::open(path, options_for(tier, Mode::replace));
  const std::vector<std::int64_t> shape = {1024};
  for (int i = 0; i < tensors; ++i) {
    shelf.create(fmt::format("layers.{}.weight", i), DType::float32, shape);
  }
  shelf.persist();
}

double seconds_to_open(const fs::path& path, const std::string& tier) {
  std::optional<Shelf> shelf;
  return seconds_of([&] { shelf.emplace(Shelf::open(path, options_for(tier, Mode::update))); });
}

Pairs measure(int rounds, const fs::path& ours, const fs::path& limit, const std::string& tier) {
  Pairs pairs;
  for (int round = -1; round < rounds; ++round) {
    const double a = seconds_to_open(limit, tier);
    const double b = seconds_to_open(ours, tier);
    if (round < 0) continue;
    pairs.limit.push_back(a);
    pairs.ours.push_back(b);
  }
  return pairs;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("time to open a shelf");
  std::string directory = "/dev/shm";
  std::string tier = "auto";
  std::uint64_t small_bytes = 50ULL << 20;  // two slots: the shelf is twice this
  std::uint64_t large_bytes = 5ULL << 30;
  int tensors = 100'000;
  int rounds = 21;
  app.add_option("--dir", directory);
  app.add_option("--tier", tier)->check(CLI::IsMember(tiers()));
  app.add_option("--small", small_bytes);
  app.add_option("--large", large_bytes);
  app.add_option("--tensors", tensors);
  app.add_option("--rounds", rounds);
  CLI11_PARSE(app, argc, argv);
  const fs::path small = fs::path(directory) / "tensorshelf-bench-small";
  const fs::path large = fs::path(directory) / "tensorshelf-bench-large";
  try {
    make(small, tier, small_bytes);
    make(large, tier, large_bytes);
    print("open", measure(rounds, large, small, tier), static_cast<double>(2 * large_bytes));
    make_many(small, tier, 1000);
    make_many(large, tier, tensors);
    print("many", measure(rounds, large, small, tier), static_cast<double>(tensors));
  } catch (const Error& error) {
    std::cerr << error.what() << ". " << error.remedy() << '\n';
    fs::remove(small);
    fs::remove(large);
    return 3;
  }
  fs::remove(small);
  fs::remove(large);
  return 0;
}
