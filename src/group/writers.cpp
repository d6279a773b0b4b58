// Which ranks write, and who holds the copies of what they write.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <tensorshelf/error.hpp>
#include <tensorshelf/partition.hpp>

#include "base/check.hpp"

namespace tensorshelf {
namespace {

// The ranks of each socket of each node, in an order that takes the sockets of a node in turn.
std::vector<std::size_t> in_turn_on_a_node(
    const std::map<std::uint32_t, std::vector<std::size_t>>& sockets) {
  std::vector<std::size_t> turn;
  for (std::size_t round = 0;; ++round) {
    const std::size_t before = turn.size();
    for (const auto& [socket, ranks] : sockets) {
      if (round < ranks.size()) turn.push_back(ranks[round]);
    }
    if (turn.size() == before) return turn;
  }
}

}  // namespace

std::vector<std::size_t> choose_writers(std::span<const RankPlace> ranks, WriterSet set) {
  std::vector<std::size_t> writers;
  std::set<std::pair<std::uint32_t, std::uint32_t>> served;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::uint32_t socket = set == WriterSet::per_socket ? ranks[rank].socket : 0;
    const bool first = served.emplace(ranks[rank].node, socket).second;
    if (first || set == WriterSet::every_rank) writers.push_back(rank);
  }
  return writers;
}

std::vector<std::size_t> choose_writers(std::span<const RankPlace> ranks, std::size_t count) {
  if (count < 1 || count > ranks.size()) {
    throw Error(Errc::bad_argument,
                fmt::format("{} writers cannot be chosen of {} ranks", count, ranks.size()),
                fmt::format("use 1 to {}", ranks.size()));
  }
  std::map<std::uint32_t, std::map<std::uint32_t, std::vector<std::size_t>>> nodes;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    nodes[ranks[rank].node][ranks[rank].socket].push_back(rank);
  }
  std::map<std::uint32_t, std::vector<std::size_t>> turns;
  for (const auto& [node, sockets] : nodes) turns[node] = in_turn_on_a_node(sockets);
  std::vector<std::size_t> writers = in_turn_on_a_node(turns);
  writers.resize(count);
  std::ranges::sort(writers);
  return writers;
}

// Writers that lie `writers / copies` places apart, or more, in an order that has those of a node
// side by side, are of different nodes where no node has more than that. No other way does better:
// a node that has more would hold more copies than there are shares.
Copies::Copies(std::span<const std::uint32_t> node_of_writer, std::size_t copies)
    : by_node_(node_of_writer.size()), place_of_(node_of_writer.size()), copies_(copies) {
  if (copies < 1) {
    throw Error(Errc::bad_argument, "copies=0 keeps nothing", "use 1 or more");
  }
  std::map<std::uint32_t, std::size_t> counts;
  for (const std::uint32_t node : node_of_writer) ++counts[node];
  for (const auto& [node, count] : counts) {
    if (count <= node_of_writer.size() / copies) continue;
    throw Error(
        Errc::bad_argument,
        fmt::format("copies={} on different nodes: node {} has {} of the {} writers, and {} "
                    "at most may be on one",
                    copies, node, count, node_of_writer.size(), node_of_writer.size() / copies),
        "let each node have as many writers, of as many nodes as there are copies, or use "
        "fewer copies");
  }
  std::iota(by_node_.begin(), by_node_.end(), std::size_t{0});
  std::ranges::stable_sort(by_node_, {},
                           [&](std::size_t writer) { return node_of_writer[writer]; });
  for (std::size_t place = 0; place < by_node_.size(); ++place) place_of_[by_node_[place]] = place;
}

std::size_t Copies::shifted(std::size_t writer, std::size_t places) const {
  TENSORSHELF_ASSERT(writer < place_of_.size());
  return by_node_[(place_of_[writer] + places) % by_node_.size()];
}

std::vector<std::size_t> Copies::holders(std::size_t share) const {
  const std::size_t apart = by_node_.size() / copies_;
  std::vector<std::size_t> holders;
  for (std::size_t copy = 0; copy < copies_; ++copy)
    holders.push_back(shifted(share, copy * apart));
  return holders;
}

std::vector<std::size_t> Copies::shares(std::size_t writer) const {
  const std::size_t apart = by_node_.size() / copies_;
  std::vector<std::size_t> shares;
  for (std::size_t copy = 0; copy < copies_; ++copy) {
    shares.push_back(shifted(writer, by_node_.size() - copy * apart));
  }
  return shares;
}

}  // namespace tensorshelf
