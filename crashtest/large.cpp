// Plays on shelves that are too large for every image: sets of chunks beyond a word of 64 bits,
// runs of chunks, a second directory of the manifest, thousands of tensors; and a third crash in
// what follows a second one. Also what a crash within format() leaves, and repair that is needed
// later.
#include "large.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include <tensorshelf/shelf.hpp>

#include "base/copy_hash.hpp"
#include "format/format.hpp"
#include "sampled.hpp"
#include "walk.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::array kPersonalities = {Personality::pmem, Personality::block};

// ---- chunks
// ---------------------------------------------------------------------------------------

struct PlainBytes {
  explicit PlainBytes(std::uint64_t most) : capacity(most), at(new std::byte[most]) {}
  const std::uint64_t capacity;
  std::uint64_t size = 0;
  const std::unique_ptr<std::byte[]> at;  // what is beyond the size was never touched
};

// Memory that survives the shelf on it and logs nothing: hundreds of megabytes pass through it.
class PlainMedium final : public Medium {
 public:
  PlainMedium(std::shared_ptr<PlainBytes> bytes, bool mapped)
      : bytes_(std::move(bytes)), mapped_(mapped) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> source, std::uint64_t seed) override {
    return {++sequence_, copy_and_hash(base() + at, source, seed, Stores::cached)};
  }
  void wait(const Ticket&) override {}
  void barrier() override {}
  void store_word(std::uint64_t at, std::uint64_t word) override {
    std::memcpy(base() + at, &word, sizeof word);
  }
  void read(std::uint64_t at, std::span<std::byte> target) override {
    if (!target.empty()) std::memcpy(target.data(), base() + at, target.size());
  }
  std::span<const std::byte> view(const Extent& extent) override {
    if (!mapped_) return {};
    return {base() + extent.at, extent.size_bytes};
  }
  std::uint64_t size() override { return bytes_->size; }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (size_bytes > bytes_->capacity) throw Error(Errc::full, "no more memory", "Take less.");
    if (size_bytes > bytes_->size) {
      std::memset(base() + bytes_->size, 0, size_bytes - bytes_->size);
      bytes_->size = size_bytes;
    }
    return bytes_->size;
  }
  Promises promises() const override {
    return {.medium = "plain",
            .detail = "memory",
            .survives = Survives::power_loss,
            .mapped = mapped_,
            .needs_flush = false,
            .volatile_cache = false,
            .atomic_bytes = 8,
            .notes = {}};
  }

 private:
  std::byte* base() const { return bytes_->at.get(); }
  std::shared_ptr<PlainBytes> bytes_;
  bool mapped_;
  std::uint64_t sequence_ = 0;
};

// One tensor of many chunks, assigned in parts, against a model.
class ManyChunks {
 public:
  ManyChunks(std::uint64_t chunks, bool mapped)
      : chunks_(chunks),
        mapped_(mapped),
        expected_(chunks * kChunkBytes - 100),
        medium_(std::make_shared<PlainBytes>(2 * chunks * kChunkBytes + 32 * kMiB)) {
    PlainMedium medium(medium_, mapped_);
    Shelf::format(medium);
    open();
    shelf_->create("a", DType::uint8, std::array{static_cast<std::int64_t>(expected_.size())});
  }
  void open() {
    shelf_.reset();
    shelf_ = Shelf::open(std::make_unique<PlainMedium>(medium_, mapped_), {.mode = Mode::update});
  }
  void change(std::initializer_list<std::uint64_t> chunks) {
    for (const std::uint64_t chunk : chunks) {
      if (chunk >= chunks_) continue;
      const auto part = std::span(expected_).subspan(chunk * kChunkBytes + 16, 8);
      stamp(part, "a", ++serial_, 0);
      shelf_->find("a")->write(part, chunk * kChunkBytes + 16);
    }
  }
  void persist() {
    shelf_->persist();
    std::vector<std::byte> found(expected_.size(), std::byte{0xAA});
    shelf_->find("a")->read(found);
    const auto [wrong, wanted] = std::mismatch(found.begin(), found.end(), expected_.begin());
    if (wrong != found.end()) {
      throw std::runtime_error(fmt::format("of {} chunks, chunk {} is wrong in version {}", chunks_,
                                           (wrong - found.begin()) / std::ptrdiff_t{kChunkBytes},
                                           shelf_->info().version));
    }
  }

 private:
  std::uint64_t chunks_;
  bool mapped_;
  std::vector<std::byte> expected_;
  std::shared_ptr<PlainBytes> medium_;
  std::optional<Shelf> shelf_;
  std::uint64_t serial_ = 0;
};

std::string chunk_sets() {
  struct Row {
    std::uint64_t chunks;
    bool mapped;
  };
  for (const Row& row : {Row{64, false}, Row{65, true}, Row{100, true}, Row{129, false}}) {
    const std::uint64_t last = row.chunks - 1;
    ManyChunks play(row.chunks, row.mapped);
    play.change({0, 62, 63, 64, last});
    play.persist();  // the others are zeros
    play.change({1, 63, last});
    play.persist();  // to a slot that holds nothing: the others in runs, up to the last chunk
    play.change({5, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 64, 65, 127, 128});
    play.persist();
    play.change({0});
    play.persist();  // what the last version changed, among it a run of more than eight
    play.open();
    play.change({63});
    play.persist();  // to a slot of which nothing is known
  }
  return "";
}

// ---- manifests
// ------------------------------------------------------------------------------------

std::string sampled(std::string_view program, std::uint64_t disk_bytes, Sampling sampling) {
  for (const Personality personality : kPersonalities) {
    Disk disk(disk_bytes);
    sampling.behaviour = {.personality = personality, .max_size_bytes = disk_bytes};
    sample_program(disk, program, sampling);
  }
  return "";
}

// 480 names of a thousand bytes fill 162 leaves, which the root names itself; with some more it has
// a directory, and without them it has none again.
std::string first_directory() {
  return sampled(
      fmt::format("shelf 1 1; named 480 1000; persist; named 20 900; assign {0}; persist;"
                  "assign {0}; persist; rollback 1; rollback 1; named 20 901; persist;"
                  "reopen; assign {0}; persist; erase {0}; persist",
                  long_name(479, 1000)),
      24 * kMiB, {.images = 24});
}

// 520 names of a thousand bytes fill more leaves than one directory names.
std::string second_directory() {
  const std::string last = long_name(519, 1000);
  return sampled(fmt::format("named 520 1000; persist; assign {0}; persist; erase {0}; persist;"
                             "all; create z 8; persist; reopen; assign z; persist",
                             last),
                 16 * kMiB, {.images = 24});
}

std::string thousands() {
  return sampled("many 3000 8; persist; all; persist; all; erase m7; persist", 48 * kMiB,
                 {.images = 16});
}

std::string third_crash() {
  return sampled(
      "create a 64; assign a; persist; part a 8 8; create b 5000; assign b; persist;"
      "erase b; assign a; persist",
      kMiB, {.images = 24, .depth = 3, .deep_images = 3});
}

// ---- format()
// -------------------------------------------------------------------------------------

bool has_superblock(const Disk& disk) {
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    const std::uint64_t at = format::superblock_at(copy);
    if (at + kPageBytes > disk.size_bytes()) continue;
    format::RawPage page;
    std::memcpy(page.bytes.data(), disk.bytes().data() + at, kPageBytes);
    if (format::read_superblock(page, copy).superblock) return true;
  }
  return false;
}

// What a crash within format() left: no shelf, an empty one, or the old one. Where a superblock is
// whole, so is what it stands for.
std::string after_format(Disk& disk, const Behaviour& behaviour, const Model* old) {
  Log log;
  const bool stated = has_superblock(disk);
  try {
    const Shelf shelf = Shelf::open(std::make_unique<RecordingMedium>(disk, log, behaviour),
                                    {.mode = Mode::update});
    if (shelf.info().recovery.degraded) return "it is degraded";
    const std::string not_empty = difference({}, shelf);
    if (not_empty.empty() || (old != nullptr && difference(*old, shelf).empty())) return "";
    return "it is a shelf that never was: " + not_empty;
  } catch (const Error& error) {
    return stated ? error.what() : "";
  }
}

void crash_format(Disk& disk, const Behaviour& behaviour, bool trash, const Model* old) {
  const Disk::Mark before = disk.mark();
  Log log;
  {
    RecordingMedium medium(disk, log, behaviour);
    Shelf::format(medium);
  }
  const std::string done = after_format(disk, behaviour, nullptr);
  if (!done.empty()) throw std::runtime_error("format() itself: " + done);
  disk.rollback(before);
  Rng rng(1);
  Counts counts;
  walk_images(
      disk, log, {.personality = behaviour.personality, .trash = trash},
      [](std::size_t) { return 0; }, rng, counts,
      [&](const CrashPoint& point, ReadSet& reads) {
        reads.add(0, disk.size_bytes());
        const std::string text = after_format(disk, behaviour, old);
        if (text.empty()) return;
        throw std::runtime_error(
            fmt::format("after a crash in format(): {}\n{}", text, describe(log, point)));
      });
}

std::string crash_in_format() {
  for (const Personality personality : kPersonalities) {
    const Behaviour behaviour{.personality = personality, .max_size_bytes = kMiB};
    for (const bool trash : {false, true}) {
      if (trash && personality == Personality::pmem) continue;
      Disk disk(kMiB);
      crash_format(disk, behaviour, trash, nullptr);
      Runner runner(disk, behaviour);
      runner.run(parse("create a 64; assign a; persist; assign a; persist"));
      const Recording old = runner.finish();
      crash_format(disk, behaviour, trash, &old.history.back());
    }
  }
  return "";
}

// ---- repair
// ---------------------------------------------------------------------------------------

// The places of the two copies of each page: in the header by its map, in the heap by their
// content.
std::vector<std::array<std::uint64_t, 2>> copies(const Disk& disk) {
  constexpr std::uint64_t header = format::kHeaderBytes;
  std::vector<std::array<std::uint64_t, 2>> pairs;
  std::map<std::string, std::uint64_t> seen;
  const std::string_view all(reinterpret_cast<const char*>(disk.bytes().data()), disk.size_bytes());
  for (std::uint64_t at = 0; at < disk.size_bytes(); at += kPageBytes) {
    const std::string page(all.substr(at, kPageBytes));
    if (page.find_first_not_of('\0') == std::string::npos) continue;
    if (at < header) pairs.push_back({at, at + header});
    if (at < 2 * header) continue;
    const auto [first, fresh] = seen.emplace(page, at);
    if (!fresh) pairs.push_back({first->second, at});
  }
  return pairs;
}

// One copy goes, the shelf is opened, and the other copy goes.
std::string repair_lasts() {
  const Behaviour behaviour{.personality = Personality::pmem, .max_size_bytes = kMiB};
  Disk disk(kMiB);
  Runner runner(disk, behaviour);
  runner.run(parse("create a 64; create b 5000; assign a; assign b; persist; assign a; persist"));
  const Recording recording = runner.finish();
  const Model& expected = recording.history.back();
  const std::vector<std::byte> garbage(kPageBytes, std::byte{0xAA});
  const auto pairs = copies(disk);
  if (pairs.size() < 7) return "fewer pages with two copies than there must be";
  for (const auto& pair : pairs) {
    for (const bool second_first : {false, true}) {
      const Disk::Mark whole = disk.mark();
      for (const bool second : {second_first, !second_first}) {
        disk.write(pair[second], garbage);
        Log log;
        const Shelf shelf = Shelf::open(std::make_unique<RecordingMedium>(disk, log, behaviour),
                                        {.mode = Mode::update});
        const std::string text = difference(expected, shelf);
        if (!text.empty()) return fmt::format("a bad copy at {:#x}: {}", pair[second], text);
      }
      disk.rollback(whole);
    }
  }
  return "";
}

}  // namespace

const std::vector<Scenario>& large_scenarios() {
  static const std::vector<Scenario> table = {
      {"chunk-sets", "-", chunk_sets},
      {"directories", "-", second_directory},
      {"first-directory", "-", first_directory},
      {"thousands", "-", thousands},
      {"third-crash", "I6", third_crash},
      {"format", "I1", crash_in_format},
      {"repair", "-", repair_lasts},
  };
  return table;
}

}  // namespace tensorshelf::crash
