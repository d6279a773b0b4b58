// How evenly a state of GPT-3's shape is split over writers, and what planning costs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <tensorshelf/partition.hpp>

#include "samples.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;

// 96 layers of 12,288 (Brown et al., 2020, table 2.1), each parameter with what mixed-precision
// Adam keeps of it: 2 bytes, and 3 times 4.
std::vector<std::uint64_t> gpt3() {
  constexpr std::uint64_t d = 12288;
  std::vector<std::uint64_t> counts = {50257 * d, 2048 * d, d, d};
  for (unsigned layer = 0; layer < 96; ++layer) {
    counts.insert(counts.end(), {3 * d * d, 3 * d, d * d, d, 4 * d * d, 4 * d, 4 * d * d, d});
    counts.insert(counts.end(), 4, d);  // two norms
  }
  std::vector<std::uint64_t> sizes;
  for (const std::uint64_t n : counts) sizes.insert(sizes.end(), {2 * n, 4 * n, 4 * n, 4 * n});
  return sizes;
}

// Blocks of the writer that has most beyond the one that has fewest.
std::uint64_t imbalance(const Partition& partition) {
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::size_t writer = 0; writer < partition.writers(); ++writer) {
    std::uint64_t blocks = 0;
    for (const Piece& piece : partition.of(writer)) {
      blocks += std::max<std::uint64_t>(round_up(piece.size_bytes, kPageBytes) / kPageBytes, 1);
    }
    least = std::min(least, blocks);
    most = std::max(most, blocks);
  }
  return most - least;
}

// Every rank plans for itself, and asks for its own part.
double seconds_to_plan(const std::vector<std::uint64_t>& sizes, std::size_t writers) {
  return seconds_of([&] {
    const Partition partition(sizes, writers);
    if (partition.of(writers / 2).empty()) std::abort();
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The split of a state over writers.");
  int rounds = 21;
  app.add_option("--rounds", rounds);
  CLI11_PARSE(app, argc, argv);
  const auto sizes = gpt3();
  for (std::size_t writers = 1; writers <= 4096; writers *= 2) {
    print_value(fmt::format("imbalance of {} writers", writers),
                static_cast<double>(imbalance(Partition(sizes, writers))));
  }
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> many(100'000);
  for (auto& size : many) size = random() % (std::uint64_t{1} << random() % 32);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(seconds_to_plan(many, 4096));
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  print_value("seconds to plan 100,000 tensors", times[static_cast<std::size_t>(rounds) / 2]);
  return 0;
}
