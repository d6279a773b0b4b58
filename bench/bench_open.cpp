// How long opening takes, for two shelves in alternation: it must not grow with the shelf.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include <tensorshelf/shelf.hpp>

#include "samples.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;
namespace fs = std::filesystem;

OpenOptions options_for(Tier tier, Mode mode) {
  OpenOptions options;
  options.tier = tier;
  options.mode = mode;
  return options;
}

// One tensor of `bytes`, of which only the first chunk is ever written by hand: opening reads
// metadata alone, and the metadata is that of a full shelf.
void make(const fs::path& path, Tier tier, std::uint64_t bytes) {
  Shelf shelf = Shelf::open(path, options_for(tier, Mode::replace));
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(bytes)};
  shelf.create("w", DType::uint8, shape);
  shelf.persist();
}

void open_once(const fs::path& path, Tier tier) {
  const Shelf shelf = Shelf::open(path, options_for(tier, Mode::update));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("time to open a shelf");
  std::string directory = "/dev/shm";
  std::string tier_name = "auto";
  std::uint64_t small_bytes = 50ULL << 20;  // two slots: the shelf is twice this
  std::uint64_t large_bytes = 5ULL << 30;
  int rounds = 21;
  app.add_option("--dir", directory);
  app.add_option("--tier", tier_name)->check(CLI::IsMember({"auto", "pmem", "block"}));
  app.add_option("--small", small_bytes);
  app.add_option("--large", large_bytes);
  app.add_option("--rounds", rounds);
  CLI11_PARSE(app, argc, argv);
  const Tier tier = tier_name == "pmem"    ? Tier::pmem
                    : tier_name == "block" ? Tier::block
                                           : Tier::automatic;
  const fs::path small = fs::path(directory) / "tensorshelf-bench-small";
  const fs::path large = fs::path(directory) / "tensorshelf-bench-large";
  try {
    make(small, tier, small_bytes);
    make(large, tier, large_bytes);
    const auto pairs = alternate(
        rounds, [&] { open_once(large, tier); }, [&] { open_once(small, tier); });
    print("open", pairs, static_cast<double>(2 * large_bytes));
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
