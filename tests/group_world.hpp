// A job of a few ranks, as a value: their machines, what their shelves hold, and every message that
// was ever sent. Each step gives the worlds that may follow. A message stays when it was taken: so
// it may come late, twice, in any order, or never. A shelf is what it guarantees: what a crash
// leaves of prepare() and resolve() is the state before or behind (tests/test_group_shelves.cpp
// looks at real ones).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/group.hpp>

namespace tensorshelf::group_test {

struct Limits {
  std::uint32_t ranks = 2;
  std::uint64_t saves = 2;  // of each rank, in each generation
  int refusals = 1;         // in all
  int deaths = 1;           // of single ranks, whom the others outlive for a while
  int restarts = 2;
};

struct ShelfState {
  std::optional<Epoch> committed;
  std::optional<Epoch> prepared;
  friend auto operator<=>(const ShelfState&, const ShelfState&) = default;
};

struct RankState {
  bool alive = true;
  bool saved = false;         // its part is durable, and the machine has not heard
  std::uint64_t saves = 0;    // begun in this generation
  Todo todo = Todo::nothing;  // said, and not done
  Participant machine;
  ShelfState shelf;
  friend auto operator<=>(const RankState&, const RankState&) = default;
};

struct World {
  std::vector<RankState> ranks;
  std::optional<Coordinator> coordinator;  // in the process of rank 0
  std::vector<GroupMessage> sent;          // sorted, each once
  Epoch acknowledged;                      // the newest that somebody was told of
  std::uint32_t starts = 0;
  int refusals = 0;
  int deaths = 0;
  friend auto operator<=>(const World&, const World&) = default;
};

// A job that begins with empty shelves.
World first_world(const Limits& limits);

// Calls visit() with each world that may follow. Returns what one of them shows to be wrong, else
// nothing.
std::string each_next(const World& world, const Limits& limits,
                      const std::function<void(World)>& visit);

// Runs a world in which nobody dies, and every message arrives, to its end. Returns what is wrong
// where it does not come to one, or two ranks end otherwise.
std::string run_to_its_end(World world);

// Every world that can be come to.
struct Explored {
  std::string wrong;  // of the first that shows something
  std::size_t worlds = 0;
};
Explored explore(const Limits& limits);

}  // namespace tensorshelf::group_test
