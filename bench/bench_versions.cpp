// What it costs that several versions are alive: bytes of a partial update, going back, opening,
// saves that overlap, a reader beside a writer that never rests.
#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <thread>

#include <tensorshelf/shelf.hpp>

#include "samples.hpp"
#include "settings.hpp"
#include "simulated_drive.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;
namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch(const Settings& settings, const char* name, unsigned keep, unsigned in_flight)
      : path_(settings.directory / (std::string("tensorshelf-bench-") + name)) {
    options_.tier = settings.tier;
    options_.mode = Mode::replace;
    options_.keep = keep;
    options_.in_flight = in_flight;
    shelf.emplace(Shelf::open(path_, options_));
    options_.mode = Mode::update;
  }
  ~Scratch() {
    shelf.reset();
    fs::remove(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void reopen() {
    shelf.reset();
    shelf.emplace(Shelf::open(path_, options_));
  }
  Shelf open_reader() const {
    OpenOptions options;
    options.tier = options_.tier;
    options.mode = Mode::read;
    return Shelf::open(path_, options);
  }

  const fs::path& path() const { return path_; }

  std::optional<Shelf> shelf;

 private:
  fs::path path_;
  OpenOptions options_;
};

TensorRef make(Shelf& shelf, const char* name, std::uint64_t size) {
  return shelf.create(name, DType::uint8, std::vector<std::int64_t>{std::int64_t(size)});
}

// Of an update of 1 % in one piece that begins with a chunk, each time elsewhere, bytes to the
// medium over the tensor's: in the steady state, and right after an open.
void bytes_of_update(const Settings& settings) {
  const auto source = filled(settings.bytes);
  const std::uint64_t part = settings.bytes / 100;
  Scratch scratch(settings, "update", 0, 1);
  make(*scratch.shelf, "w", settings.bytes).write(source);
  scratch.shelf->persist();
  for (const bool steady : {true, false}) {
    if (!steady) scratch.reopen();
    TensorRef w = *scratch.shelf->find("w");
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < (steady ? 3 : 1); ++i) {
      before = scratch.shelf->stats().medium_bytes;
      const std::uint64_t at = (7 + 20 * i) * kChunkBytes;
      w.write(std::span(source).subspan(at, part), at);
      scratch.shelf->persist();
    }
    const auto written = static_cast<double>(scratch.shelf->stats().medium_bytes - before);
    print_value(steady ? "update_steady" : "update_after_open",
                written / static_cast<double>(settings.bytes));
  }
}

// Going back, over an empty persist.
void rollback(const Settings& settings) {
  const auto source = filled(settings.bytes / 8);
  Scratch scratch(settings, "rollback", 1, 1);
  Shelf& shelf = *scratch.shelf;
  std::vector<TensorRef> tensors;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(make(shelf, std::to_string(i).c_str(), source.size()));
    tensors.back().write(source);
  }
  shelf.persist();
  for (TensorRef& tensor : tensors) tensor.write(source);
  shelf.persist();
  const auto pairs = alternate(
      settings.rounds, [&] { shelf.rollback(shelf.version() - 1); }, [&] { shelf.persist(); });
  print("rollback", pairs, static_cast<double>(settings.bytes));
}

// With versions that stay, over one that keeps none.
void opening(const Settings& settings) {
  const auto fill = [](Scratch& scratch) {
    std::vector<TensorRef> tensors;
    const auto source = filled(4096);
    for (int i = 0; i < 300; ++i) {
      tensors.push_back(make(*scratch.shelf, std::to_string(i).c_str(), source.size()));
    }
    for (int version = 0; version < 8; ++version) {
      for (TensorRef& tensor : tensors) tensor.write(source);
      scratch.shelf->persist();
    }
  };
  Scratch keeping(settings, "keeping", 4, 1);
  Scratch alone(settings, "alone", 0, 1);
  fill(keeping);
  fill(alone);
  const auto pairs = alternate(
      settings.rounds, [&] { keeping.reopen(); }, [&] { alone.reopen(); });
  print("open_keep", pairs, static_cast<double>(keeping.shelf->versions().size()));
}

constexpr int kSaves = 8;

void save_back_to_back(Shelf& shelf, std::span<const std::byte> source) {
  TensorRef w = *shelf.find("w");
  std::shared_future<Commit> last;
  for (int i = 0; i < kSaves; ++i) {
    w.write(source);
    last = shelf.persist_async();
  }
  last.get();
}

// Saves back to back, two attempts on their way over one.
void overlap(const Settings& settings) {
  const auto source = filled(settings.bytes / 4);
  std::map<unsigned, std::unique_ptr<Scratch>> shelves;
  for (const unsigned in_flight : {1U, 2U}) {
    shelves[in_flight] =
        std::make_unique<Scratch>(settings, in_flight == 1 ? "one" : "two", 0, in_flight);
    make(*shelves[in_flight]->shelf, "w", source.size());
  }
  const auto save = [&](unsigned in_flight) {
    save_back_to_back(*shelves[in_flight]->shelf, source);
  };
  const auto pairs = alternate(
      settings.rounds, [&] { save(2); }, [&] { save(1); });
  print("overlap", pairs, static_cast<double>(source.size() * kSaves));
}

// The same where copying and flushing take like times, which no machine can be relied on for. Where
// a flush always takes the same time, and where it takes longer the more there is to flush: then
// the second one of a version is kept by what the next version copied meanwhile.
void simulated_overlap(const Settings& settings) {
  constexpr std::uint64_t kBytes = 64 << 20;
  constexpr double kRate = 1e9;
  constexpr auto kFlush = std::chrono::nanoseconds(std::int64_t{kBytes} / 2);  // two in a version
  const auto source = filled(kBytes);
  for (const bool fixed : {true, false}) {
    std::map<unsigned, std::optional<Shelf>> shelves;
    for (const unsigned in_flight : {1U, 2U}) {
      auto drive = fixed ? std::make_unique<SimulatedDrive>(kBytes * 5, kRate, kFlush)
                         : std::make_unique<SimulatedDrive>(kBytes * 5, kRate);
      const OpenOptions options{.mode = Mode::update, .keep = 0, .in_flight = in_flight};
      Shelf::format(*drive, options);
      shelves[in_flight].emplace(Shelf::open(std::move(drive), options));
      make(*shelves[in_flight], "w", kBytes);
    }
    const auto pairs = alternate(
        settings.rounds, [&] { save_back_to_back(*shelves[2], source); },
        [&] { save_back_to_back(*shelves[1], source); });
    print(fixed ? "flushes of one length" : "flushes by their bytes", pairs,
          static_cast<double>(kBytes * kSaves));
  }
}

// Of reads of 300 MB beside a writer that saves without pause, how many finish.
void reader(const Settings& settings) {
  const auto source = filled(300'000'000);
  Scratch scratch(settings, "reader", 2, 1);
  TensorRef w = make(*scratch.shelf, "w", source.size());
  w.write(source);
  scratch.shelf->persist();
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> saves = 0;
  std::thread writer([&] {
    while (!done) {
      w.write(source);
      scratch.shelf->persist();
      ++saves;
    }
  });
  int finished = 0;
  std::vector<std::byte> bytes(source.size());
  for (int i = 0; i < settings.rounds; ++i) {
    try {
      const Shelf shelf = scratch.open_reader();
      shelf.find("w")->read(bytes);
      ++finished;
    } catch (const Error& error) {
      std::cerr << error.what() << '\n';
    }
  }
  done = true;
  writer.join();
  print_value("reader_finished", static_cast<double>(finished) / settings.rounds);
  print_value("reader_saves", static_cast<double>(saves) / settings.rounds);
}

// A copy of the file as it lies there, both slots of each tensor, durable as a snapshot is.
void copy_durably(const fs::path& from, const fs::path& to) {
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  const int file = ::open(to.c_str(), O_RDONLY | O_CLOEXEC);
  ::fdatasync(file);
  ::close(file);
}

// A version as a shelf of its own, checked on the way, over a raw copy of the shelf's file.
void snapshot(const Settings& settings) {
  const auto source = filled(settings.bytes);
  Scratch scratch(settings, "snapshot", 0, 1);
  make(*scratch.shelf, "w", settings.bytes).write(source);
  scratch.shelf->persist();
  const fs::path copy = scratch.path().string() + "-copy";
  OpenOptions options;
  options.tier = settings.tier;
  const auto pairs = alternate(
      settings.rounds,
      [&] {
        fs::remove(copy);
        scratch.shelf->snapshot(copy, options);
      },
      [&] {
        fs::remove(copy);
        copy_durably(scratch.path(), copy);
      });
  fs::remove(copy);
  print("snapshot", pairs, static_cast<double>(settings.bytes));
}

// Of two versions of 10,000 tensors, between which 100 changed; over looking at their names.
void difference(const Settings& settings) {
  constexpr int kTensors = 10'000;
  Scratch scratch(settings, "diff", 1, 1);
  Shelf& shelf = *scratch.shelf;
  const auto source = filled(4096);
  std::vector<TensorRef> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back(make(shelf, std::to_string(i).c_str(), source.size()));
    tensors.back().write(source);
  }
  shelf.persist();
  for (int i = 0; i < kTensors; i += 100) tensors[static_cast<std::size_t>(i)].write(source);
  shelf.persist();
  const auto pairs = alternate(
      settings.rounds, [&] { shelf.diff(1, 2); }, [&] { shelf.at(2).names(); });
  print("diff", pairs, kTensors);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("versions: what it costs that several are alive");
  Settings settings{.rounds = 9};
  std::string what;
  const std::map<std::string, std::function<void(const Settings&)>> cases = {
      {"update", bytes_of_update},
      {"rollback", rollback},
      {"open", opening},
      {"overlap", overlap},
      {"simulated", simulated_overlap},
      {"reader", reader},
      {"snapshot", snapshot},
      {"diff", difference}};
  app.add_option("case", what)->required()->check(CLI::IsMember(cases));
  add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  try {
    cases.at(what)(settings);
  } catch (const Error& error) {
    std::cerr << error.what() << ". " << error.remedy() << '\n';
    return 3;
  }
  return 0;
}
