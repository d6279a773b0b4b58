#include "sampled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "rng.hpp"
#include "window.hpp"

namespace tensorshelf::crash {
namespace {

// From next to nothing landed to nearly all.
Image random_image(std::size_t units, Rng& rng) {
  Image image(units, Landing::missing);
  const std::uint64_t of = 16;
  const std::uint64_t landed = rng.one_in(2) ? rng.below(of + 1) : rng.one_in(2) ? 1 : of - 1;
  for (Landing& landing : image) {
    if (rng.below(of) < landed) landing = Landing::landed;
  }
  return image;
}

class Sampler {
 public:
  Sampler(Disk& disk, const Sampling& sampling)
      : disk_(disk), sampling_(sampling), rng_(sampling.seed) {}

  void walk(const Recording& recording, std::size_t first, std::size_t images, unsigned depth) {
    const std::vector<Expected> expected = expectations(recording);
    const std::vector<std::size_t> points = crash_points(recording.log, first, images);
    const Disk::Mark start = disk_.mark();
    Window window(disk_, recording.log, sampling_.behaviour.personality, false);
    std::size_t event = 0;
    for (const std::size_t point : points) {
      for (; event <= point; ++event) window.take(event);
      const Disk::Mark settled = disk_.mark();
      window.land(random_image(window.units().size(), rng_));
      try {
        open_image(recording, expected[point], depth);
      } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{}\n  seed {}, crash {} after event {} of {}",
                                             error.what(), sampling_.seed, depth, point,
                                             recording.log.events.size()));
      }
      disk_.rollback(settled);
    }
    disk_.rollback(start);
  }

 private:
  // Half of them where the order of the commit shows: at words, waits, barriers and marks.
  std::vector<std::size_t> crash_points(const Log& log, std::size_t first, std::size_t images) {
    std::vector<std::size_t> narrow;
    for (std::size_t event = first; event < log.events.size(); ++event) {
      if (!is<WriteEvent>(log.events[event])) narrow.push_back(event);
    }
    std::vector<std::size_t> points;
    for (std::size_t i = 0; i < images && !narrow.empty(); ++i) {
      points.push_back(i % 2 == 0 ? narrow[rng_.below(narrow.size())]
                                  : first + rng_.below(log.events.size() - first));
    }
    std::sort(points.begin(), points.end());
    return points;
  }

  void open_image(const Recording& recording, const Expected& expected, unsigned depth) {
    const Disk::Mark image = disk_.mark();
    Recording recovery;
    const Model found = recover(recording, expected, recovery);
    disk_.rollback(image);
    if (depth >= sampling_.depth) return;
    walk(recovery, 0, sampling_.deep_images, depth + 1);
    Recording begun;
    begun.history.push_back(found);
    begun.incarnation = expected.incarnation;
    Runner runner(disk_, sampling_.behaviour, std::move(begun), expected.incarnation, {});
    runner.run(work(found));
    const Recording worked = runner.finish();
    disk_.rollback(image);
    walk(worked, 0, sampling_.deep_images, depth + 1);
  }

  // The version that the shelf shows; `recovery` becomes what a crash in the recovery itself needs.
  Model recover(const Recording& recording, const Expected& expected, Recording& recovery) {
    Shelf shelf =
        Shelf::open(std::make_unique<RecordingMedium>(disk_, recovery.log, sampling_.behaviour),
                    {.mode = Mode::update});
    std::string why;
    std::size_t index = expected.acked;
    for (; index <= expected.in_flight; ++index) {
      const std::string text = difference(recording.history[index], shelf);
      if (text.empty()) break;
      why += "; " + text;
    }
    if (index > expected.in_flight) throw std::runtime_error("a state that never was" + why);
    const ShelfInfo info = shelf.info();
    if (info.recovery.degraded) throw std::runtime_error("degraded, with no damage done");
    if (info.incarnation <= expected.incarnation) throw std::runtime_error("an incarnation again");
    if (!shelf.verify().damage.empty()) throw std::runtime_error("damage, with none done");
    shelf.close();
    recovery.history.push_back(recording.history[index]);
    recovery.incarnation = expected.incarnation;
    mark(recovery.log, Mark::opened, info.incarnation);
    return recording.history[index];
  }

  std::vector<Op> work(const Model& model) {
    std::vector<Op> ops = {{Verb::create, fmt::format("w{}", rng_.next()), 24}};
    for (const auto& [name, bytes] : model.tensors) {
      if (rng_.one_in(2) || bytes.empty()) continue;
      ops.push_back({Verb::part, name, rng_.below(bytes.size()), 1});
      if (ops.size() > 4) break;
    }
    ops.push_back({Verb::persist});
    if (rng_.one_in(2)) ops.push_back({Verb::reopen});
    if (!model.tensors.empty()) ops.push_back({Verb::assign, model.tensors.begin()->first});
    ops.push_back({Verb::persist});
    return ops;
  }

  Disk& disk_;
  const Sampling& sampling_;
  Rng rng_;
};

}  // namespace

void sample_images(Disk& disk, const Recording& recording, const Sampling& sampling) {
  std::size_t first = 0;  // before the first mark there is no shelf
  while (!is<MarkEvent>(recording.log.events[first])) ++first;
  Sampler(disk, sampling).walk(recording, first, sampling.images, 1);
}

void sample_program(Disk& disk, std::string_view program, const Sampling& sampling) {
  const Disk::Mark empty = disk.mark();
  const std::vector<Op> ops = parse(program);
  Runner runner(disk, sampling.behaviour, shape_of(ops));
  runner.run(ops);
  const Recording recording = runner.finish();
  disk.rollback(empty);
  sample_images(disk, recording, sampling);
}

}  // namespace tensorshelf::crash
