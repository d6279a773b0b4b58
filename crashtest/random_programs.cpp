// Programs that no one thought of.
#include <fmt/format.h>

#include <array>
#include <iterator>
#include <map>

#include "rng.hpp"
#include "workload.hpp"

namespace tensorshelf::crash {

std::string random_program(std::uint64_t seed) {
  constexpr std::array<std::uint64_t, 8> sizes = {0, 1, 8, 40, 64, 4096, 4100, 20000};
  Rng rng(seed);
  std::string text = rng.one_in(3) ? "format 2" : "";
  std::map<std::string, std::uint64_t> alive;
  const auto say = [&](const std::string& op) { text += (text.empty() ? "" : "; ") + op; };
  std::uint64_t named = 0;
  const std::uint64_t length = 10 + rng.below(10);
  for (std::uint64_t i = 0; i < length; ++i) {
    const std::uint64_t choice = rng.below(16);
    if (alive.empty() || (choice < 3 && alive.size() < 4)) {
      const std::string name = fmt::format("t{}", named++);
      alive[name] = sizes[rng.below(sizes.size())];
      say(fmt::format("create {} {}", name, alive[name]));
      continue;
    }
    const auto& [name, size] = *std::next(alive.begin(), rng.below(alive.size()));
    if (choice < 6) {
      say(fmt::format("{} {}", rng.one_in(4) ? "thread" : "assign", name));
    } else if (choice < 9 && size > 0) {
      const std::uint64_t at = rng.below(size);
      say(fmt::format("part {} {} {}", name, at, 1 + rng.below(size - at)));
    } else if (choice == 9) {
      say(fmt::format("replace {} {}", name, alive[name] = sizes[rng.below(sizes.size())]));
    } else if (choice == 10) {
      say("erase " + name);
      alive.erase(name);
    } else if (choice == 11) {
      say("persist; reopen");  // what is staged survives, so the tensors named here are there
    } else {
      say(rng.one_in(4) ? "quiet" : rng.one_in(3) ? "async" : "persist");
    }
  }
  say("persist");
  return text;
}

std::string random_attempts(std::uint64_t seed) {
  struct Split {
    unsigned keep, in_flight;
  };
  constexpr std::array splits = {Split{0, 1}, Split{0, 2}, Split{1, 1},
                                 Split{1, 3}, Split{2, 2}, Split{3, 1}};
  constexpr std::array<std::uint64_t, 5> sizes = {0, 8, 64, 4100, 20000};
  Rng rng(seed);
  bool prepared = false;
  const Split split = splits[rng.below(splits.size())];
  const std::uint64_t slots = split.keep + split.in_flight;
  std::string text = fmt::format("shelf {} {}", split.keep, split.in_flight);
  if (rng.one_in(3)) text += "; format 2";
  if (rng.one_in(2)) text += rng.one_in(2) ? "; placed whole" : "; placed chunk";
  std::map<std::string, std::uint64_t> alive;  // and there whatever is dropped or gone back to
  const auto say = [&](const std::string& op) { text += "; " + op; };
  for (std::uint64_t i = 0; i < 2 + rng.below(2); ++i) {
    const std::string name = fmt::format("t{}", i);
    alive[name] = sizes[rng.below(sizes.size())];
    say(fmt::format("create {} {}", name, alive[name]));
  }
  say("persist");
  std::uint64_t since = 0;  // versions that all have them
  std::uint64_t fleeting = 0;
  const std::uint64_t length = 12 + rng.below(10);
  for (std::uint64_t i = 0; i < length; ++i) {
    const auto& [name, size] = *std::next(alive.begin(), rng.below(alive.size()));
    const std::uint64_t choice = rng.below(17);
    // What was created behind an attempt may go with it: what is named here is to be there.
    if (prepared && (choice == 4 || choice == 9 || choice == 10)) continue;
    switch (choice) {
      case 0:
      case 1:
        say("assign " + name);
        break;
      case 2:
        say((rng.one_in(2) ? "assign " : "same ") + name);
        break;
      case 3:
        if (size == 0) break;
        say(fmt::format("part {} {} 1", name, rng.below(size)));
        break;
      case 4: {
        const std::string other = fmt::format("f{}", fleeting++);
        say(fmt::format("create {0} {1}; assign {0}", other, sizes[rng.below(sizes.size())]));
        if (rng.one_in(2)) say("erase " + other);
        break;
      }
      case 5:
      case 6:
        say("launch");
        if (!prepared) ++since;
        break;
      case 7:
        say(rng.one_in(3) ? "land" : fmt::format("go {}", 1 + rng.below(4)));
        break;
      case 8:
        say("discard");
        break;
      case 9:
        if (since == 0) break;
        say(rng.one_in(2) ? "persist" : "discard; land; land; land");
        say(fmt::format("rollback {}", 1 + rng.below(since)));
        ++since;
        break;
      case 10: {
        const std::uint64_t keep = rng.below(slots);
        say(rng.one_in(2) ? "persist; reopen" : fmt::format("split {} {}", keep, slots - keep));
        break;
      }
      case 11:
      case 12:
        if (rng.one_in(3)) say("reopen");
        if (prepared) {
          say(rng.one_in(2) ? "resolve" : "abandon");
          since = 0;
        } else {
          say(rng.one_in(3) ? "offer" : "prepare");
        }
        prepared = !prepared;
        break;
      case 13:
      case 14:
        if (prepared) break;
        if (rng.one_in(3)) {
          say(rng.one_in(2) ? "tear" : "fall");
        } else {
          say(rng.one_in(2) ? "feed" : "fly");
          ++since;
        }
        break;
      default:
        say("persist");
        if (!prepared) ++since;
    }
  }
  if (prepared) say("resolve");
  say("persist");
  return text;
}

}  // namespace tensorshelf::crash
