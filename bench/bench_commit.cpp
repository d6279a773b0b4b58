// What assign + persist cost, each beside the limit it is held against. Writes below the directory
// that --dir names, and removes what it wrote.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include <tensorshelf/shelf.hpp>

#include "base/copy_hash.hpp"
#include "samples.hpp"
#include "settings.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;
namespace fs = std::filesystem;

struct CommitSettings : Settings {
  unsigned threads = 1;  // that assign, a tensor each
  unsigned within = 0;   // that copy one assignment (OpenOptions::threads)
  std::uint64_t buffer_bytes = BlockTuning{}.buffer_bytes;
  unsigned queue_depth = BlockTuning{}.queue_depth;
};

// A shelf that is gone with its directory entry when the bench is done with it.
class ScratchShelf {
 public:
  ScratchShelf(const CommitSettings& settings, const std::string& name)
      : path_(settings.directory / ("tensorshelf-bench-" + name)) {
    OpenOptions options;
    options.mode = Mode::replace;
    options.tier = settings.tier;
    options.block.buffer_bytes = settings.buffer_bytes;
    options.block.queue_depth = settings.queue_depth;
    options.threads = settings.within;
    shelf_.emplace(Shelf::open(path_, options));
  }
  ~ScratchShelf() {
    shelf_.reset();
    fs::remove(path_);
  }
  ScratchShelf(const ScratchShelf&) = delete;
  ScratchShelf& operator=(const ScratchShelf&) = delete;

  Shelf& operator*() { return *shelf_; }
  Shelf* operator->() { return &*shelf_; }

  std::vector<TensorRef> create(unsigned count, std::uint64_t size) {
    std::vector<TensorRef> tensors;
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(size)};
    for (unsigned i = 0; i < count; ++i) {
      tensors.push_back(shelf_->create("t" + std::to_string(i), DType::uint8, shape));
    }
    return tensors;
  }

 private:
  fs::path path_;
  std::optional<Shelf> shelf_;
};

template <typename Work>
void in_threads(unsigned count, Work work) {
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < count; ++i) others.emplace_back(work, i);
  work(0U);
}

// Both slots in turn, as the shelf uses them, so that neither side has the warmer pages.
class RawTarget {
 public:
  RawTarget(const CommitSettings& settings, std::uint64_t size)
      : path_(settings.directory / "tensorshelf-bench-raw"), size_(size) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(2 * size)) != 0) std::abort();
    void* map = ::mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED) std::abort();
    ::close(fd);
    base_ = static_cast<std::byte*>(map);
  }
  ~RawTarget() {
    ::munmap(base_, 2 * size_);
    fs::remove(path_);
  }
  RawTarget(const RawTarget&) = delete;
  RawTarget& operator=(const RawTarget&) = delete;

  std::byte* next() {
    side_ = 1 - side_;
    return base_ + side_ * size_;
  }

 private:
  fs::path path_;
  std::uint64_t size_;
  std::byte* base_;
  std::uint64_t side_ = 0;
};

void full_mapped(const CommitSettings& settings) {
  const std::uint64_t part = settings.bytes / settings.threads;
  const auto source = filled(settings.bytes);
  const auto part_of = [&](unsigned i) { return std::span(source).subspan(i * part, part); };
  ScratchShelf shelf(settings, "full");
  auto tensors = shelf.create(settings.threads, part);
  RawTarget raw(settings, settings.bytes);
  const unsigned raw_threads = settings.threads * std::max(settings.within, 1U);
  const std::uint64_t raw_part = settings.bytes / raw_threads;
  const auto pairs = alternate(
      settings.rounds,
      [&] {
        in_threads(settings.threads, [&](unsigned i) { tensors[i].write(part_of(i)); });
        shelf->persist();
      },
      [&] {
        std::byte* target = raw.next();
        in_threads(raw_threads, [&](unsigned i) {
          const auto own = std::span(source).subspan(i * raw_part, raw_part);
          for (std::uint64_t at = 0; at < raw_part; at += kChunkBytes) {
            const auto piece = own.subspan(at, std::min(kChunkBytes, raw_part - at));
            copy_only(target + i * raw_part + at, piece, Stores::streaming);
          }
          drain_stores();
        });
      });
  print(fmt::format("full_mapped_{}_{}", settings.threads, settings.within), pairs,
        static_cast<double>(settings.bytes));
}

// One round for each line on standard input, so that run_bench.py can alternate it with fio.
void full_block(const CommitSettings& settings) {
  const auto source = filled(settings.bytes);
  ScratchShelf shelf(settings, "block");
  auto tensor = shelf.create(1, settings.bytes)[0];
  const auto round = [&] {
    tensor.write(source);
    shelf->persist();
  };
  round();
  round();
  for (std::string line; std::getline(std::cin, line);)
    print_value("full_block", seconds_of(round));
}

void many(const CommitSettings& settings) {
  constexpr unsigned kCount = 10'000;
  constexpr std::uint64_t kSize = 4096;
  const auto source = filled(kCount * kSize);
  ScratchShelf small(settings, "many");
  ScratchShelf large(settings, "one");
  auto tensors = small.create(kCount, kSize);
  auto whole = large.create(1, kCount * kSize)[0];
  const auto pairs = alternate(
      settings.rounds,
      [&] {
        for (unsigned i = 0; i < kCount; ++i) {
          tensors[i].write(std::span(source).subspan(i * kSize, kSize));
        }
        small->persist();
      },
      [&] {
        whole.write(source);
        large->persist();
      });
  print("many_small", pairs, static_cast<double>(kCount * kSize));
}

void one_dirty(const CommitSettings& settings) {
  const auto source = filled(4096);
  ScratchShelf few(settings, "few");
  ScratchShelf lots(settings, "lots");
  auto few_tensors = few.create(10, 4096);
  auto lots_tensors = lots.create(10'000, 4096);
  few->persist();
  lots->persist();
  constexpr unsigned kBatch = 20;  // one alone is too short to time
  const auto pairs = alternate(
      settings.rounds * 4,
      [&] {
        for (unsigned i = 0; i < kBatch; ++i) {
          lots_tensors[i * 487].write(source);
          lots->persist();
        }
      },
      [&] {
        for (unsigned i = 0; i < kBatch; ++i) {
          few_tensors[i % 10].write(source);
          few->persist();
        }
      });
  print("one_dirty", pairs, 4096.0 * kBatch);
}

void partial(const CommitSettings& settings) {
  const auto source = filled(settings.bytes);
  const std::uint64_t part = settings.bytes / 100;
  ScratchShelf shelf(settings, "partial");
  auto tensor = shelf.create(1, settings.bytes)[0];
  const auto whole = [&] {
    tensor.write(source);
    shelf->persist();
  };
  std::uint64_t at = 0;
  const auto update = [&] {  // somewhere else each time
    at = (at + settings.bytes / 7) % (settings.bytes - part);
    tensor.write(std::span(source).subspan(at, part), at);
    shelf->persist();
  };
  whole();
  whole();
  Pairs pairs;
  for (int round = 0; round < settings.rounds; ++round) {
    pairs.limit.push_back(seconds_of(whole));
    update();  // brings the rest of the other slot up to date: once, not in the steady state
    for (int i = 0; i < 3; ++i) update();
    pairs.ours.push_back(seconds_of([&] {
                           for (int i = 0; i < 4; ++i) update();
                         }) /
                         4);
  }
  print("partial", pairs, static_cast<double>(part));
}

double anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  return 0;
}

void memory(const CommitSettings& settings) {
  const auto source = filled(settings.bytes);
  const double before = anonymous_bytes();
  ScratchShelf shelf(settings, "memory");
  auto tensor = shelf.create(1, settings.bytes)[0];
  for (int i = 0; i < 3; ++i) {
    tensor.write(source);
    shelf->persist();
  }
  print_value("memory", anonymous_bytes() - before);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("assign + persist, each beside its limit");
  CommitSettings settings;
  std::string what;
  app.add_option("case", what)
      ->required()
      ->check(CLI::IsMember({"full", "block", "many", "one", "partial", "memory"}));
  add_options(app, settings);
  app.add_option("--threads", settings.threads);
  app.add_option("--within", settings.within);
  app.add_option("--buffer-bytes", settings.buffer_bytes);
  app.add_option("--queue-depth", settings.queue_depth);
  CLI11_PARSE(app, argc, argv);
  try {
    if (what == "full") full_mapped(settings);
    if (what == "block") full_block(settings);
    if (what == "many") many(settings);
    if (what == "one") one_dirty(settings);
    if (what == "partial") partial(settings);
    if (what == "memory") memory(settings);
  } catch (const Error& error) {
    std::cerr << error.what() << ". " << error.remedy() << '\n';
    return 3;
  }
  return 0;
}
