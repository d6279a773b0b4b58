// A shelf in memory that keeps versions, and has several on their way.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "asleep.hpp"
#include "held_medium.hpp"
#include "media/memory/medium.hpp"

namespace tensorshelf::testing {

inline constexpr std::uint64_t kKeptBytes = 2 * kMiB + 1000;

struct Shape {
  unsigned keep;
  unsigned in_flight;
  bool mapped;
  Placement placement;
};

struct Kept {
  Shape shape;
  std::shared_ptr<Medium> medium = make_memory_medium(0, 256 * kMiB);
  std::shared_ptr<Doors> doors = std::make_shared<Doors>();

  explicit Kept(const Shape& s) : shape(s) { Shelf::format(*medium, options()); }
  OpenOptions options(Mode mode = Mode::update) const {
    OpenOptions options;
    options.mode = mode;
    options.keep = shape.keep;
    options.in_flight = shape.in_flight;
    options.placement = shape.placement;
    return options;
  }
  Shelf open(Mode mode = Mode::update) const { return open(options(mode)); }
  Shelf open(const OpenOptions& options) const {
    return Shelf::open(std::make_unique<HeldMedium>(medium, doors, shape.mapped), options);
  }
};

inline Shape any_shape() {
  const unsigned keep = GENERATE(0U, 1U, 3U);
  const unsigned in_flight = kSanitized ? 1 + keep % 2 : GENERATE(1U, 2U);
  const bool mapped = GENERATE(true, false);
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  return {keep, in_flight, mapped, placement};
}

inline std::vector<std::byte> value_at(const Shelf& shelf, std::uint64_t version,
                                       const std::string& name) {
  const RetainedTensor tensor = shelf.at(version).find(name).value();
  std::vector<std::byte> bytes(tensor.info().size_bytes, std::byte{0xAA});
  tensor.read(bytes);
  return bytes;
}

// The power goes while the next version is committed: described, and not flipped. The shelf is
// closed then, and the medium as the next open finds it.
inline void crash_before_flip(const Kept& kept, Shelf& shelf) {
  kept.doors->barrier.shut();
  Waiter commit([&] { shelf.persist(); });
  kept.doors->barrier.await_someone();
  std::vector<std::byte> before(kept.medium->size());
  kept.medium->read(0, before);
  kept.doors->barrier.open();
  commit.join();
  shelf.close();
  for (std::uint64_t at = 0; at < before.size(); at += kPageBytes) {
    kept.medium->wait(
        kept.medium->write(at, std::span<const std::byte>(before).subspan(at, kPageBytes), 0));
  }
}

inline std::vector<std::uint64_t> numbers(const Shelf& shelf) {
  std::vector<std::uint64_t> found;
  for (const VersionInfo& info : shelf.versions()) found.push_back(info.version);
  return found;
}

// Calls it once, in the middle of the first snapshot that has this progress.
inline Progress once(const std::function<void()>& call) {
  return [call, done = false](std::uint64_t, std::uint64_t) mutable {
    if (!std::exchange(done, true)) call();
  };
}

}  // namespace tensorshelf::testing
