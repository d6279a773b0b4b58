#include "group_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include <tensorshelf/error.hpp>

namespace tensorshelf::group_test {
namespace {

using Kind = GroupMessage::Kind;

std::string text_of(const Epoch& epoch) {
  return fmt::format("{}.{}", epoch.generation >> 32, epoch.number);
}

void send(World& world, GroupMessage message) {
  const auto at = std::ranges::lower_bound(world.sent, message);
  if (at == world.sent.end() || *at != message) world.sent.insert(at, std::move(message));
}

bool holds(const ShelfState& shelf, const Epoch& epoch) {
  return shelf.committed == epoch || shelf.prepared == epoch;
}

// Where one rank commits an epoch, none may be without its part.
std::string check_commit(const World& world, const Epoch& epoch) {
  for (const RankState& rank : world.ranks) {
    const bool newer = rank.shelf.committed && *rank.shelf.committed > epoch;
    if (!newer && !holds(rank.shelf, epoch)) {
      return fmt::format("epoch {} is committed by one rank, and another does not hold it",
                         text_of(epoch));
    }
  }
  return {};
}

std::string do_todo(World& world, RankState& rank) {
  const Todo todo = std::exchange(rank.todo, Todo::nothing);
  if (!rank.shelf.prepared) return "a rank is to resolve what it has not prepared";
  const Epoch epoch = *rank.shelf.prepared;
  if (todo == Todo::abandon) {
    rank.shelf.prepared.reset();
    if (world.acknowledged == epoch) {
      return fmt::format("epoch {} is abandoned, and was acknowledged", text_of(epoch));
    }
    return {};
  }
  if (std::string wrong = check_commit(world, epoch); !wrong.empty()) return wrong;
  if (rank.shelf.committed && *rank.shelf.committed > epoch) return "an older epoch is committed";
  rank.shelf = {epoch, std::nullopt};
  return {};
}

std::string to_coordinator(World& world, const GroupMessage& message) {
  const auto decision = world.coordinator->receive(message);
  if (!decision) return {};
  send(world, *decision);
  if (decision->kind != Kind::commit) return {};
  world.acknowledged = std::max(world.acknowledged, decision->epoch);
  return check_commit(world, decision->epoch);
}

void restart(World& world, const Agreement& agreed) {
  std::uint64_t seen = 0;
  for (const RankState& rank : world.ranks) {
    for (const auto& epoch : {rank.shelf.committed, rank.shelf.prepared}) {
      if (epoch) seen = std::max(seen, epoch->generation);
    }
  }
  const Epoch last{next_generation(seen, ++world.starts), agreed.epoch.number};
  for (std::uint32_t i = 0; i < world.ranks.size(); ++i) {
    RankState& rank = world.ranks[i];
    rank = {true, false, 0, agreed.todos[i], Participant(i, last), rank.shelf};
  }
  world.coordinator.emplace(static_cast<std::uint32_t>(world.ranks.size()), last);
}

std::string try_restart(World& world) {
  const auto members = static_cast<std::uint32_t>(world.ranks.size());
  std::vector<GroupPart> parts;
  for (std::uint32_t i = 0; i < members; ++i) {
    const ShelfState& shelf = world.ranks[i].shelf;
    GroupPart part{i, members, {}, shelf.prepared};
    if (shelf.committed) part.committed.push_back(*shelf.committed);
    parts.push_back(std::move(part));
  }
  try {
    const Agreement agreed = agree(parts, members);
    if (agreed.epoch < world.acknowledged) {
      return fmt::format("a restart goes on from epoch {}, and {} was acknowledged",
                         text_of(agreed.epoch), text_of(world.acknowledged));
    }
    if (!agreed.behind.empty()) return "a rank is behind what the restart goes on from";
    restart(world, agreed);
  } catch (const Error& error) {
    return fmt::format("a restart is refused: {}", error.what());
  }
  return {};
}

bool any_alive(const World& world) {
  return std::ranges::any_of(world.ranks, [](const RankState& rank) { return rank.alive; });
}

bool all_alive(const World& world) {
  return std::ranges::all_of(world.ranks, [](const RankState& rank) { return rank.alive; });
}

// Ranks ask again until they hear; and whoever is told does it.
std::string settle(World& world) {
  for (bool changed = true; changed;) {
    const World before = world;
    for (RankState& rank : world.ranks) {
      if (rank.todo != Todo::nothing) {
        if (std::string wrong = do_todo(world, rank); !wrong.empty()) return wrong;
      }
      if (auto vote = rank.machine.again()) {
        if (std::string wrong = to_coordinator(world, *vote); !wrong.empty()) return wrong;
      }
      for (const GroupMessage& message : std::vector(world.sent)) {
        if (rank.todo == Todo::nothing) rank.todo = rank.machine.receive(message);
      }
    }
    changed = world != before;
  }
  return {};
}

}  // namespace

World first_world(const Limits& limits) {
  World world;
  for (std::uint32_t rank = 0; rank < limits.ranks; ++rank) {
    world.ranks.push_back({.machine = Participant(rank, {}), .shelf = {}});
  }
  restart(world, {{}, std::vector(limits.ranks, Todo::nothing), {}});
  return world;
}

std::string each_next(const World& world, const Limits& limits,
                      const std::function<void(World)>& visit) {
  std::string wrong;
  // A step of a copy of the world; what it returns is wrong, or nothing.
  const auto step = [&](auto change) {
    if (!wrong.empty()) return;
    World next = world;
    wrong = change(next);
    if (wrong.empty() && next != world) visit(std::move(next));
  };
  for (std::size_t i = 0; i < world.ranks.size(); ++i) {
    const RankState& rank = world.ranks[i];
    if (!rank.alive) continue;
    if (rank.todo != Todo::nothing) {
      step([&](World& next) { return do_todo(next, next.ranks[i]); });
      continue;  // a rank does what it was told before it hears or saves anything
    }
    const bool saving = !rank.machine.ended() || rank.saved;
    if (!saving && rank.saves < limits.saves) {
      step([&](World& next) {
        next.ranks[i].machine.begin();
        ++next.ranks[i].saves;
        return std::string();
      });
    }
    const bool unvoted = rank.saves > 0 && !rank.machine.again() && !rank.machine.ended();
    if (unvoted && !rank.saved) {
      step([&](World& next) {
        next.ranks[i].shelf.prepared = rank.machine.epoch();
        next.ranks[i].saved = true;
        return std::string();
      });
      if (world.refusals < limits.refusals) {
        step([&](World& next) {
          ++next.refusals;
          send(next, next.ranks[i].machine.refused("no room"));
          return std::string();
        });
      }
    }
    if (unvoted && rank.saved) {
      step([&](World& next) {
        next.ranks[i].saved = false;
        send(next, next.ranks[i].machine.prepared());
        return std::string();
      });
    }
    for (const GroupMessage& message : world.sent) {
      step([&](World& next) {
        next.ranks[i].todo = next.ranks[i].machine.receive(message);
        return std::string();
      });
    }
    if (world.deaths < limits.deaths) {
      step([&](World& next) {
        ++next.deaths;
        next.ranks[i] = {false, false, 0, Todo::nothing, Participant(0, {}), rank.shelf};
        if (i == 0) next.coordinator.reset();
        return std::string();
      });
    }
  }
  if (world.coordinator) {
    for (const GroupMessage& message : world.sent) {
      step([&](World& next) { return to_coordinator(next, message); });
    }
  }
  if (world.starts <= static_cast<std::uint32_t>(limits.restarts)) {
    step([](World& next) { return try_restart(next); });  // all that lived died at once
  }
  if (wrong.empty() && all_alive(world)) wrong = run_to_its_end(world);
  return wrong;
}

std::string run_to_its_end(World world) {
  if (!any_alive(world)) return {};
  for (RankState& rank : world.ranks) {
    if (rank.machine.ended() || rank.machine.again()) continue;
    if (rank.todo != Todo::nothing) continue;
    rank.shelf.prepared = rank.machine.epoch();
    rank.machine.prepared();
  }
  if (std::string wrong = settle(world); !wrong.empty()) return wrong;
  // Ranks that have begun an epoch less catch up, so that none waits for another for good.
  std::uint64_t most = 0;
  for (const RankState& rank : world.ranks) most = std::max(most, rank.machine.epoch().number);
  for (bool behind = true; behind;) {
    behind = false;
    for (RankState& rank : world.ranks) {
      if (!rank.machine.ended() || rank.machine.epoch().number >= most) continue;
      behind = true;
      rank.machine.begin();
      rank.shelf.prepared = rank.machine.epoch();
      rank.machine.prepared();
    }
    if (std::string wrong = settle(world); !wrong.empty()) return wrong;
  }
  for (const RankState& rank : world.ranks) {
    if (!rank.machine.ended()) return "a rank waits for a decision that never comes";
    if (rank.shelf.prepared) return "a rank has something prepared when all is decided";
    if (rank.shelf.committed != world.ranks[0].shelf.committed) {
      return "two ranks end with different epochs";
    }
  }
  return {};
}

Explored explore(const Limits& limits) {
  std::set<World> seen;
  std::deque<const World*> next;
  const auto visit = [&](World world) {
    const auto [at, fresh] = seen.insert(std::move(world));
    if (fresh) next.push_back(&*at);
  };
  visit(first_world(limits));
  Explored explored;
  while (!next.empty() && explored.wrong.empty()) {
    const World& world = *next.front();
    next.pop_front();
    explored.wrong = each_next(world, limits, visit);
  }
  explored.worlds = seen.size();
  return explored;
}

}  // namespace tensorshelf::group_test
