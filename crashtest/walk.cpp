#include "walk.hpp"

#include <fmt/format.h>

namespace tensorshelf::crash {
namespace {

constexpr int kRounds = 3;  // of planning, as images reveal that recovery reads more

struct Text {  // of an event, in a trace
  std::string operator()(const WriteEvent& event) const {
    return place("write", event.stored, event.thread);
  }
  std::string operator()(const WordEvent& event) const {
    return place("word", event.stored, event.thread);
  }
  std::string operator()(const WaitEvent& event) const {
    return fmt::format("wait     ticket {}", event.ticket);
  }
  std::string operator()(const BarrierEvent&) const { return "barrier "; }
  std::string operator()(const GrowthEvent& event) const {
    return fmt::format("reserve  to {} bytes", event.size_bytes);
  }
  std::string operator()(const CutEvent& event) const {
    return fmt::format("shrink   to {} bytes", event.size_bytes);
  }
  std::string operator()(const MarkEvent& event) const {
    return fmt::format("{:<8} {}", event.name, event.number);
  }
  std::string operator()(const FailureEvent& event) const {
    return fmt::format("failed   {}", event.call);
  }
  std::string operator()(const DeathEvent& event) const {
    return fmt::format("DIED     {} pages were lost with it", event.lost.size());
  }

  static std::string place(const char* call, const Stretch& stored, unsigned thread) {
    return fmt::format("{:<8} {:#09x} +{:<7} thread {}", call, stored.at, stored.size_bytes,
                       thread);
  }
};

class Walk {
 public:
  Walk(Disk& disk, const Log& log, const WalkOptions& options, Rng& rng, Counts& counts,
       const Visitor& visit)
      : disk_(disk),
        window_(disk, log, options.personality, options.trash),
        options_(options),
        rng_(rng),
        counts_(counts),
        visit_(visit) {}

  void skip(std::size_t event) { window_.take(event); }

  void at(std::size_t event, std::uint64_t context) {
    window_.take(event);
    const bool grew = window_.newest() < window_.units().size();
    const bool new_context = context != context_;
    context_ = context;
    if (!grew && !new_context) return;  // only images that were seen before
    ++counts_.crash_points;
    bool exhaustive = true;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t known = reads_.count();
      const ImagePlan plan = plan_images(
          {window_, reads_, new_context ? window_.units().size() : window_.newest(), options_.cap},
          rng_);
      exhaustive = plan.exhaustive;
      for (const Image& image : plan.images) visit(event, image);
      if (reads_.count() == known) break;
    }
    counts_.exhaustive_points += exhaustive;
  }

 private:
  void visit(std::size_t event, const Image& image) {
    ++counts_.images;
    const Disk::Mark mark = disk_.mark();
    window_.land(image);
    if (seen_.insert(disk_.fingerprint() ^ mixed(context_)).second) {
      ++counts_.distinct;
      visit_({event, window_, image}, reads_);
    }
    disk_.rollback(mark);
  }

  Disk& disk_;
  Window window_;
  const WalkOptions& options_;
  Rng& rng_;
  Counts& counts_;
  const Visitor& visit_;
  ReadSet reads_;
  std::uint64_t context_ = ~std::uint64_t{0};
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

Counts& Counts::operator+=(const Counts& other) {
  crash_points += other.crash_points;
  exhaustive_points += other.exhaustive_points;
  images += other.images;
  distinct += other.distinct;
  recoveries += other.recoveries;
  failures += other.failures;
  deaths += other.deaths;
  readers += other.readers;
  return *this;
}

void walk_images(Disk& disk, const Log& log, const WalkOptions& options, const ContextOf& context,
                 Rng& rng, Counts& counts, const Visitor& visit) {
  const Disk::Mark start = disk.mark();
  Walk walk(disk, log, options, rng, counts, visit);
  for (std::size_t event = 0; event < log.events.size(); ++event) {
    if (event < options.from_event) {
      walk.skip(event);
    } else {
      walk.at(event, context(event));
    }
  }
  disk.rollback(start);
}

std::string describe(const Log& log, const CrashPoint& point) {
  constexpr std::size_t kBefore = 24;  // events shown
  std::string text;
  const std::size_t first = point.event < kBefore ? 0 : point.event - kBefore;
  for (std::size_t index = first; index <= point.event; ++index) {
    std::size_t units = 0;
    std::size_t landed = 0;
    std::size_t trashed = 0;
    for (std::size_t i = 0; i < point.image.size(); ++i) {
      if (point.window.units()[i].event != index) continue;
      ++units;
      landed += point.image[i] == Landing::landed;
      trashed += point.image[i] == Landing::trashed;
    }
    text += fmt::format("    #{:<4} {}", index, std::visit(Text{}, log.events[index]));
    if (units != 0) text += fmt::format("  unsettled: {} of {} landed", landed, units);
    if (trashed != 0) text += fmt::format(", {} trashed", trashed);
    text += '\n';
  }
  return text;
}

}  // namespace tensorshelf::crash
