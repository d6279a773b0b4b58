#include "interleaved.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "sampled.hpp"
#include "tests/forwarding_medium.hpp"
#include "turns.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::uint64_t kRuns = 8;
constexpr std::uint64_t kAssignments = 4;  // by each writer
constexpr std::uint64_t kCommits = 2;      // by each committer

struct Cast {
  std::vector<std::size_t> writers;  // each one's tensor
  std::uint64_t committers;
};
constexpr std::uint64_t kSmallDiskBytes = 8 * 1024 * 1024;
// An assignment takes several writes, between which others come; the last tensor has two chunks.
constexpr std::array<std::uint64_t, 3> kSizes = {64, 5000, kChunkBytes + 64};

class SteppedMedium final : public testing::ForwardingMedium {
 public:
  SteppedMedium(Disk& disk, Log& log, const Behaviour& behaviour)
      : ForwardingMedium(std::make_shared<RecordingMedium>(disk, log, behaviour)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    Turns::step();
    return ForwardingMedium::write(at, bytes, seed);
  }
  void wait(const Ticket& ticket) override {
    Turns::step();
    ForwardingMedium::wait(ticket);
  }
  void barrier() override {
    Turns::step();
    ForwardingMedium::barrier();
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    Turns::step();
    ForwardingMedium::store_word(at, word);
  }
};

constexpr std::uint64_t kNever = ~std::uint64_t{0};

class Run {
 public:
  Run(Disk& disk, const Behaviour& behaviour, const Cast& cast)
      : disk_(disk),
        behaviour_(behaviour),
        empty_(disk.mark()),
        cast_(cast),
        last_version_(1 + cast.committers * kCommits) {
    {
      RecordingMedium medium(disk, recording_.log, behaviour);
      Shelf::format(medium);
    }
    recording_.history.resize(last_version_ + 1);
    committed_.resize(last_version_ + 1);
    acknowledge(0);
    shelf_ = Shelf::open(std::make_unique<SteppedMedium>(disk, recording_.log, behaviour),
                         {.mode = Mode::update});
    mark(recording_.log, Mark::opened, shelf_->info().incarnation);
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const std::array shape = {static_cast<std::int64_t>(kSizes[i])};
      shelf_->create(name(i), DType::uint8, shape);
      assign(i);
    }
    persist();
  }

  Recording play(Rng& rng) {
    std::vector<std::function<void()>> bodies;
    for (const std::size_t tensor : cast_.writers) {
      bodies.emplace_back([this, tensor] {
        for (std::uint64_t n = 0; n < kAssignments; ++n) assign(tensor);
      });
    }
    for (std::uint64_t committer = 0; committer < cast_.committers; ++committer) {
      bodies.emplace_back([this] {
        for (std::uint64_t n = 0; n < kCommits; ++n) persist();
      });
    }
    Turns().run(bodies, rng);
    shelf_->close();
    shelf_.reset();
    disk_.rollback(empty_);
    look_at_each_version();
    disk_.rollback(empty_);
    return std::move(recording_);
  }

 private:
  static std::string name(std::size_t tensor) { return fmt::format("t{}", tensor); }
  static std::vector<std::byte> value(std::size_t tensor, std::uint64_t serial) {
    std::vector<std::byte> bytes(kSizes[tensor]);
    stamp(bytes, name(tensor), serial, 0);
    return bytes;
  }

  // When a commit was asked for and returned, by a clock that all threads share.
  struct Committed {
    std::uint64_t asked = 0;
    std::uint64_t returned = 0;
  };
  // The same of an assignment.
  struct Span {
    std::atomic<std::uint64_t> begun = kNever;
    std::atomic<std::uint64_t> returned = kNever;
  };

  void assign(std::size_t tensor) {
    Turns::step();  // so that whoever waits for the tensor is served before the next assignment
    const std::uint64_t serial = serials_[tensor]++;
    Span& span = spans_[tensor][serial];
    span.begun = ++clock_;
    TensorRef target = shelf_->find(name(tensor)).value();
    const auto bytes = value(tensor, serial);
    Assignment assignment = target.assign();
    assignment.write(std::span(bytes).first(bytes.size() / 2));
    Turns::step();
    assignment.write(std::span(bytes).subspan(bytes.size() / 2), bytes.size() / 2);
    assignment.done();
    span.returned = ++clock_;
  }

  // Whether a version that was asked for and returned then may hold this assignment: it began in
  // time, and none that followed it had returned before.
  bool may_hold(std::size_t tensor, std::uint64_t serial, const Committed& version) const {
    const Span& span = spans_[tensor][serial];
    if (span.begun > version.returned) return false;
    for (const Span& other : spans_[tensor]) {
      if (other.begun > span.returned && other.returned < version.asked) return false;
    }
    return true;
  }

  // As a reader finds it when it was acknowledged. The threads themselves cannot look: a read waits
  // for writers, and that would change who goes on when.
  void look_at_each_version() {
    for (const Event& event : recording_.log.events) {
      recording_.log.replay(event, disk_);
      const auto* mark = std::get_if<MarkEvent>(&event);
      const bool acked = mark && mark->kind == static_cast<std::uint64_t>(Mark::acked);
      if (acked && mark->number != 0) look_at(mark->number);
    }
  }

  void look_at(std::uint64_t version) {
    Log log;
    const Shelf shelf = Shelf::open(std::make_unique<RecordingMedium>(disk_, log, behaviour_),
                                    {.mode = Mode::read});
    const ShelfInfo info = shelf.info();
    if (info.version != version) throw std::runtime_error("another version than was acknowledged");
    Model& model = recording_.history[version];
    model.version = version;
    model.step = info.step;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      std::vector<std::byte>& found = model.tensors[name(i)];
      found.assign(kSizes[i], std::byte{0xAA});
      shelf.find(name(i))->read(found);
      std::uint64_t serial = 0;
      while (serial < serials_[i] && found != value(i, serial)) ++serial;
      if (serial < serials_[i] && may_hold(i, serial, committed_[version])) continue;
      throw std::runtime_error(
          fmt::format("version {} holds {} of {} (I9)", version,
                      serial < serials_[i] ? "a value of another moment" : "no value", name(i)));
    }
  }

  void persist() {
    Turns::step();
    const std::uint64_t asked = ++clock_;
    const Commit commit = shelf_->persist(asked);
    Committed& committed = committed_.at(commit.version);
    if (committed.returned != 0) throw std::runtime_error("two commits were given one version");
    acknowledge(commit.version);
    committed = {asked, ++clock_};
  }

  // The next one may be under way already, in another thread.
  void acknowledge(std::uint64_t version) {
    mark(recording_.log, Mark::acked, version);
    if (version < last_version_) mark(recording_.log, Mark::began, version + 1);
  }

  Disk& disk_;
  const Behaviour behaviour_;
  const Disk::Mark empty_;
  const Cast& cast_;
  const std::uint64_t last_version_;
  Recording recording_;
  std::optional<Shelf> shelf_;
  std::vector<Committed> committed_;  // by version
  std::atomic<std::uint64_t> clock_ = 0;
  std::array<std::atomic<std::uint64_t>, kSizes.size()> serials_ = {};
  std::array<std::array<Span, 2 * kAssignments + 1>, kSizes.size()> spans_;
};

bool same(const Log& a, const Log& b) {
  return a.bytes.size() == b.bytes.size() && a.events == b.events;
}

std::string play(const Cast& cast, bool repeats) {
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const Behaviour behaviour{.personality = seed % 2 == 0 ? Personality::block : Personality::pmem,
                              .max_size_bytes = kSmallDiskBytes};
    Disk disk(kSmallDiskBytes);
    const auto run = [&] {
      Rng rng(seed);
      return Run(disk, behaviour, cast).play(rng);
    };
    try {
      const Recording recording = run();
      if (repeats && seed == 1 && !same(recording.log, run().log)) {
        return "one seed led to two orders";
      }
      sample_images(disk, recording, {.behaviour = behaviour, .seed = seed, .images = 20});
    } catch (const std::exception& error) {
      return fmt::format("{} (order of seed {})", error.what(), seed);
    }
  }
  return "";
}

}  // namespace

std::string interleaved_writers() { return play({{0, 1, 2}, 1}, true); }

std::string contending_writers() { return play({{0, 1, 1, 2, 2}, 2}, false); }

}  // namespace tensorshelf::crash
