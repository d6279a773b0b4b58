#include "compact_plays.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "format/format.hpp"
#include "model.hpp"
#include "tests/cached_disk.hpp"
#include "tests/forwarding_medium.hpp"
#include "tests/memory_pins.hpp"
#include "tests/tokens.hpp"

namespace tensorshelf::crash {
namespace {

using testing::CachedDisk;
using testing::CachedMedium;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kSize = kMiB + 5000;  // two chunks
constexpr std::chrono::duration<double> kNoPatience(0);

// A shelf whose tensor "a" lies behind the room of one that is gone.
struct Behind {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
  Bytes value = stamped(kSize, 1);
  Shelf shelf;

  explicit Behind(Placement placement) : shelf(format(placement)) {
    shelf.create("gone", DType::uint8, std::array{4 * kMiB});
    shelf.create("a", DType::uint8, std::array{kSize}).write(value);
    shelf.persist(1);
    shelf.erase("gone");
    for (int i = 0; i < 3; ++i) shelf.persist();
  }
  Shelf format(Placement placement) const {
    {
      CachedMedium medium(disk);
      Shelf::format(medium, {.keep = 1});
    }
    return Shelf::open(std::make_unique<CachedMedium>(disk),
                       {.mode = Mode::update, .placement = placement});
  }
  // The attempt that is open has moved and carried what it could, and is committed by no one yet.
  Transaction moved() {
    Transaction transaction = shelf.transaction();
    try {
      shelf.compact(kNoPatience);
    } catch (const Error& error) {
      if (error.code() == Errc::transaction) return transaction;
      throw;
    }
    throw std::runtime_error("compact() found nothing to do");
  }
  bool shows(const Bytes& expected) const {
    Bytes bytes(expected.size());
    shelf.find("a").value().read(bytes);
    return bytes == expected;
  }
};

constexpr Placement kPlacements[] = {Placement::whole, Placement::by_chunk};

}  // namespace

std::string what_is_carried_is_no_change() {
  for (const Placement placement : kPlacements) {
    Behind behind(placement);
    Shelf& shelf = behind.shelf;
    Transaction transaction = behind.moved();
    if (shelf.has_uncommitted()) return "what was carried counts as changed";
    TensorRef a = shelf.find("a").value();
    {
      Assignment undone = a.assign();
      undone.write(stamped(64, 2), 8);
      undone.write(stamped(64, 3), 0);
    }
    if (shelf.has_uncommitted()) return "an assignment that was undone counts as changed";
    try {
      if (!behind.shows(behind.value)) return "an assignment that was undone is read";
    } catch (const Error& error) {
      if (error.code() == Errc::spoiled) return "undoing spoils what was merely carried";
      throw;
    }
    const std::uint64_t version = transaction.commit().version;
    if (!behind.shows(behind.value)) return "what was carried has another value";
    if (!shelf.diff(version - 1, version).changed.empty()) {
      return "what lies elsewhere passes for changed";
    }
  }
  return {};
}

std::string what_is_assigned_over_it_is_one() {
  for (const Placement placement : kPlacements) {
    Behind behind(placement);
    Transaction transaction = behind.moved();
    const Bytes now = stamped(kSize, 5);
    behind.shelf.find("a")->write(now);
    if (!behind.shelf.has_uncommitted()) return "what is assigned over what was carried is lost";
    transaction.commit();
    if (!behind.shows(now)) return "what was assigned is not committed";
  }
  return {};
}

// Of a tensor that is placed whole all would have to be copied.
std::string rot_is_left(std::ptrdiff_t chunk) {
  Behind behind(Placement::whole);
  CachedDisk& disk = *behind.disk;
  const Bytes rots(behind.value.begin() + chunk * kMiB, behind.value.begin() + chunk * kMiB + 64);
  const auto there =
      std::search(disk.visible.begin(), disk.visible.end(), rots.begin(), rots.end());
  if (there == disk.visible.end()) return "the value is not where it is looked for";
  there[50] ^= std::byte{4};
  disk.durable[static_cast<std::size_t>(there - disk.visible.begin()) + 50] ^= std::byte{4};
  try {
    const CompactReport report = behind.shelf.compact(kNoPatience);
    if (report.damaged != std::vector<std::string>{"a"}) return "what is damaged is not told";
    behind.shelf.create("b", DType::uint8, std::array<std::int64_t, 1>{100});
    behind.shelf.persist();
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    return "what cannot be carried keeps others from committing";
  }
  behind.shelf.find("a")->write(behind.value);
  behind.shelf.persist();
  behind.shelf.compact(kNoPatience);
  return behind.shows(behind.value) ? "" : "what is assigned anew has another value";
}

// The first chunk, behind which others are whole, or the last.
std::string rot_is_left_where_it_is() {
  const std::string problem = rot_is_left(0);
  return problem.empty() ? rot_is_left(1) : problem;
}

// Of a version that is kept, which has it in its places of before.
std::string lease_holds_what_was_moved_and_erased() {
  const auto memory = testing::memory_of(64 * kMiB);
  Shelf::format(*memory, {.in_flight = 2});
  Shelf shelf =
      Shelf::open(std::make_unique<testing::ForwardingMedium>(memory), {.mode = Mode::update});
  const Bytes value = stamped(30'000, 1);
  shelf.create("gone", DType::uint8, std::array{kMiB});
  shelf.create("a", DType::uint8, std::array<std::int64_t, 1>{30'000}).write(value);
  shelf.persist();
  shelf.erase("gone");
  const std::uint64_t version = shelf.persist().version;
  std::optional<VersionPin> pin = shelf.pin();
  if (shelf.compact().bytes_moved == 0) return "compact() found nothing to do";
  shelf.erase("a");
  for (int i = 0; i < 4; ++i) shelf.persist();
  const Lease lease = shelf.at(version).find("a")->lease();
  pin.reset();
  for (int i = 0; i < 4; ++i) shelf.persist();
  for (const std::string name : {"b", "c", "d", "e"}) {
    shelf.create(name, DType::uint8, std::array<std::int64_t, 1>{30'000}).write(stamped(30'000, 2));
  }
  shelf.persist();
  if (!lease.in_place()) return "the lease shows a copy";
  return std::ranges::equal(lease.bytes(), value) ? "" : "what a lease shows has changed";
}

// Of the newer of two versions that are held, which have it in places of their own each.
std::string lease_holds_the_places_of_its_version() {
  const auto memory = testing::memory_of(512 * kMiB);
  Shelf::format(*memory, {.in_flight = 5});
  Shelf shelf =
      Shelf::open(std::make_unique<testing::ForwardingMedium>(memory), {.mode = Mode::update});
  constexpr std::int64_t kBytes = 300'000;
  const auto make = [&](const std::string& name, std::int64_t size, std::uint64_t serial) {
    if (!shelf.find(name)) shelf.create(name, DType::uint8, std::array{size});
    shelf.find(name)->write(stamped(size, serial));
  };
  const auto idle = [&](int commits) {
    for (int i = 0; i < commits; ++i) shelf.persist();
  };
  make("gone", 8 * kBytes, 1);
  make("a", kBytes, 1);
  shelf.persist();
  shelf.erase("gone");
  idle(8);
  const VersionPin older = shelf.pin();
  shelf.create("front", DType::uint8, std::array{4 * kBytes});
  idle(2);
  shelf.compact(std::chrono::milliseconds(50));
  make("a", kBytes, 2);
  shelf.persist();
  shelf.erase("front");
  const std::uint64_t version = shelf.persist().version;
  std::optional<VersionPin> newer = shelf.pin();
  idle(3);
  if (shelf.compact(std::chrono::milliseconds(50)).bytes_moved == 0) return "nothing was moved";
  shelf.erase("a");
  idle(6);
  const Lease lease = shelf.at(version).find("a")->lease();
  newer.reset();
  idle(3);
  std::vector<std::unique_ptr<VersionPin>> pins;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 40; ++i) make("n" + std::to_string(i), kBytes, 3);
    shelf.persist();
    pins.push_back(std::make_unique<VersionPin>(shelf.pin()));
  }
  return std::ranges::equal(lease.bytes(), stamped(kBytes, 2))
             ? ""
             : "what a lease shows has changed, of a version with places of its own";
}

std::string removed_medium_is_not_named_again() {
  const std::array media = {testing::memory_of(64 * kMiB), testing::memory_of(64 * kMiB)};
  Shelf::format(*media[0]);
  const auto open = [&](bool both) {
    std::vector<std::unique_ptr<Medium>> also;
    if (both) also.push_back(std::make_unique<testing::ForwardingMedium>(media[1]));
    return Shelf::open(std::make_unique<testing::ForwardingMedium>(media[0]), std::move(also),
                       {.mode = Mode::update});
  };
  {
    Shelf shelf = open(true);
    shelf.create("a", DType::uint8, std::array{kSize}, std::array{1U}).write(stamped(kSize, 1));
    shelf.persist();
    shelf.remove_medium(1);
    for (int i = 0; i < 6; ++i) shelf.persist();
    shelf.compact(std::chrono::milliseconds(50));
    for (int i = 0; i < 6; ++i) shelf.persist();
  }
  try {
    open(false);
    return "";
  } catch (const Error& error) {
    return std::string("what was removed is needed: ") + error.what();
  }
}

// Four are on their way when the end is cut off, and state the room that was there.
std::string no_root_reaches_beyond_the_end() {
  const auto memory = testing::memory_of(64 * kMiB);
  Shelf::format(*memory, {.in_flight = 4});
  testing::Tokens barriers;
  std::atomic<int> looks = 0;  // of who waits for somebody to commit
  OpenOptions options{.mode = Mode::update};
  options.while_waiting = [&] { ++looks; };
  Shelf shelf = Shelf::open(std::make_unique<testing::CountedMedium>(
                                memory, barriers, testing::CountedMedium::What::barriers),
                            options);
  shelf.create("a", DType::uint8, std::array{kSize}).write(stamped(kSize, 1));
  shelf.create("b", DType::uint8, std::array{kSize});
  shelf.persist();
  shelf.compact();
  shelf.reserve(4 * kMiB);
  for (int i = 0; i < 20; ++i) shelf.persist();
  const std::uint64_t version = shelf.version();
  barriers.set(0);
  for (std::uint64_t i = 2; i < 6; ++i) {
    shelf.find("a")->write(stamped(kSize, i));
    shelf.persist_async();
  }
  shelf.find("b")->write(stamped(kSize, 7));
  const std::uint64_t free = shelf.info().free_bytes;
  std::thread compacts([&] { shelf.compact(); });
  while (shelf.info().free_bytes == free) std::this_thread::yield();  // until the end is cut off
  barriers.set(2);  // the first of them is published
  while (shelf.version() == version) std::this_thread::yield();
  for (const int seen = looks; looks < seen + 3;) std::this_thread::yield();  // and it knows
  barriers.let_all();
  while (shelf.version() < version + 4) std::this_thread::yield();
  shelf.persist();
  compacts.join();
  for (unsigned home = 0; home < 6; ++home) {
    format::Root root;
    memory->read(format::root_at(home, 0), std::as_writable_bytes(std::span(&root, 1)));
    if (root.capacity_bytes > memory->size()) return "a root states more room than there is";
  }
  return "";
}

}  // namespace tensorshelf::crash
