// The split of a state over writers, who writes, and who holds the copies: over all small shapes,
// and over states of the sizes that are trained.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/partition.hpp>

namespace tensorshelf {
namespace {

constexpr std::uint64_t kBlock = kPageBytes;
using Sizes = std::vector<std::uint64_t>;

// Empty where the partition is what partition.hpp says; else what is wrong. It is worked out here
// another way: block by block.
std::string wrong_with(const Sizes& sizes, std::size_t writers, std::uint64_t block = kBlock) {
  const Partition partition(sizes, writers, block);
  std::vector<std::uint64_t> covered(sizes.size(), 0);  // bytes, from the tensor's begin
  std::vector<unsigned> empties(sizes.size(), 0);
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::size_t writer = 0; writer < writers; ++writer) {
    std::uint64_t blocks = 0;
    std::size_t next = 0;
    for (const Piece& piece : partition.of(writer)) {
      if (piece.tensor < next) return "two pieces of a tensor, or pieces out of order";
      next = piece.tensor + 1;
      const std::uint64_t size = sizes[piece.tensor];
      if (piece.offset % block != 0) return "a piece begins within a block";
      if (piece.offset != covered[piece.tensor]) return "a gap, or bytes of two";
      covered[piece.tensor] += piece.size_bytes;
      if (piece.size_bytes == 0 && (size != 0 || ++empties[piece.tensor] > 1)) return "no bytes";
      const std::uint64_t end = piece.offset + piece.size_bytes;
      if (end > size) return "beyond the tensor";
      if (end != size && piece.size_bytes % block != 0) return "a piece ends within a block";
      blocks += std::max<std::uint64_t>((piece.size_bytes + block - 1) / block, 1);
      for (const std::uint64_t at : {piece.offset, std::max(end, piece.offset + 1) - 1}) {
        if (partition.writer_of(piece.tensor, at) != writer) return "another writes it, it says";
      }
    }
    if (blocks != partition.blocks_of(writer)) return "another number of blocks";
    least = std::min(least, blocks);
    most = std::max(most, blocks);
  }
  if (covered != sizes) return "bytes that nobody writes";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && empties[i] != 1) return "an empty tensor that nobody writes";
  }
  return most - least > 1 ? "more than a block of imbalance" : "";
}

TEST_CASE("every small state is split whole and evenly over any number of writers") {
  const Sizes some = {0, 1, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 5 * kBlock + 7};
  for (std::size_t writers = 1; writers <= 9; ++writers) {
    REQUIRE(wrong_with({}, writers) == "");
    for (const std::uint64_t a : some) {
      REQUIRE(wrong_with({a}, writers) == "");
      for (const std::uint64_t b : some) {
        REQUIRE(wrong_with({a, b}, writers) == "");
        for (const std::uint64_t c : some) REQUIRE(wrong_with({a, b, c}, writers) == "");
      }
    }
  }
}

TEST_CASE("any state is split whole and evenly") {
  std::mt19937_64 random(7);
  for (unsigned round = 0; round < 200; ++round) {
    Sizes sizes(random() % 60);
    for (auto& size : sizes) size = random() % (std::uint64_t{1} << random() % 40);
    const std::uint64_t block = kBlock << random() % 9;
    CAPTURE(round, sizes.size(), block);
    REQUIRE(wrong_with(sizes, 1 + random() % 200, block) == "");
  }
}

TEST_CASE("ranks that compute it apart agree, and another order is another split") {
  const Sizes sizes = {9 * kBlock, 100, 4 * kBlock};
  const Partition one(sizes, 3);
  const Partition other(sizes, 3);
  for (std::size_t writer = 0; writer < 3; ++writer) REQUIRE(one.of(writer) == other.of(writer));
  REQUIRE(one.of(0) == std::vector<Piece>{{0, 0, 4 * kBlock}});
  REQUIRE(one.of(1) == std::vector<Piece>{{0, 4 * kBlock, 5 * kBlock}});
  REQUIRE(one.of(2) == std::vector<Piece>{{1, 0, 100}, {2, 0, 4 * kBlock}});
}

TEST_CASE("more writers than blocks: some write nothing") {
  const Sizes sizes = {kBlock, 1};
  const Partition partition(sizes, 5);
  std::size_t idle = 0;
  for (std::size_t writer = 0; writer < 5; ++writer) idle += partition.of(writer).empty() ? 1 : 0;
  REQUIRE(idle == 3);
}

// 96 layers of 12,288 as Megatron-LM names them, each parameter with what mixed-precision Adam
// keeps: 2 bytes of it, and 3 times 4.
Sizes gpt3() {
  const std::uint64_t d = 12288;
  Sizes counts = {50257 * d, 2048 * d, d, d};
  for (unsigned layer = 0; layer < 96; ++layer) {
    for (const std::uint64_t n : {3 * d * d, 3 * d, d * d, d, 4 * d * d, 4 * d, 4 * d * d, d}) {
      counts.push_back(n);
    }
    counts.insert(counts.end(), 4, d);  // two norms
  }
  Sizes sizes;
  for (const std::uint64_t n : counts) sizes.insert(sizes.end(), {2 * n, 4 * n, 4 * n, 4 * n});
  return sizes;
}

TEST_CASE("a state of GPT-3's shape over 1 to 4,096 writers") {
  const Sizes sizes = gpt3();
  const auto bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  REQUIRE(bytes > std::uint64_t{2400} * 1000 * 1000 * 1000);
  for (std::size_t writers = 1; writers <= 4096; writers *= 2) {
    CAPTURE(writers);
    REQUIRE(wrong_with(sizes, writers) == "");
    REQUIRE(wrong_with(sizes, writers, kChunkBytes) == "");
  }
}

TEST_CASE("sizes near the end of what numbers hold") {
  const std::uint64_t half = std::uint64_t{1} << 62;
  REQUIRE(wrong_with({half, half - kBlock}, 3) == "");
  REQUIRE(wrong_with({half, half}, (std::size_t{1} << 20) + 7, half / 4) == "");
  const Sizes too_much = {half, half, 1};
  REQUIRE_THROWS_AS(Partition(too_much, 2), Error);
  const Sizes wraps(5, half);
  REQUIRE_THROWS_AS(Partition(wraps, 2), Error);
  const Sizes last = {~std::uint64_t{0}};
  REQUIRE_THROWS_AS(Partition(last, 2), Error);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::bad_argument);
    return error.what();
  }
  return "";
}

TEST_CASE("what cannot be split so is refused") {
  using Catch::Contains;
  const Sizes sizes = {1};
  REQUIRE_THAT(refusal([&] { Partition(sizes, 0); }), Contains("0 writers"));
  const std::size_t many = (std::size_t{1} << 31) + 1;
  REQUIRE_THAT(refusal([&] { Partition(sizes, many); }), Contains("2147483649 writers"));
  for (const std::uint64_t block : {std::uint64_t{0}, kBlock - 1, kBlock + 512}) {
    REQUIRE_THAT(refusal([&] { Partition(sizes, 1, block); }),
                 Contains("a block of " + std::to_string(block)));
  }
}

// ---- who writes

using Ranks = std::vector<std::size_t>;

// Nodes with so many ranks on each of two sockets.
std::vector<RankPlace> places(const std::vector<std::pair<unsigned, unsigned>>& nodes) {
  std::vector<RankPlace> ranks;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    ranks.insert(ranks.end(), nodes[node].first, {.node = node, .socket = 0});
    ranks.insert(ranks.end(), nodes[node].second, {.node = node, .socket = 1});
  }
  return ranks;
}

TEST_CASE("every rank, one of each socket, one of each node") {
  const auto ranks = places({{2, 2}, {3, 0}});
  REQUIRE(choose_writers(ranks, WriterSet::every_rank) == Ranks{0, 1, 2, 3, 4, 5, 6});
  REQUIRE(choose_writers(ranks, WriterSet::per_socket) == Ranks{0, 2, 4});
  REQUIRE(choose_writers(ranks, WriterSet::per_node) == Ranks{0, 4});
  const std::vector<RankPlace> mixed = {{1, 1}, {0, 1}, {1, 0}, {0, 1}, {1, 1}};
  REQUIRE(choose_writers(mixed, WriterSet::per_socket) == Ranks{0, 1, 2});
  REQUIRE(choose_writers(mixed, WriterSet::per_node) == Ranks{0, 1});
  REQUIRE(choose_writers({}, WriterSet::per_node).empty());
}

TEST_CASE("so many writers: nodes take turns, and on each its sockets") {
  const auto ranks = places({{2, 2}, {2, 2}});  // 0 1 | 2 3 and 4 5 | 6 7
  REQUIRE(choose_writers(ranks, 1) == Ranks{0});
  REQUIRE(choose_writers(ranks, 2) == Ranks{0, 4});
  REQUIRE(choose_writers(ranks, 3) == Ranks{0, 2, 4});
  REQUIRE(choose_writers(ranks, 4) == Ranks{0, 2, 4, 6});
  REQUIRE(choose_writers(ranks, 5) == Ranks{0, 1, 2, 4, 6});
  REQUIRE(choose_writers(ranks, 8) == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
  const auto uneven = places({{1, 0}, {3, 1}});  // 0 and 1 2 3 | 4
  REQUIRE(choose_writers(uneven, 3) == Ranks{0, 1, 4});
  REQUIRE(choose_writers(uneven, 4) == Ranks{0, 1, 2, 4});
  REQUIRE_THAT(refusal([&] { choose_writers(ranks, 0); }), Catch::Contains("0 writers"));
  REQUIRE_THAT(refusal([&] { choose_writers(ranks, 9); }), Catch::Contains("of 8 ranks"));
}

// ---- copies

TEST_CASE("copies lie on different nodes, as many with each writer") {
  std::mt19937_64 random(3);
  unsigned placed = 0;
  unsigned refused = 0;
  for (unsigned round = 0; round < 2000; ++round) {
    std::vector<std::uint32_t> nodes(1 + random() % 16);
    const std::uint64_t kinds = 1 + random() % 6;
    for (auto& node : nodes) node = static_cast<std::uint32_t>(random() % kinds) * 7;
    const std::size_t copies = 1 + random() % 4;
    std::map<std::uint32_t, std::size_t> counts;
    for (const auto node : nodes) ++counts[node];
    const bool can_be = std::ranges::all_of(
        counts, [&](const auto& count) { return count.second * copies <= nodes.size(); });
    if (!can_be) {
      REQUIRE_THAT(refusal([&] { Copies(nodes, copies); }), Catch::Contains("on different nodes"));
      ++refused;
      continue;
    }
    ++placed;
    const Copies held(nodes, copies);
    REQUIRE(held.copies() == copies);
    for (std::size_t share = 0; share < nodes.size(); ++share) {
      const auto holders = held.holders(share);
      REQUIRE(holders.size() == copies);
      REQUIRE(holders.front() == share);
      std::set<std::uint32_t> where;
      for (const std::size_t writer : holders) {
        where.insert(nodes[writer]);
        const auto shares = held.shares(writer);
        REQUIRE(shares.size() == copies);
        REQUIRE(shares.front() == writer);
        REQUIRE(std::ranges::count(shares, share) == 1);
      }
      REQUIRE(where.size() == copies);
    }
  }
  REQUIRE(placed > 400);
  REQUIRE(refused > 400);
}

TEST_CASE("no copies are refused, and what is refused is named") {
  const std::vector<std::uint32_t> nodes = {0, 0, 0, 1};
  REQUIRE_THAT(refusal([&] { Copies(nodes, 0); }), Catch::Contains("copies=0"));
  REQUIRE_THAT(refusal([&] { Copies(nodes, 2); }),
               Catch::Contains("copies=2") && Catch::Contains("node 0 has 3 of the 4 writers"));
}

TEST_CASE("as many writers as there may be can share a state") {
  constexpr std::size_t kMost = std::size_t{1} << 31;
  const Partition partition(Sizes{kBlock}, kMost, kBlock);
  CHECK(partition.of(kMost - 1).size() == 1);  // the last has the only block
  CHECK(partition.of(0).empty());
  CHECK_THROWS_AS(Partition(Sizes{kBlock}, kMost + 1, kBlock), Error);
}

}  // namespace
}  // namespace tensorshelf
