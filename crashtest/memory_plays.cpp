#include "memory_plays.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "model.hpp"
#include "tests/asleep.hpp"
#include "tests/cached_disk.hpp"
#include "tests/fading_medium.hpp"

namespace tensorshelf::crash {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::array<std::int64_t, 1>;

constexpr std::int64_t kMiB = 1024 * 1024;

std::shared_ptr<testing::CachedDisk> formatted_disk() {
  auto disk = std::make_shared<testing::CachedDisk>();
  testing::CachedMedium medium(disk);
  Shelf::format(medium);
  return disk;
}

// The first place where the value lies; false where there is none.
bool rot(testing::CachedDisk& disk, const Bytes& value) {
  const auto there =
      std::search(disk.visible.begin(), disk.visible.end(), value.begin(), value.begin() + 100);
  if (there == disk.visible.end()) return false;
  there[50] ^= std::byte{1};
  return true;
}

}  // namespace

// A tensor of thousands of chunks comes too late for its name: the one that was faster has its
// cells behind those, and a manifest that reaches as far.
std::string pages_are_there_for_every_commit() {
  auto medium = std::make_unique<testing::FadingMedium>(1ULL << 36);
  Shelf::format(*medium);
  Shelf shelf =
      Shelf::open(std::move(medium), {.mode = Mode::update, .placement = Placement::by_chunk});
  {
    Assignment late = shelf.create_with("x", DType::uint8, Shape{4000 * kMiB});
    testing::Waiter faster([&] { shelf.create("x", DType::uint8, Shape{10}); });
    if (!faster.waits()) return "a tensor is created beside an assignment";
    try {
      late.done();
      return "two tensors have one name";
    } catch (const Error& error) {
      if (error.code() != Errc::name_taken) throw;
    }
  }
  try {
    shelf.persist(1);
  } catch (const std::bad_alloc&) {
    return "there are no pages left for what was created";
  }
  return "";
}

// Both edges of what is assigned are merged with what was there. The mapping of the second is lost,
// and its bytes are read instead.
std::string lost_view_costs_no_other_chunk() {
  auto countdown = std::make_shared<unsigned>(0);
  auto medium = std::make_unique<testing::FadingMedium>(64 * kMiB, countdown);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
  TensorRef tensor = shelf.create("a", DType::uint8, Shape{3 * kMiB});
  Bytes expected = stamped(3 * kMiB, 1);
  tensor.write(expected);
  shelf.persist(1);
  const Bytes part = stamped(2 * kMiB, 2);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB / 2);
  *countdown = 2;
  tensor.write(part, kMiB / 2);
  if (*countdown != 0) return "no view was lost";
  Bytes shown(expected.size());
  tensor.read(shown);
  return shown == expected ? "" : "a chunk has bytes of another one";
}

// Both slots have the second chunk, and in one of them it rots. An update of a part of it, which
// writes no more than a page into the free slot, must not take the rest there for good.
std::string rot_in_a_free_slot_is_not_built_on() {
  for (unsigned rotten = 0; rotten < 2; ++rotten) {
    const auto disk = formatted_disk();
    Shelf shelf = Shelf::open(std::make_unique<testing::CachedMedium>(disk),
                              {.mode = Mode::update, .placement = Placement::whole});
    TensorRef a = shelf.create("a", DType::uint8, Shape{2 * kMiB});
    Bytes expected = stamped(2 * kMiB, 1);
    a.write(expected);
    shelf.persist(1);
    a.write(std::span(expected).first(kMiB));
    shelf.persist(2);
    const auto second = expected.begin() + kMiB;
    auto there = disk->visible.begin();
    for (unsigned found = 0;; ++found, ++there) {
      there = std::search(there, disk->visible.end(), second, second + kPageBytes);
      if (there == disk->visible.end()) return "a chunk that was copied forward is in one slot";
      if (found == rotten) break;
    }
    there[kMiB / 2] ^= std::byte{1};
    const Bytes part(8, std::byte{7});
    a.write(part, kMiB + 100);
    shelf.persist(3);
    std::copy(part.begin(), part.end(), expected.begin() + kMiB + 100);
    Bytes found(expected.size());
    a.read_committed(found);
    if (found != expected) return "rot became a value, with a checksum of its own";
  }
  return {};
}

// What a resize keeps is written anew, with a checksum of its own: damage must not get one.
std::string rot_is_not_resized() {
  for (const Placement placement : {Placement::whole, Placement::by_chunk}) {
    const auto disk = formatted_disk();
    Shelf shelf =
        Shelf::open(std::make_unique<testing::CachedMedium>(disk),
                    {.mode = Mode::update, .verify = Verify::never, .placement = placement});
    const Bytes value = stamped(2 * kMiB, 1);
    shelf.create("a", DType::uint8, Shape{2 * kMiB}).write(value);
    shelf.persist(1);
    if (!rot(*disk, value)) return "what was committed is not there";
    try {
      shelf.resize("a", 3 * kMiB);
      return "rot became a value, with a checksum of its own";
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) throw;
    }
    if (shelf.find("a")->info().size_bytes != 2 * kMiB) return "it is resized all the same";
    shelf.persist(2);
  }
  return {};
}

// A chunk that is kept, because it has these bytes already, is one that is known to be sound.
std::string assigning_the_same_bytes_heals() {
  for (const Placement placement : {Placement::whole, Placement::by_chunk}) {
    const auto disk = formatted_disk();
    Shelf shelf =
        Shelf::open(std::make_unique<testing::CachedMedium>(disk),
                    {.mode = Mode::update, .placement = placement, .keep_unchanged = true});
    TensorRef a = shelf.create("a", DType::uint8, Shape{2 * kMiB});
    const Bytes value = stamped(2 * kMiB, 1);
    a.write(value);
    shelf.persist(1);
    if (!rot(*disk, value)) return "what was committed is not there";
    if (shelf.verify().damage.size() != 1) return "rot is not found";
    a.write(value);
    shelf.persist(2);
    if (!shelf.verify().damage.empty()) return "a damaged chunk was kept for its bytes' sake";
    if (shelf.stats().bytes_unchanged != kMiB) return "the sound chunk was not kept";
  }
  return {};
}

std::string old_bytes_come_back_over_staged_ones() {
  for (const Placement placement : {Placement::whole, Placement::by_chunk}) {
    auto medium = std::make_unique<testing::FadingMedium>(64 * kMiB);
    Shelf::format(*medium);
    Shelf shelf = Shelf::open(
        std::move(medium), {.mode = Mode::update, .placement = placement, .keep_unchanged = true});
    TensorRef a = shelf.create("a", DType::uint8, Shape{2 * kMiB});
    const Bytes value = stamped(2 * kMiB, 1);
    a.write(value);
    shelf.persist(1);
    a.write(stamped(2 * kMiB, 2));
    a.write(value);
    Bytes found(value.size());
    a.read(found);
    if (found != value) return "another value is staged";
    shelf.persist(2);
    a.read_committed(found);
    if (found != value) return "what was staged between was committed";
    if (shelf.stats().bytes_unchanged == 0) return "nothing was kept";
  }
  return {};
}

// Three slots, of which leases hold two: the third is written, overwritten by old bytes, discarded,
// and taken again by an attempt of the number that was discarded.
std::string discarded_label_is_no_versions() {
  auto medium = std::make_unique<testing::FadingMedium>(64 * kMiB);
  Shelf::format(*medium, {.in_flight = 2});
  Shelf shelf =
      Shelf::open(std::move(medium),
                  {.mode = Mode::update, .placement = Placement::whole, .keep_unchanged = true});
  TensorRef a = shelf.create("a", DType::uint8, Shape{2 * kMiB});
  const auto commit_of = [&](std::uint64_t step) {
    a.write(stamped(2 * kMiB, step));
    shelf.persist(step);
  };
  commit_of(1);
  std::optional<Lease> first = a.lease();
  commit_of(2);
  const Lease second = a.lease();
  a.write(stamped(2 * kMiB, 77));
  a.write(stamped(2 * kMiB, 2));
  shelf.discard();
  first.reset();
  commit_of(3);
  Bytes expected = stamped(2 * kMiB, 3);
  const Bytes part = stamped(100, 4);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB);
  a.write(part, kMiB);
  shelf.persist(4);
  Bytes found(expected.size());
  a.read_committed(found);
  return found == expected ? "" : "a version has bytes that were discarded";
}

}  // namespace tensorshelf::crash
