// A source that changes: while write() copies it (what is stored is then of no one moment, but it
// always fits its checksum, for the bytes are hashed as they are copied), and after write() has
// returned (which is none of the shelf's concern, I9). The first is a race on purpose, so this
// program is not one for ThreadSanitizer.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "scratch.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::size_t kSize = 2 * kMiB + 5000;

// Changes the bytes, all over, for as long as it lives.
class Changer {
 public:
  explicit Changer(std::vector<std::byte>& bytes)
      : thread_([&bytes](const std::stop_token& stop) {
          auto* const words = reinterpret_cast<std::uint64_t*>(bytes.data());
          std::minstd_rand random(7);
          while (!stop.stop_requested()) {
            for (int i = 0; i < 1000; ++i) {
              std::atomic_ref(words[random() % (bytes.size() / 8)]).fetch_add(1);
            }
          }
        }) {}

 private:
  std::jthread thread_;
};

struct Row {
  const char* name;
  std::function<Shelf()> open;
};

void each_medium(const std::function<void(const Row&)>& test) {
  const Bench mapped(64 * kMiB, true);
  const Bench unmapped(64 * kMiB, false);
  const scratch::Directory folder;
  const auto file = folder / "block.shelf";
  const Row rows[] = {
      {"memory, mapped", [&] { return mapped.open(); }},
      {"memory, not mapped", [&] { return unmapped.open(); }},
      {"file", [&] { return Shelf::open(file, {.tier = "block"}); }},
  };
  for (const Row& row : rows) test(row);
  if (!std::filesystem::is_directory("/dev/shm")) return;
  const scratch::Directory memory_folder("/dev/shm");
  const auto tmpfs = memory_folder / "a.shelf";
  test({"tmpfs", [&] { return Shelf::open(tmpfs); }});
}

}  // namespace

TEST_CASE("what is copied from a source that changes fits its checksum") {
  each_medium([](const Row& row) {
    CAPTURE(row.name);
    std::vector<std::byte> source = pattern(kSize, 1);
    std::optional<Shelf> shelf(row.open());
    TensorRef tensor = make(*shelf, "a", kSize);
    {
      const Changer changer(source);
      for (int round = 0; round < 20; ++round) {
        tensor.write(source);
        tensor.write(std::span(source).first(kMiB + 3000), 1000);  // merged at both ends
        shelf->persist();
        REQUIRE(shelf->verify().damage.empty());
      }
    }
    tensor.write(source);
    shelf->persist();
    REQUIRE((value(tensor) == source));  // parenthesised: Catch would print megabytes
    shelf.reset();
    shelf.emplace(row.open());
    REQUIRE(shelf->verify().damage.empty());
  });
}

TEST_CASE("when write() has returned, the source may change") {
  each_medium([](const Row& row) {
    CAPTURE(row.name);
    const std::vector<std::byte> expected = pattern(kSize, 2);
    std::optional<Shelf> shelf(row.open());
    TensorRef tensor = make(*shelf, "a", kSize);
    for (const std::size_t piece : {kSize, std::size_t{100'000}, std::size_t{4000}}) {
      std::vector<std::byte> source;
      for (std::size_t at = 0; at < kSize; at += piece) {
        const auto part = std::span(expected).subspan(at, std::min(piece, kSize - at));
        source.assign(part.begin(), part.end());
        tensor.write(source, at);
        std::fill(source.begin(), source.end(), std::byte{0xAA});
      }
      shelf->persist();
      tensor.write(std::vector<std::byte>(kSize, std::byte{1}));  // the other slot has its own
      shelf.reset();
      shelf.emplace(row.open());
      tensor = shelf->find("a").value();
      REQUIRE((value(tensor) == expected));
    }
  });
}
