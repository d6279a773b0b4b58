#include "snapshot_plays.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "model.hpp"
#include "tests/asleep.hpp"
#include "tests/fading_medium.hpp"

namespace tensorshelf::crash {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::array<std::int64_t, 1>;

constexpr std::int64_t kMiB = 1024 * 1024;

// A file that is gone afterwards.
struct Copy {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("tensorshelf-copy-" + std::to_string(::getpid()) + ".shelf");
  Copy() { std::filesystem::remove(path); }
  ~Copy() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
};

// Two tensors at version 1. A snapshot of it, in the middle of which `others` begins in a thread of
// its own; which must come to wait for it, and to its end after it.
std::string copied_beside(Placement placement, const std::function<void(Shelf&)>& others) {
  auto medium = std::make_unique<testing::FadingMedium>(64 * kMiB);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update, .placement = placement});
  for (const char* name : {"a", "b"}) {
    shelf.create(name, DType::uint8, Shape{2 * kMiB}).write(stamped(2 * kMiB, 1));
  }
  shelf.persist(1);
  const Copy copy;
  std::string problem;
  std::optional<testing::Waiter> writer;
  OpenOptions options;
  options.progress = [&](std::uint64_t, std::uint64_t) {
    if (writer) return;
    writer.emplace([&] {
      try {
        others(shelf);
      } catch (const Error& error) {
        problem = std::string("the shelf does not go on: ") + error.what();
      }
    });
    if (!writer->waits() && problem.empty()) problem = "nobody waits for what is being copied";
  };
  try {
    shelf.snapshot(copy.path, options);
  } catch (const Error& error) {
    if (writer) writer->join();
    return std::string("what is being copied changed: ") + error.what();
  }
  writer->join();
  if (!problem.empty()) return problem;
  const Shelf taken = Shelf::open(copy.path, {.mode = Mode::read});
  for (const char* name : {"a", "b"}) {
    Bytes shown(2 * kMiB);
    taken.find(name).value().read(shown);
    if (shown != stamped(2 * kMiB, 1)) return "the copy has what was written beside it";
  }
  return shelf.version() == 3 ? "" : "the shelf is not at its version";
}

}  // namespace

// The slots of the version before are needed for the one after the next.
std::string version_stays_while_it_is_copied() {
  return copied_beside(Placement::whole, [](Shelf& shelf) {
    for (std::uint64_t step = 2; step <= 3; ++step) {
      shelf.find("b").value().write(stamped(2 * kMiB, step));
      shelf.persist(step);
    }
  });
}

// Each commit changes another chunk, for which there is a slot; but a third version has no pages.
std::string commits_wait_for_what_is_copied() {
  return copied_beside(Placement::by_chunk, [](Shelf& shelf) {
    for (std::uint64_t step = 2; step <= 3; ++step) {
      shelf.find("b").value().write(stamped(kMiB, step), (step - 2) * kMiB);
      shelf.persist(step);
    }
  });
}

}  // namespace tensorshelf::crash
