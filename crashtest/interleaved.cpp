#include "interleaved.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>

#include <tensorshelf/shelf.hpp>

#include "sampled.hpp"
#include "turns.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::uint64_t kRuns = 8;
constexpr std::uint64_t kAssignments = 4;  // by each writer
constexpr std::uint64_t kCommitters = 2;
constexpr std::uint64_t kCommits = 2;  // by each of them
constexpr std::uint64_t kLastVersion = 1 + kCommitters * kCommits;
constexpr std::array<std::size_t, 5> kWriters = {0, 1, 1, 2, 2};  // each one's tensor
constexpr std::uint64_t kDiskBytes = 8 * 1024 * 1024;
// The last one takes two writes, between which others come.
constexpr std::array<std::uint64_t, 3> kSizes = {64, 5000, kChunkBytes + 64};

class SteppedMedium final : public Medium {
 public:
  SteppedMedium(Disk& disk, Log& log, const Behaviour& behaviour) : medium_(disk, log, behaviour) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    Turns::step();
    return medium_.write(at, bytes, seed);
  }
  void wait(const Ticket& ticket) override {
    Turns::step();
    medium_.wait(ticket);
  }
  void barrier() override {
    Turns::step();
    medium_.barrier();
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    Turns::step();
    medium_.store_word(at, word);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override { medium_.read(at, bytes); }
  std::span<const std::byte> view(const Extent& extent) override { return medium_.view(extent); }
  std::uint64_t reserve(std::uint64_t size_bytes) override { return medium_.reserve(size_bytes); }
  Promises promises() const override { return medium_.promises(); }

 private:
  RecordingMedium medium_;
};

constexpr std::uint64_t kNever = ~std::uint64_t{0};

class Run {
 public:
  Run(Disk& disk, const Behaviour& behaviour) {
    {
      RecordingMedium medium(disk, recording_.log, behaviour);
      Shelf::format(medium);
    }
    recording_.history.resize(kLastVersion + 1);
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
    for (const std::size_t tensor : kWriters) {
      bodies.emplace_back([this, tensor] {
        for (std::uint64_t n = 0; n < kAssignments; ++n) assign(tensor);
      });
    }
    for (std::uint64_t committer = 0; committer < kCommitters; ++committer) {
      bodies.emplace_back([this] {
        for (std::uint64_t n = 0; n < kCommits; ++n) persist();
      });
    }
    Turns().run(bodies, rng);
    shelf_->close();
    shelf_.reset();
    return std::move(recording_);
  }

 private:
  static std::string name(std::size_t tensor) { return fmt::format("t{}", tensor); }
  static std::vector<std::byte> value(std::size_t tensor, std::uint64_t serial) {
    std::vector<std::byte> bytes(kSizes[tensor]);
    stamp(bytes, name(tensor), serial, 0);
    return bytes;
  }

  // When an assignment began and returned, by a clock that all threads share.
  struct Span {
    std::atomic<std::uint64_t> begun = kNever;
    std::atomic<std::uint64_t> returned = kNever;
  };

  void assign(std::size_t tensor) {
    Turns::step();  // so that whoever waits for the tensor is served before the next assignment
    const std::uint64_t serial = serials_[tensor]++;
    Span& span = spans_[tensor][serial];
    span.begun = ++clock_;
    shelf_->find(name(tensor))->write(value(tensor, serial));
    span.returned = ++clock_;
  }

  // Whether a version that was asked for and returned then may hold this assignment: it began in
  // time, and none that followed it had returned before.
  bool may_hold(std::size_t tensor, std::uint64_t serial, std::uint64_t asked,
                std::uint64_t committed) const {
    const Span& span = spans_[tensor][serial];
    if (span.begun > committed) return false;
    for (const Span& other : spans_[tensor]) {
      if (other.begun > span.returned && other.returned < asked) return false;
    }
    return true;
  }

  void persist() {
    Turns::step();
    const std::uint64_t asked = ++clock_;
    const Commit commit = shelf_->persist(asked);
    acknowledge(commit.version);
    const std::uint64_t committed = ++clock_;
    Model model{.version = commit.version, .step = commit.step, .tensors = {}};
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      std::vector<std::byte>& found = model.tensors[name(i)];
      found.assign(kSizes[i], std::byte{0xAA});
      shelf_->find(name(i))->read_committed(found);
      std::uint64_t serial = 0;
      while (serial < serials_[i] && found != value(i, serial)) ++serial;
      if (serial < serials_[i] && may_hold(i, serial, asked, committed)) continue;
      throw std::runtime_error(
          fmt::format("version {} holds {} of {} (I9)", commit.version,
                      serial < serials_[i] ? "a value of another moment" : "no value", name(i)));
    }
    recording_.history.at(commit.version) = std::move(model);
  }

  // The next one may be under way already, in another thread.
  void acknowledge(std::uint64_t version) {
    mark(recording_.log, Mark::acked, version);
    if (version < kLastVersion) mark(recording_.log, Mark::began, version + 1);
  }

  Recording recording_;
  std::optional<Shelf> shelf_;
  std::atomic<std::uint64_t> clock_ = 0;
  std::array<std::atomic<std::uint64_t>, kSizes.size()> serials_ = {};
  std::array<std::array<Span, 2 * kAssignments + 1>, kSizes.size()> spans_;
};

}  // namespace

std::string interleaved_writers() {
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const Behaviour behaviour{.personality = seed % 2 == 0 ? Personality::block : Personality::pmem,
                              .max_size_bytes = kDiskBytes};
    Disk disk(kDiskBytes);
    Rng rng(seed);
    const Disk::Mark empty = disk.mark();
    try {
      const Recording recording = Run(disk, behaviour).play(rng);
      disk.rollback(empty);
      sample_images(disk, recording, {.behaviour = behaviour, .seed = seed, .images = 20});
    } catch (const std::exception& error) {
      return fmt::format("{} (order of seed {})", error.what(), seed);
    }
  }
  return "";
}

}  // namespace tensorshelf::crash
