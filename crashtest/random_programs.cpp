// Programs that no one thought of.
#include <fmt/format.h>

#include <array>
#include <iterator>
#include <map>

#include "rng.hpp"
#include "workload.hpp"

namespace tensorshelf::crash {

namespace {

// Of their random numbers. Apart: programs that failed once stay what they were.
constexpr std::uint64_t kReshapes = 0x7E5A;
constexpr std::uint64_t kMoves = 0xC03A;

// Of a tensor among others; sometimes nothing.
std::string some_reshape(Rng& rng, std::map<std::string, std::uint64_t>& alive,
                         const std::array<std::uint64_t, 8>& sizes, std::uint64_t number) {
  if (alive.empty() || !rng.one_in(4)) return {};
  const auto chosen = std::next(alive.begin(), rng.below(alive.size()));
  const std::string name = chosen->first;
  if (rng.one_in(2)) {
    chosen->second = sizes[rng.below(sizes.size())];
    return fmt::format("; resize {} {}", name, chosen->second);
  }
  auto renamed = alive.extract(chosen);
  renamed.key() = fmt::format("r{}", number);
  alive.insert(std::move(renamed));
  return fmt::format("; rename {} {}", name, number);
}

}  // namespace

std::string random_program(std::uint64_t seed) {
  constexpr std::array<std::uint64_t, 8> sizes = {0, 1, 8, 40, 64, 4096, 4100, 20000};
  Rng rng(seed);
  Rng reshapes(mixed(seed ^ kReshapes));
  const bool reshaped = reshapes.one_in(2);
  Rng moves(mixed(seed ^ kMoves));
  const bool compacted = moves.one_in(3);
  std::string text = rng.one_in(3) ? "format 2" : "";
  std::map<std::string, std::uint64_t> alive;
  const auto say = [&](const std::string& op) { text += (text.empty() ? "" : "; ") + op; };
  std::uint64_t named = 0;
  const std::uint64_t length = 10 + rng.below(10);
  for (std::uint64_t i = 0; i < length; ++i) {
    if (reshaped) text += some_reshape(reshapes, alive, sizes, i);
    if (compacted && !alive.empty() && moves.one_in(4)) say("compact");
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

namespace {

// A program of attempts, op by op. What was created behind an attempt may go with it: what an op
// names is to be there.
class Attempts {
 public:
  explicit Attempts(std::uint64_t seed)
      : rng_(seed), reshaped_(Rng(mixed(seed ^ kReshapes)).one_in(2)) {
    struct Split {
      unsigned keep, in_flight;
    };
    constexpr std::array splits = {Split{0, 1}, Split{0, 2}, Split{1, 1},
                                   Split{1, 3}, Split{2, 2}, Split{3, 1}};
    const Split split = splits[rng_.below(splits.size())];
    slots_ = split.keep + split.in_flight;
    text_ = fmt::format("shelf {} {}", split.keep, split.in_flight);
    if (rng_.one_in(3)) text_ += "; format 2";
    if (rng_.one_in(2)) text_ += rng_.one_in(2) ? "; placed whole" : "; placed chunk";
    for (std::uint64_t i = 0; i < 2 + rng_.below(2); ++i) {
      const std::string name = fmt::format("t{}", i);
      alive_[name] = some_size();
      say(fmt::format("create {} {}", name, alive_[name]));
    }
    say("persist");
  }

  std::string text() {
    const std::uint64_t length = 12 + rng_.below(10);
    for (std::uint64_t i = 0; i < length; ++i) {
      const auto& [name, size] = *std::next(alive_.begin(), rng_.below(alive_.size()));
      const std::uint64_t choice = rng_.below(17);
      if (choice <= 3) {
        assign(choice, name, size);
      } else if (choice == 4 || choice == 9 || choice == 10) {
        if (!prepared_) change_what_there_is(choice);
      } else {
        make_versions(choice);
      }
    }
    if (prepared_) say("resolve");
    say("persist");
    return text_;
  }

 private:
  void say(const std::string& op) { text_ += "; " + op; }
  std::uint64_t some_size() {
    constexpr std::array<std::uint64_t, 5> sizes = {0, 8, 64, 4100, 20000};
    return sizes[rng_.below(sizes.size())];
  }

  void assign(std::uint64_t choice, const std::string& name, std::uint64_t size) {
    switch (choice) {
      case 2:
        return say((rng_.one_in(2) ? "assign " : "same ") + name);
      case 3:
        if (size != 0) say(fmt::format("part {} {} 1", name, rng_.below(size)));
        return;
      default:
        return say("assign " + name);
    }
  }

  void change_what_there_is(std::uint64_t choice) {
    if (choice == 4) {
      const std::string other = fmt::format("f{}", fleeting_++);
      say(fmt::format("create {0} {1}; assign {0}", other, some_size()));
      if (reshaped_) return reshape(other);
      if (rng_.one_in(2)) say("erase " + other);
    } else if (choice == 9 && since_ > 0) {
      say(rng_.one_in(2) ? "persist" : "discard; land; land; land");
      say(fmt::format("rollback {}", 1 + rng_.below(since_)));
      ++since_;
    } else if (choice == 10) {
      const std::uint64_t keep = rng_.below(slots_);
      say(rng_.one_in(2) ? "persist; reopen" : fmt::format("split {} {}", keep, slots_ - keep));
    }
  }

  // Which is there: it was just made.
  void reshape(const std::string& name) {
    say(fmt::format("{}; resize {} {}", rng_.one_in(2) ? "launch" : "quiet", name, some_size()));
    say(fmt::format("rename {} {}", name, fleeting_));
    if (rng_.one_in(2)) say(fmt::format("assign r{}", fleeting_));
    if (rng_.one_in(2)) say(fmt::format("erase r{}", fleeting_));
    ++since_;
  }

  void make_versions(std::uint64_t choice) {
    switch (choice) {
      case 5:
      case 6:
        say("launch");
        if (!prepared_) ++since_;
        return;
      case 7:
        return say(rng_.one_in(3) ? "land" : fmt::format("go {}", 1 + rng_.below(4)));
      case 8:
        return say("discard");
      case 11:
      case 12:
        return prepare_or_resolve();
      case 13:
      case 14:
        if (!prepared_) feed();
        return;
      default:
        say("persist");
        if (!prepared_) ++since_;
    }
  }

  void prepare_or_resolve() {
    if (rng_.one_in(3)) say("reopen");
    if (prepared_) {
      say(rng_.one_in(2) ? "resolve" : "abandon");
      since_ = 0;
    } else {
      say(rng_.one_in(3) ? "offer" : "prepare");
    }
    prepared_ = !prepared_;
  }

  void feed() {
    if (rng_.one_in(3)) return say(rng_.one_in(2) ? "tear" : "fall");
    say(rng_.one_in(2) ? "feed" : "fly");
    ++since_;
  }

  Rng rng_;
  std::string text_;
  std::uint64_t slots_ = 0;
  std::map<std::string, std::uint64_t> alive_;  // and there whatever is dropped or gone back to
  bool prepared_ = false;
  std::uint64_t since_ = 0;  // versions that all have them
  std::uint64_t fleeting_ = 0;
  bool reshaped_ = false;  // some are renamed and resized
};

}  // namespace

std::string random_attempts(std::uint64_t seed) { return Attempts(seed).text(); }

}  // namespace tensorshelf::crash
