// assign + persist into a pool of libpmemobj, with one replica or two, beside the same into the
// plain mapped medium. Writes below the directory that --dir names, and removes what it wrote.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <tensorshelf/shelf.hpp>

#include "samples.hpp"
#include "settings.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;
namespace fs = std::filesystem;

class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& parent) : path_(parent / "tensorshelf-bench-pool") {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~ScratchFolder() { fs::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// A pool set, of one part for each replica.
fs::path put_set(const ScratchFolder& folder, std::uint64_t bytes, unsigned replicas) {
  const fs::path path = folder / "run.set";
  std::ofstream set(path);
  set << "PMEMPOOLSET\n";
  for (unsigned i = 0; i < replicas; ++i) {
    if (i > 0) set << "REPLICA\n";
    set << bytes / (1 << 20) << "M " << (folder / "part").native() << i << "\n";
  }
  return path;
}

void measure(const Settings& settings, unsigned replicas, unsigned within) {
  const ScratchFolder folder(settings.directory);
  const auto source = filled(settings.bytes);
  OpenOptions options;
  options.threads = within;
  Shelf pool = Shelf::open(
      put_set(folder, 2 * settings.bytes + settings.bytes / 8 + (64 << 20), replicas), options);
  options.mode = Mode::replace;
  options.tier = settings.tier;
  Shelf plain = Shelf::open(folder / "plain", options);
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(settings.bytes)};
  TensorRef ours = pool.create("t", DType::uint8, shape);
  TensorRef limit = plain.create("t", DType::uint8, shape);
  const auto save = [&](Shelf& shelf, TensorRef& tensor) {
    tensor.write(source);
    shelf.persist();
  };
  for (int slot = 0; slot < 2; ++slot) {  // both slots: pages that were never touched cost more
    save(pool, ours);
    save(plain, limit);
  }
  const auto pairs = alternate(
      settings.rounds, [&] { save(pool, ours); }, [&] { save(plain, limit); });
  print(fmt::format("pool_{}", replicas), pairs, static_cast<double>(settings.bytes));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("assign + persist into a pool, beside the mapped medium");
  Settings settings;
  unsigned replicas = 1;
  unsigned within = 1;
  add_options(app, settings);
  app.add_option("--replicas", replicas)->check(CLI::Range(1, 4));
  app.add_option("--within", within, "threads that copy one assignment");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(settings, replicas, within);
  } catch (const Error& error) {
    std::cerr << error.what() << ". " << error.remedy() << '\n';
    return 3;
  }
  return 0;
}
