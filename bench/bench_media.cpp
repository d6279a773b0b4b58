// Shelves on two media. "stripe": assign + persist of a tensor in stripes over files in two
// folders, beside the same on the first alone. "small": commits that touch a small tensor on the
// first, while the second has a large one, beside the same without a second. "mirror": assign +
// persist on a file and its mirror, beside the same without one. Writes below the directories that
// --dir and --second name, and removes what it wrote.
#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <string>

#include <tensorshelf/shelf.hpp>

#include "samples.hpp"
#include "settings.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;
namespace fs = std::filesystem;

class ScratchFile {
 public:
  ScratchFile(const fs::path& folder, const char* name) : path_(folder / name) {
    fs::remove(path_);
  }
  ~ScratchFile() { fs::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TensorRef made(Shelf& shelf, std::uint64_t bytes, std::span<const unsigned> media) {
  return shelf.create("t", DType::uint8, std::array{static_cast<std::int64_t>(bytes)}, media);
}

void save(Shelf& shelf, TensorRef& tensor, std::span<const std::byte> source) {
  tensor.write(source);
  shelf.persist();
}

struct Saved {
  Shelf& shelf;
  TensorRef& tensor;
};

// Each with all of its slots written once before.
void race(const char* name, const Settings& settings, Saved ours, Saved limit) {
  const auto source = filled(settings.bytes);
  const auto run = [&](Saved& one) { save(one.shelf, one.tensor, source); };
  for (int slot = 0; slot < 2; ++slot) {
    run(limit);
    run(ours);
  }
  print(name,
        alternate(
            settings.rounds, [&] { run(ours); }, [&] { run(limit); }),
        static_cast<double>(settings.bytes));
}

void stripe(const Settings& settings, const fs::path& second) {
  const ScratchFile alone(settings.directory, "bench-alone.shelf");
  const ScratchFile first(settings.directory, "bench-media.shelf");
  const ScratchFile part(second, "bench-media.part");
  OpenOptions options;
  options.tier = "block";
  Shelf one = Shelf::open(alone.path(), options);
  options.also = {part.path().string()};
  Shelf both = Shelf::open(first.path(), options);
  TensorRef limit = made(one, settings.bytes, {});
  TensorRef ours = made(both, settings.bytes, std::array{0U, 1U});
  race("stripe", settings, {both, ours}, {one, limit});
}

void mirror(const Settings& settings, const fs::path& second) {
  const ScratchFile alone(settings.directory, "bench-alone.shelf");
  const ScratchFile first(settings.directory, "bench-media.shelf");
  const ScratchFile twin(second, "bench-media.mirror");
  OpenOptions options;
  options.tier = settings.tier;
  Shelf one = Shelf::open(alone.path(), options);
  options.mirrors = {{twin.path().string(), 0}};
  Shelf both = Shelf::open(first.path(), options);
  TensorRef limit = made(one, settings.bytes, {});
  TensorRef ours = made(both, settings.bytes, {});
  race("mirror", settings, {both, ours}, {one, limit});
}

void small(const Settings& settings, const fs::path& second) {
  constexpr std::uint64_t kSmallBytes = 4096;
  constexpr int kCommits = 500;  // of each sample
  const ScratchFile alone(settings.directory, "bench-alone.shelf");
  const ScratchFile first(settings.directory, "bench-media.shelf");
  const ScratchFile part(second, "bench-media.part");
  OpenOptions options;
  Shelf one = Shelf::open(alone.path(), options);
  options.also = {part.path().string()};
  Shelf both = Shelf::open(first.path(), options);
  const auto bulk = filled(settings.bytes);
  TensorRef far = both.create(
      "bulk", DType::uint8, std::array{static_cast<std::int64_t>(settings.bytes)}, std::array{1U});
  save(both, far, bulk);
  TensorRef limit = made(one, kSmallBytes, {});
  TensorRef ours = made(both, kSmallBytes, {});
  const auto source = std::span(bulk).first(kSmallBytes);
  const auto commits = [&](Shelf& shelf, TensorRef& tensor) {
    for (int i = 0; i < kCommits; ++i) save(shelf, tensor, source);
  };
  print("small",
        alternate(
            settings.rounds, [&] { commits(both, ours); }, [&] { commits(one, limit); }),
        static_cast<double>(kSmallBytes * kCommits));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("shelves on two media");
  Settings settings;
  std::string what;
  fs::path second;
  add_options(app, settings);
  app.add_option("case", what)->required()->check(CLI::IsMember({"stripe", "mirror", "small"}));
  app.add_option("--second", second, "the folder of the second medium")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    (what == "stripe" ? stripe : what == "mirror" ? mirror : small)(settings, second);
  } catch (const Error& error) {
    std::cerr << error.what() << ". " << error.remedy() << '\n';
    return 3;
  }
  return 0;
}
