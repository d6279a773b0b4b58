// A job of a few ranks, as a value: their machines, what their shelves hold, and every message that
// was ever sent. Each step gives the worlds that may follow. A message stays when it was taken: so
// it may come late, twice, in any order, or never. A rank that dies leaves any of the images that a
// crash within what it was doing to its shelf leaves, and a start reads what the real recovery
// finds there: shelf_graph.hpp has both, and all that a shelf does meanwhile.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/group.hpp>

#include "shelf_graph.hpp"

namespace tensorshelf::group_test {

struct Limits {
  std::uint32_t ranks = 2;
  std::uint32_t saves = 2;  // of each rank, in each generation
  int refusals = 1;         // in all
  int deaths = 1;           // of single ranks, whom the others outlive for a while
  std::uint32_t restarts = 2;
  int cuts = 0;  // openings, for a restart, that a crash cuts short

  ShelfLimits of_shelves() const { return {restarts + 1, saves, static_cast<std::uint32_t>(cuts)}; }
};

struct RankState {
  bool alive = true;
  bool saved = false;         // its part is durable, and the machine has not heard
  std::uint32_t saves = 0;    // begun in this generation
  Todo todo = Todo::nothing;  // said, and not done
  Participant machine;
  ShelfId shelf = 0;  // open as long as it is alive, else an image
  friend auto operator<=>(const RankState&, const RankState&) = default;
};

struct World {
  std::vector<RankState> ranks;
  std::optional<Coordinator> coordinator;  // in the process of rank 0
  std::vector<GroupMessage> sent;          // sorted, each once
  Epoch acknowledged;                      // the newest that somebody was told of
  std::vector<Epoch> starts;               // what each went on from, with its own generation
  int refusals = 0;
  int deaths = 0;
  int cuts = 0;
  friend auto operator<=>(const World&, const World&) = default;
};

// Every world that can be come to.
struct Explored {
  std::string wrong;  // of the first that shows something
  std::size_t worlds = 0;
};
// One graph for each rank, within limits.of_shelves().
Explored explore(const Limits& limits, const std::vector<ShelfGraph>& shelves);

}  // namespace tensorshelf::group_test
