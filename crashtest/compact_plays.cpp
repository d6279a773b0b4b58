#include "compact_plays.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "model.hpp"
#include "tests/cached_disk.hpp"
#include "tests/forwarding_medium.hpp"
#include "tests/memory_pins.hpp"

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
std::string rot_is_left_where_it_is() {
  Behind behind(Placement::whole);
  CachedDisk& disk = *behind.disk;
  const Bytes second(behind.value.begin() + kMiB, behind.value.end());
  const auto there =
      std::search(disk.visible.begin(), disk.visible.end(), second.begin(), second.end());
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

}  // namespace tensorshelf::crash
