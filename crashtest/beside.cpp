#include "beside.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "survey.hpp"
#include "tests/forwarding_medium.hpp"

namespace tensorshelf::crash {
namespace {

// The writer's log, played on while the reader reads.
class Playback {
 public:
  Playback(Disk& disk, const Log& log, Rng& rng) : disk_(disk), log_(log), rng_(rng) {}

  void play_to(std::size_t event) {
    while (next_ <= event && next_ < log_.events.size()) play_one();
  }
  // As much as may happen between two reads: mostly little, now and then more than one commit.
  void go_on() {
    if (pace_ == 0) return;
    const std::uint64_t most = rng_.one_in(8) ? 40 : pace_;
    for (std::uint64_t count = rng_.below(most + 1); count > 0; --count) {
      if (next_ < log_.events.size()) play_one();
    }
  }
  // Where a read of that size is torn, what lies behind comes later: mostly nowhere.
  bool tears(std::uint64_t size_bytes) {
    return pace_ != 0 && size_bytes > kWordBytes && rng_.one_in(4);
  }
  // Takes the later bytes for some of the words: from one on, or here and there.
  void mixed(std::span<std::byte> bytes, std::span<const std::byte> later) {
    const std::uint64_t words = (bytes.size() - 1) / kWordBytes;
    const std::uint64_t from = 1 + rng_.below(words);
    const bool everywhere = rng_.one_in(2);
    for (std::uint64_t word = 0; word <= words; ++word) {
      if (everywhere ? rng_.one_in(2) : word < from) continue;
      const std::uint64_t at = word * kWordBytes;
      const std::uint64_t size = std::min<std::uint64_t>(kWordBytes, bytes.size() - at);
      std::copy_n(later.begin() + static_cast<std::ptrdiff_t>(at), size,
                  bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  void set_pace(std::uint64_t events) { pace_ = events; }
  std::size_t last() const { return next_ - 1; }
  std::uint64_t words() const { return words_; }  // stored so far: flips, and openings

 private:
  void play_one() {
    const Event& event = log_.events[next_++];
    words_ += is<WordEvent>(event);
    log_.replay(event, disk_);
  }

  Disk& disk_;
  const Log& log_;
  Rng& rng_;
  std::size_t next_ = 0;
  std::uint64_t pace_ = 0;
  std::uint64_t words_ = 0;
};

// A reader's medium, on which time passes, between reads and within them.
class PassingMedium final : public testing::ForwardingMedium {
 public:
  PassingMedium(std::shared_ptr<Medium> medium, Playback& playback, std::uint64_t& reads)
      : ForwardingMedium(std::move(medium)), playback_(playback), reads_(reads) {}

  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    playback_.go_on();
    ++reads_;
    ForwardingMedium::read(at, bytes);
    if (!playback_.tears(bytes.size())) return;
    std::vector<std::byte> later(bytes.size());
    playback_.go_on();
    ForwardingMedium::read(at, later);
    playback_.mixed(bytes, later);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    playback_.go_on();
    return ForwardingMedium::view(extent);
  }

 private:
  Playback& playback_;
  std::uint64_t& reads_;
};

class ReaderWalk {
 public:
  ReaderWalk(Disk& disk, const Recording& recording, const ReaderScene& scene, Rng& rng)
      : disk_(disk),
        recording_(recording),
        scene_(scene),
        rng_(rng),
        expected_(expectations(recording)) {}

  void one() {
    const Disk::Mark empty = disk_.mark();
    const std::size_t events = recording_.log.events.size();
    const std::size_t begin = scene_.first_event + rng_.below(events - scene_.first_event);
    std::string text;
    Playback playback(disk_, recording_.log, rng_);
    try {
      playback.play_to(begin);
      text = read(playback);
    } catch (const std::exception& error) {
      text = error.what();
    }
    disk_.rollback(empty);
    if (text.empty()) return;
    throw std::runtime_error(fmt::format("a reader beside the writer, from event {} to {}: {}",
                                         begin, playback.last(), text));
  }

 private:
  std::string read(Playback& playback) {
    Log log;
    Recorded media = recorded(disk_, log, scene_.behaviour);
    const std::size_t begin = playback.last();
    playback.set_pace(rng_.below(5));  // 0: it rests
    const std::uint64_t words = playback.words();
    std::uint64_t reads = 0;
    for (auto& each : media.also) {
      each = std::make_unique<PassingMedium>(std::move(each), playback, reads);
    }
    for (auto& [of, each] : media.mirrors) {
      each = std::make_unique<PassingMedium>(std::move(each), playback, reads);
    }
    Shelf shelf = Shelf::open(
        std::make_unique<PassingMedium>(std::move(media.first), playback, reads),
        std::move(media.also), std::move(media.mirrors),
        {.mode = Mode::read, .verify = rng_.one_in(3) ? Verify::never : Verify::on_load});
    const std::uint64_t looks = 2 + playback.words() - words;
    const std::uint64_t most =
        16 + survey(disk_.bytes(), scene_.behaviour.second_bytes).places.size();  // for one look
    if (reads > looks * most) {
      return fmt::format("{} reads to open it, beside {} words stored", reads, looks - 2);
    }
    const ShelfInfo info = shelf.info();
    if (info.recovery.degraded) return "degraded, with no damage done";
    const Model* const model = find(info.version, begin, playback.last());
    if (model == nullptr) {
      return fmt::format("version {} is none of those acknowledged since it began", info.version);
    }
    const auto floor = [&] { return floor_at(playback.last()); };
    std::string text = offers(*model, shelf, floor);
    if (text.empty()) text = differs(*model, shelf, floor);
    for (int more = 0; more < 2 && text.empty(); ++more) text = follow(playback, shelf);
    if (text.empty() && !log.events.empty()) return "it wrote";
    return text;
  }

  // What each version that is offered holds, twice, against what it is to hold.
  template <typename Floor>
  static std::string differs(const Model& model, const Shelf& shelf, const Floor& floor) {
    std::string text;
    for (int round = 0; round < 2 && text.empty(); ++round) {
      for (const VersionInfo& version : shelf.versions()) {
        if (!text.empty()) break;
        try {
          const auto older = model.find(version.version);
          text = older ? retained_difference(*older, shelf.at(version.version))
                       : newest_difference(model, shelf);
        } catch (const Error& error) {
          if (error.code() != Errc::stale) throw;
          if (floor() <= version.version) text = "stale, and its slots are spared still";
        }
      }
    }
    return text;
  }

  // Time passes, and the reader goes on to a version that was acknowledged when it looked, or came
  // later; never back.
  std::string follow(Playback& playback, Shelf& shelf) const {
    playback.set_pace(40);
    playback.go_on();
    playback.set_pace(rng_.below(5));
    const std::uint64_t before = shelf.version();
    const std::size_t begin = playback.last();
    const bool newer = shelf.refresh();
    const std::uint64_t now = shelf.version();
    if (now < before || newer != (now != before)) {
      return fmt::format("a refresh from version {} to {} says {}", before, now, newer);
    }
    const Model* const model = find(now, begin, playback.last());
    if (model == nullptr) {
      return fmt::format("after a refresh version {} is none of those acknowledged since", now);
    }
    const auto floor = [&] { return floor_at(playback.last()); };
    const std::string text = offers(*model, shelf, floor);
    return text.empty() ? differs(*model, shelf, floor) : text;
  }

  // A version that is not offered, and was retained, was overtaken.
  template <typename Floor>
  static std::string offers(const Model& model, const Shelf& shelf, const Floor& floor) {
    const std::vector<VersionInfo> offered = shelf.versions();
    for (std::size_t i = 0; i + 1 < offered.size(); ++i) {
      if (!model.find(offered[i].version)) return "a version is offered that is not retained";
      if (offered[i].version + 1 != offered[i + 1].version) return "there is a gap in the versions";
    }
    for (const auto& older : model.older) {
      if (older->version < offered.front().version && floor() <= older->version) {
        std::string why;
        for (const std::string& note : shelf.info().recovery.notes) why += "; " + note;
        return fmt::format("version {} is not offered, and retained still{}", older->version, why);
      }
    }
    return {};
  }

  // Of the newest version that may have been flipped by then.
  std::uint64_t floor_at(std::size_t event) const {
    return recording_.history[expected_[event].in_flight].floor();
  }

  const Model* find(std::uint64_t version, std::size_t begin, std::size_t end) const {
    for (std::size_t i = expected_[begin].acked; i <= expected_[end].in_flight; ++i) {
      if (recording_.history[i].version == version) return &recording_.history[i];
    }
    return nullptr;
  }

  Disk& disk_;
  const Recording& recording_;
  const ReaderScene& scene_;
  Rng& rng_;
  const std::vector<Expected> expected_;
};

}  // namespace

void explore_readers(Disk& disk, const Recording& recording, const ReaderScene& scene, Rng& rng,
                     Counts& counts) {
  ReaderWalk walk(disk, recording, scene, rng);
  for (std::uint64_t reader = 0; reader < scene.readers; ++reader) {
    ++counts.readers;
    walk.one();
  }
}

}  // namespace tensorshelf::crash
