// The stamp of a medium beside the first: which version wrote to it last, in two copies.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "catch.hpp"
#include "format/format.hpp"
#include "forwarding_medium.hpp"
#include "media/memory/medium.hpp"
#include "store/io/medium_headers.hpp"
#include "tensorshelf/error.hpp"
#include "tensorshelf/shelf.hpp"
#include "tests/cached_disk.hpp"

using namespace tensorshelf;
using testing::CachedDisk;
using testing::CachedMedium;

namespace {

struct Stamped {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();
  CachedMedium medium{disk};
  format::ShelfId id{};

  // Its copies say those versions.
  explicit Stamped(std::array<std::uint64_t, 2> copies) {
    id[3] = 7;
    medium.reserve(format::kMediumHeapAt);
    write_medium_anew(medium, 0, {id, id, {}}, copies[0]);
    const std::uint64_t at = format::medium_stamp_at(0);
    const std::vector<std::byte> first(
        disk->visible.begin() + static_cast<std::ptrdiff_t>(at),
        disk->visible.begin() + static_cast<std::ptrdiff_t>(at + kPageBytes));
    stamp_medium(medium, 0, id, copies[1]);
    medium.wait(medium.write(at, first, 0));
    medium.barrier();
  }
};

}  // namespace

TEST_CASE("of two stamps that differ the higher one tells") {
  for (const auto copies : {std::array<std::uint64_t, 2>{10, 20}, {20, 10}, {15, 15}}) {
    Stamped stamped(copies);
    const Stamps found = read_stamps(stamped.medium, 0, stamped.id);
    CHECK(found[0] == copies[0]);
    CHECK(found[1] == copies[1]);
    CHECK(stamped_last(stamped.medium, 0, stamped.id) == std::max(copies[0], copies[1]));
  }
}

TEST_CASE("a stamp that cannot be read leaves the other") {
  for (const unsigned lost : {0U, 1U}) {
    Stamped stamped({10, 20});
    stamped.disk->unreadable[format::medium_stamp_at(lost)] = EIO;
    CHECK(stamped_last(stamped.medium, 0, stamped.id) == (lost == 0 ? 20U : 10U));
    stamped.disk->unreadable[format::medium_stamp_at(1 - lost)] = EIO;
    CHECK_FALSE(stamped_last(stamped.medium, 0, stamped.id));
  }
}

TEST_CASE("a header that cannot be read is not a blank one") {
  for (const unsigned lost : {0U, 1U}) {
    Stamped stamped({10, 10});
    stamped.disk->unreadable[format::medium_header_at(lost)] = EIO;
    CHECK_FALSE(read_medium_headers(stamped.medium, 0).blank);
    stamped.disk->unreadable[format::medium_header_at(1 - lost)] = EIO;
    CHECK_FALSE(read_medium_headers(stamped.medium, 0).blank);
  }
}

TEST_CASE("an opening makes both stamps tell the same, durably") {
  for (const unsigned older : {0U, 1U}) {
    const auto first = std::make_shared<CachedDisk>();
    const auto second = std::make_shared<CachedDisk>();
    {
      CachedMedium medium(first);
      Shelf::format(medium);
    }
    const auto open = [&] {
      std::vector<std::unique_ptr<Medium>> also;
      also.push_back(std::make_unique<CachedMedium>(second));
      return Shelf::open(std::make_unique<CachedMedium>(first), std::move(also),
                         {.mode = Mode::update});
    };
    const auto page = [&](const std::vector<std::byte>& bytes, unsigned copy) {
      const auto at = static_cast<std::ptrdiff_t>(format::medium_stamp_at(copy));
      return std::vector<std::byte>(bytes.begin() + at, bytes.begin() + at + kPageBytes);
    };
    std::vector<std::byte> before;
    {
      Shelf shelf = open();
      TensorRef tensor = shelf.create("x", DType::uint8, {{5000}}, std::array{1U});
      for (const std::uint64_t step : {1, 2}) {
        tensor.write(testing::pattern(5000, step));
        shelf.persist(step);
        if (step == 1) before = second->visible;
      }
    }
    const auto whole = page(second->visible, older);
    const auto put = page(before, older);
    CHECK(put != whole);
    std::ranges::copy(
        put, second->visible.begin() + static_cast<std::ptrdiff_t>(format::medium_stamp_at(older)));
    second->become(second->visible);
    open();
    second->lose_power();
    CHECK((page(second->visible, older) == whole));
    CHECK((page(second->visible, 1 - older) == page(before, 1 - older)) == false);
  }
}

namespace {

std::shared_ptr<CachedDisk> formatted() {
  const auto disk = std::make_shared<CachedDisk>();
  CachedMedium medium(disk);
  Shelf::format(medium);
  return disk;
}

Shelf opened(const std::shared_ptr<CachedDisk>& first,
             const std::vector<std::shared_ptr<CachedDisk>>& further) {
  std::vector<std::unique_ptr<Medium>> also;
  for (const auto& disk : further) also.push_back(std::make_unique<CachedMedium>(disk));
  return Shelf::open(std::make_unique<CachedMedium>(first), std::move(also),
                     {.mode = Mode::update});
}

void assign(Shelf& shelf, unsigned medium, std::uint64_t step) {
  const std::string name = std::to_string(medium);
  if (!shelf.find(name)) shelf.create(name, DType::uint8, {{5000}}, std::array{medium});
  shelf.find(name)->write(testing::pattern(5000, step));
}

format::MediumStamp stamp_of(const CachedDisk& disk, unsigned copy) {
  format::MediumStamp stamp = {};
  std::memcpy(&stamp, disk.visible.data() + format::medium_stamp_at(copy), sizeof stamp);
  return stamp;
}

}  // namespace

TEST_CASE("each medium says since when its numbers rise, in both copies") {
  const auto first = formatted();
  const auto second = std::make_shared<CachedDisk>();
  const auto third = std::make_shared<CachedDisk>();
  {
    Shelf shelf = opened(first, {second, third});
    for (const unsigned medium : {1U, 2U}) assign(shelf, medium, 1);
    shelf.persist(1);
  }
  const std::uint64_t before = stamp_of(*third, 0).opening;
  {
    Shelf shelf = opened(first, {second, third});
    for (const unsigned medium : {1U, 2U}) {  // one behind the other
      assign(shelf, medium, 2);
      shelf.persist(2);
    }
  }
  CHECK(stamp_of(*third, 0).opening != before);
  for (const auto& disk : {second, third}) {
    CHECK(stamp_of(*disk, 0).word == stamp_of(*disk, 1).word);
    CHECK(stamp_of(*disk, 0).opening == stamp_of(*disk, 1).opening);
  }
}

TEST_CASE("what has at most headers and stamps, whole or not, may become a medium") {
  std::vector<std::byte> bytes(format::kMediumHeapAt);
  CHECK(format::has_headers_at_most(bytes));
  for (const unsigned copy : {0U, 1U}) {
    const std::uint64_t end = format::medium_stamp_at(copy) + sizeof(format::MediumStamp);
    bytes[end - 1] = std::byte{1};
    CHECK(format::has_headers_at_most(bytes));
    bytes[end] = std::byte{1};
    CHECK_FALSE(format::has_headers_at_most(bytes));
    bytes[end] = {};
  }
}

namespace {

struct Watched final : testing::ForwardingMedium {
  explicit Watched(std::unique_ptr<Medium> medium) : ForwardingMedium(std::move(medium)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    halves.push_back(at >= format::medium_header_at(1));
    return ForwardingMedium::write(at, bytes, seed);
  }
  void barrier() override {
    CHECK(std::ranges::adjacent_find(halves, std::not_equal_to()) == halves.end());
    halves.clear();
    ForwardingMedium::barrier();
  }
  std::vector<bool> halves;  // that are under way
};

}  // namespace

// I6: a crash finds one of them as it was, or as it is to be.
TEST_CASE("the copies of a header are never under way together") {
  Watched medium(std::make_unique<CachedMedium>(std::make_shared<CachedDisk>()));
  medium.reserve(format::kMediumHeapAt);
  const format::ShelfId id{7};
  write_medium_anew(medium, 0, {id, id, {}}, 1);
  CHECK(medium.halves.empty());
}
