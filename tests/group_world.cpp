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

bool any_alive(const World& world) {
  return std::ranges::any_of(world.ranks, [](const RankState& rank) { return rank.alive; });
}

bool all_alive(const World& world) {
  return std::ranges::all_of(world.ranks, [](const RankState& rank) { return rank.alive; });
}

// Begun, and neither voted nor ended.
bool has_to_vote(const RankState& rank) {
  return rank.saves > 0 && !rank.machine.again() && !rank.machine.ended();
}

struct Held {  // by a shelf
  std::optional<Epoch> committed;
  std::optional<Epoch> prepared;
  bool has(const Epoch& epoch) const { return committed == epoch || prepared == epoch; }
};

// What there is of epochs is what the starts counted from: a save says which start made it, and the
// how manieth it was there.
std::optional<Epoch> epoch_of(const World& world, const std::optional<Save>& save) {
  if (!save) return std::nullopt;
  const Epoch& last = world.starts[save->start - 1];
  return Epoch{last.generation, last.number + save->count};
}

Deed preparing(const World& world, const RankState& rank) {
  const std::uint64_t count = rank.machine.epoch().number - world.starts.back().number;
  return {Deed::Kind::prepare,
          {static_cast<std::uint32_t>(world.starts.size()), static_cast<std::uint32_t>(count)}};
}

// Steps return what they show to be wrong, or nothing.
class Search {
 public:
  Search(const Limits& limits, const std::vector<ShelfGraph>& shelves)
      : limits_(limits), shelves_(shelves) {}

  // A job that begins with empty shelves.
  World first() const {
    World world;
    for (std::uint32_t i = 0; i < limits_.ranks; ++i) {
      world.ranks.push_back({.machine = Participant(i, {}), .shelf = shelves_[i].first()});
    }
    begin(world, {{}, std::vector(limits_.ranks, Todo::nothing), {}});
    return world;
  }

  // Calls visit() with each world that may follow.
  std::string each_next(const World& world, const std::function<void(World)>& visit) const;

 private:
  using Visit = std::function<void(World)>;

  const ShelfNode& node(const World& world, std::size_t i) const {
    return shelves_[i][world.ranks[i].shelf];
  }

  Held held(const World& world, std::size_t i) const {
    const Shown& shown = node(world, i).shown;
    return {epoch_of(world, shown.committed), epoch_of(world, shown.prepared)};
  }

  std::string check_shelf(std::size_t i, ShelfId shelf) const {
    const std::string& wrong = shelves_[i][shelf].shown.wrong;
    return wrong.empty() ? "" : fmt::format("the shelf of rank {}: {}", i, wrong);
  }

  std::string do_deed(World& world, std::size_t i, const Deed& deed) const {
    const auto& deeds = node(world, i).deeds;
    const auto step = deeds.find(deed);
    if (step == deeds.end()) return "a rank does to its shelf what it may not";
    world.ranks[i].shelf = step->second.done;
    return check_shelf(i, step->second.done);
  }

  std::string prepare(World& world, std::size_t i) const {
    const Epoch epoch = world.ranks[i].machine.epoch();
    if (auto wrong = do_deed(world, i, preparing(world, world.ranks[i])); !wrong.empty()) {
      return wrong;
    }
    return held(world, i).prepared == epoch ? "" : "what was prepared is not";
  }

  // Where one rank commits an epoch, none may be without its part.
  std::string check_commit(const World& world, const Epoch& epoch) const {
    for (std::size_t i = 0; i < world.ranks.size(); ++i) {
      const Held there = held(world, i);
      const bool newer = there.committed && *there.committed > epoch;
      if (newer || there.has(epoch)) continue;
      return fmt::format("epoch {} is committed by one rank, and another does not hold it",
                         text_of(epoch));
    }
    return {};
  }

  std::string do_todo(World& world, std::size_t i) const {
    const Todo todo = std::exchange(world.ranks[i].todo, Todo::nothing);
    const Held before = held(world, i);
    if (!before.prepared) return "a rank is to resolve what it has not prepared";
    const Epoch epoch = *before.prepared;
    if (todo == Todo::abandon) {
      if (auto wrong = do_deed(world, i, {Deed::Kind::abandon}); !wrong.empty()) return wrong;
      const Held after = held(world, i);
      if (after.prepared || after.committed != before.committed) {
        return "what was abandoned is there still";
      }
      if (world.acknowledged != epoch) return {};
      return fmt::format("epoch {} is abandoned, and was acknowledged", text_of(epoch));
    }
    if (std::string wrong = check_commit(world, epoch); !wrong.empty()) return wrong;
    if (before.committed && *before.committed > epoch) return "an older epoch is committed";
    if (auto wrong = do_deed(world, i, {Deed::Kind::commit}); !wrong.empty()) return wrong;
    const Held after = held(world, i);
    return after.prepared || after.committed != epoch ? "what was committed is not" : "";
  }

  std::string to_coordinator(World& world, const GroupMessage& message) const {
    const auto decision = world.coordinator->receive(message);
    if (!decision) return {};
    send(world, *decision);
    if (decision->kind != Kind::commit) return {};
    world.acknowledged = std::max(world.acknowledged, decision->epoch);
    return check_commit(world, decision->epoch);
  }

  // The shelves are open, and what they hold is agreed on.
  void begin(World& world, const Agreement& agreed) const {
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < world.ranks.size(); ++i) {
      const Held there = held(world, i);
      for (const auto& epoch : {there.committed, there.prepared}) {
        if (epoch) seen = std::max(seen, epoch->generation);
      }
    }
    const auto start = static_cast<std::uint32_t>(world.starts.size() + 1);
    const Epoch last{next_generation(seen, start), agreed.epoch.number};
    world.starts.push_back(last);
    for (std::uint32_t i = 0; i < world.ranks.size(); ++i) {
      RankState& rank = world.ranks[i];
      rank = {true, false, 0, agreed.todos[i], Participant(i, last), rank.shelf};
    }
    world.coordinator.emplace(static_cast<std::uint32_t>(world.ranks.size()), last);
  }

  std::string start(World& world) const {
    const auto members = static_cast<std::uint32_t>(world.ranks.size());
    std::vector<GroupPart> parts;
    for (std::uint32_t i = 0; i < members; ++i) {
      world.ranks[i].shelf = node(world, i).opened.at(0);
      if (auto wrong = check_shelf(i, world.ranks[i].shelf); !wrong.empty()) return wrong;
      const Held there = held(world, i);
      GroupPart part{i, members, {}, there.prepared};
      if (there.committed) part.committed.push_back(*there.committed);
      parts.push_back(std::move(part));
    }
    try {
      const Agreement agreed = agree(parts, members);
      if (agreed.epoch < world.acknowledged) {
        return fmt::format("a restart goes on from epoch {}, and {} was acknowledged",
                           text_of(agreed.epoch), text_of(world.acknowledged));
      }
      if (!agreed.behind.empty()) return "a rank is behind what the restart goes on from";
      begin(world, agreed);
    } catch (const Error& error) {
      return fmt::format("a restart is refused: {}", error.what());
    }
    return {};
  }

  // What a crash leaves of the shelf of a rank now, whatever it is about to do.
  std::vector<ShelfId> images(const World& world, std::size_t i) const {
    const RankState& rank = world.ranks[i];
    const ShelfNode& shelf = node(world, i);
    std::vector<ShelfId> images = shelf.images;
    std::optional<Deed> under_way;
    if (rank.todo == Todo::commit) under_way = Deed{Deed::Kind::commit};
    if (rank.todo == Todo::abandon) under_way = Deed{Deed::Kind::abandon};
    if (has_to_vote(rank) && !rank.saved) under_way = preparing(world, rank);
    const auto step = under_way ? shelf.deeds.find(*under_way) : shelf.deeds.end();
    if (step == shelf.deeds.end()) return images;
    images.insert(images.end(), step->second.within.begin(), step->second.within.end());
    std::ranges::sort(images);
    images.erase(std::unique(images.begin(), images.end()), images.end());
    return images;
  }

  void die(World& world, std::size_t i, ShelfId image) const {
    world.ranks[i] = {false, false, 0, Todo::nothing, Participant(0, {}), image};
    if (i == 0) world.coordinator.reset();
  }

  bool starts_again(const World& world) const { return world.starts.size() <= limits_.restarts; }

  std::string each_death(const World& world, const Visit& visit) const;
  std::string each_end(const World& world, std::size_t from, const Visit& visit) const;
  std::string each_start(const World& world, const Visit& visit) const;
  std::string each_deed(const World& world, std::size_t i, const Visit& visit) const;
  std::string run_to_its_end(World world) const;
  std::string settle(World& world) const;

  const Limits& limits_;
  const std::vector<ShelfGraph>& shelves_;
};

// A step of a copy of the world, which leads on where it shows nothing.
template <typename Change>
std::string step(const World& world, const std::function<void(World)>& visit, Change change) {
  World next = world;
  std::string wrong = change(next);
  if (wrong.empty() && next != world) visit(std::move(next));
  return wrong;
}

// One rank dies, and the others do not know.
std::string Search::each_death(const World& world, const Visit& visit) const {
  for (std::size_t i = 0; i < world.ranks.size(); ++i) {
    if (!world.ranks[i].alive) continue;
    for (const ShelfId image : images(world, i)) {
      if (auto wrong = check_shelf(i, image); !wrong.empty()) return wrong;
      if (world.deaths >= limits_.deaths) continue;
      World next = world;
      ++next.deaths;
      die(next, i, image);
      visit(std::move(next));
    }
  }
  return {};
}

// All that lived die at once, those from that number on.
std::string Search::each_end(const World& world, std::size_t from, const Visit& visit) const {
  std::size_t i = from;
  while (i < world.ranks.size() && !world.ranks[i].alive) ++i;
  if (i == world.ranks.size()) {
    visit(world);
    return {};
  }
  for (const ShelfId image : images(world, i)) {
    World next = world;
    die(next, i, image);
    if (auto wrong = each_end(next, i + 1, visit); !wrong.empty()) return wrong;
  }
  return {};
}

// All open their shelves and go on; or one dies as it does, and all with it.
std::string Search::each_start(const World& world, const Visit& visit) const {
  if (auto wrong = step(world, visit, [&](World& next) { return start(next); }); !wrong.empty()) {
    return wrong;
  }
  if (world.cuts >= limits_.cuts) return {};
  for (std::size_t i = 0; i < world.ranks.size(); ++i) {
    for (const ShelfId image : node(world, i).cut_short) {
      World next = world;
      ++next.cuts;
      next.ranks[i].shelf = image;
      if (auto wrong = check_shelf(i, image); !wrong.empty()) return wrong;
      visit(std::move(next));
    }
  }
  return {};
}

// A rank goes on, or hears something.
std::string Search::each_deed(const World& world, std::size_t i, const Visit& visit) const {
  const RankState& rank = world.ranks[i];
  std::string wrong;
  const auto go = [&](auto change) {
    if (wrong.empty()) wrong = step(world, visit, change);
  };
  if (rank.todo != Todo::nothing) {  // what it was told comes before it hears or saves anything
    go([&](World& next) { return do_todo(next, i); });
    return wrong;
  }
  const bool saving = !rank.machine.ended() || rank.saved;
  if (!saving && rank.saves < limits_.saves) {
    go([&](World& next) {
      next.ranks[i].machine.begin();
      ++next.ranks[i].saves;
      return std::string();
    });
  }
  if (has_to_vote(rank) && !rank.saved) {
    go([&](World& next) {
      next.ranks[i].saved = true;
      return prepare(next, i);
    });
    if (world.refusals < limits_.refusals) {
      go([&](World& next) {
        ++next.refusals;
        send(next, next.ranks[i].machine.refused("no room"));
        return std::string();
      });
    }
  }
  if (has_to_vote(rank) && rank.saved) {
    go([&](World& next) {
      next.ranks[i].saved = false;
      send(next, next.ranks[i].machine.prepared());
      return std::string();
    });
  }
  for (const GroupMessage& message : world.sent) {
    go([&](World& next) {
      next.ranks[i].todo = next.ranks[i].machine.receive(message);
      return std::string();
    });
  }
  return wrong;
}

std::string Search::each_next(const World& world, const Visit& visit) const {
  if (!any_alive(world)) return starts_again(world) ? each_start(world, visit) : std::string();
  std::string wrong;
  for (std::size_t i = 0; i < world.ranks.size() && wrong.empty(); ++i) {
    if (world.ranks[i].alive) wrong = each_deed(world, i, visit);
  }
  if (world.coordinator) {
    for (const GroupMessage& message : world.sent) {
      if (!wrong.empty()) break;
      wrong = step(world, visit, [&](World& next) { return to_coordinator(next, message); });
    }
  }
  if (wrong.empty()) wrong = each_death(world, visit);
  if (wrong.empty() && starts_again(world)) wrong = each_end(world, 0, visit);
  if (wrong.empty() && all_alive(world)) wrong = run_to_its_end(world);
  return wrong;
}

// Ranks ask again until they hear; and whoever is told does it.
std::string Search::settle(World& world) const {
  for (bool changed = true; changed;) {
    const World before = world;
    for (std::size_t i = 0; i < world.ranks.size(); ++i) {
      RankState& rank = world.ranks[i];
      if (rank.todo != Todo::nothing) {
        if (std::string wrong = do_todo(world, i); !wrong.empty()) return wrong;
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

// A world in which nobody dies, and every message arrives, comes to an end, and all ranks to one.
std::string Search::run_to_its_end(World world) const {
  for (std::size_t i = 0; i < world.ranks.size(); ++i) {
    RankState& rank = world.ranks[i];
    if (rank.machine.ended() || rank.machine.again() || rank.todo != Todo::nothing) continue;
    if (!std::exchange(rank.saved, false)) {
      if (std::string wrong = prepare(world, i); !wrong.empty()) return wrong;
    }
    rank.machine.prepared();
  }
  if (std::string wrong = settle(world); !wrong.empty()) return wrong;
  // Ranks that have begun an epoch less catch up, so that none waits for another for good.
  std::uint64_t most = 0;
  for (const RankState& rank : world.ranks) most = std::max(most, rank.machine.epoch().number);
  for (bool behind = true; behind;) {
    behind = false;
    for (std::size_t i = 0; i < world.ranks.size(); ++i) {
      RankState& rank = world.ranks[i];
      if (!rank.machine.ended() || rank.machine.epoch().number >= most) continue;
      behind = true;
      rank.machine.begin();
      if (std::string wrong = prepare(world, i); !wrong.empty()) return wrong;
      rank.machine.prepared();
    }
    if (std::string wrong = settle(world); !wrong.empty()) return wrong;
  }
  for (std::size_t i = 0; i < world.ranks.size(); ++i) {
    if (!world.ranks[i].machine.ended()) return "a rank waits for a decision that never comes";
    if (held(world, i).prepared) return "a rank has something prepared when all is decided";
    if (held(world, i).committed != held(world, 0).committed) {
      return "two ranks end with different epochs";
    }
  }
  return {};
}

}  // namespace

Explored explore(const Limits& limits, const std::vector<ShelfGraph>& shelves) {
  const Search search(limits, shelves);
  std::set<World> seen;
  std::deque<const World*> next;
  const auto visit = [&](World world) {
    const auto [at, fresh] = seen.insert(std::move(world));
    if (fresh) next.push_back(&*at);
  };
  visit(search.first());
  Explored explored;
  while (!next.empty() && explored.wrong.empty()) {
    const World& world = *next.front();
    next.pop_front();
    explored.wrong = search.each_next(world, visit);
  }
  explored.worlds = seen.size();
  return explored;
}

}  // namespace tensorshelf::group_test
