#include "workload.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

struct Grammar {
  std::string_view word;
  Verb verb;
  bool name;
  int numbers;
};

constexpr std::array kGrammar = {
    Grammar{"create", Verb::create, true, 1},    Grammar{"assign", Verb::assign, true, 0},
    Grammar{"part", Verb::part, true, 2},        Grammar{"thread", Verb::thread, true, 0},
    Grammar{"erase", Verb::erase, true, 0},      Grammar{"replace", Verb::replace, true, 1},
    Grammar{"persist", Verb::persist, false, 0}, Grammar{"quiet", Verb::quiet, false, 0},
    Grammar{"async", Verb::async, false, 0},     Grammar{"reopen", Verb::reopen, false, 0},
    Grammar{"many", Verb::many, false, 2},       Grammar{"named", Verb::named, false, 2},
    Grammar{"all", Verb::all, false, 0},         Grammar{"refuse", Verb::refuse, true, 1},
    Grammar{"lease", Verb::lease, true, 0},      Grammar{"hold", Verb::hold, true, 0},
    Grammar{"drop", Verb::drop, false, 0},
};

Op parse_op(const std::string& text) {
  std::istringstream in(text);
  std::string word;
  in >> word;
  for (const Grammar& rule : kGrammar) {
    if (rule.word != word) continue;
    Op op;
    op.verb = rule.verb;
    if (rule.name) in >> op.name;
    if (rule.numbers > 0) in >> op.first;
    if (rule.numbers > 1) in >> op.second;
    std::string rest;
    if (in.fail() || in >> rest) break;
    return op;
  }
  throw std::invalid_argument(fmt::format("workload operation \"{}\" cannot be read", text));
}

}  // namespace

std::string long_name(std::uint64_t number, std::uint64_t length) {
  return fmt::format("{:n<{}}", fmt::format("{}-", number), length);
}

std::vector<Op> parse(std::string_view program) {
  std::vector<Op> ops;
  std::istringstream in{std::string(program)};
  for (std::string text; std::getline(in, text, ';');) ops.push_back(parse_op(text));
  return ops;
}

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> table = {
      {"empty", "persist; quiet; persist"},
      {"assign", "create a 64; assign a; persist; assign a; persist; assign a; persist"},
      {"clean",
       "create a 48; create b 48; assign a; assign b; persist; assign a; persist;"
       "assign b; persist; assign a; persist"},
      {"part",
       "create a 96; assign a; persist; part a 8 16; persist; part a 40 24; persist;"
       "part a 0 8; part a 88 8; persist"},
      {"part-reopen",
       "create a 96; assign a; persist; assign a; persist; reopen; part a 16 8;"
       "persist; part a 32 8; persist"},
      {"erase",
       "create a 64; create b 64; assign a; assign b; persist; erase a; persist;"
       "create c 64; assign c; assign b; persist; create a 32; assign a; persist"},
      {"replace",
       "create a 64; assign a; persist; replace a 128; assign a; persist;"
       "replace a 16; persist; assign a; persist"},
      {"reuse",
       "create a 64; assign a; persist; erase a; create b 64; assign b; persist;"
       "erase b; create c 64; assign c; persist; assign c; persist"},
      {"abandon",
       "create a 64; assign a; persist; assign a; create b 32; assign b; reopen;"
       "assign a; persist; reopen; create c 32; assign c; persist"},
      {"reopen",
       "create a 64; assign a; persist; reopen; reopen; assign a; persist; reopen;"
       "assign a; persist; assign a; persist"},
      {"zero-size",
       "create z 0; create a 8; persist; assign z; assign a; persist; erase z;"
       "persist"},
      {"unassigned",
       "create a 4100; persist; create b 40; assign b; persist; part a 4090 10;"
       "persist"},
      {"threads",
       "create a 64; create b 64; thread a; thread b; persist; thread a; assign b;"
       "persist; thread b; persist"},
      {"async", "create a 64; assign a; async; assign a; async; part a 8 8; async"},
      {"multi",
       "many 5 40; persist; assign m1; assign m3; persist; part m0 0 8; erase m2;"
       "persist"},
      {"pages",
       "many 40 8; persist; assign m0; persist; assign m39; part m20 0 4; persist;"
       "erase m7; persist"},
      {"grow",
       "create a 64; assign a; persist; create b 300000; part b 299992 8; persist;"
       "assign a; persist; reopen; create c 700000; part c 0 16; persist"},
      {"chunks",
       "create a 1048640; assign a; persist; part a 1048600 8; persist; part a 0 8;"
       "persist; part a 1048576 8; persist",
       16},
      {"several",  // the first version of some chunks is zeros, of others merged into zeros
       "create a 1048640; part a 8 8; part a 1048600 8; persist; part a 0 4; persist", 32},
      {"large-reuse",  // above kSmallSlotBytes, where slots are not laid side by side
       "create a 262148; part a 262140 8; persist; erase a; create b 262148; part b 0 8; persist;"
       "erase b; create c 266240; part c 266232 8; persist; part c 0 8; persist",
       8},
      {"full",
       "create a 64; assign a; persist; assign a; refuse b 9000000; persist; erase a;"
       "create c 64; refuse d 9000000; assign c; persist; reopen; assign c; persist"},
      {"leases",
       "create a 64; assign a; persist; lease a; assign a; persist; assign a; hold a; assign a;"
       "drop; assign a; lease a; assign a; persist; assign a; persist; assign a; drop; persist"},
      {"lease-reuse",
       "create a 64; create b 64; assign a; assign b; persist; assign a; lease a; hold a; hold b;"
       "erase a; erase b; persist; create c 64; assign c; create d 64; assign d; persist; assign c;"
       "persist; drop; create e 64; assign e; persist; assign e; persist"},
  };
  return table;
}

std::string random_program(std::uint64_t seed) {
  constexpr std::array<std::uint64_t, 8> sizes = {0, 1, 8, 40, 64, 4096, 4100, 20000};
  Rng rng(seed);
  std::string text;
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

}  // namespace tensorshelf::crash
