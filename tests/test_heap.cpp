// The heap by itself: what it gives is free, apart from all else that it gave, and within the
// medium; also on a shelf that hostile hands have cut into hundreds of thousands of holes.
#include <algorithm>
#include <random>
#include <set>
#include <string>

#include <tensorshelf/error.hpp>

#include "catch.hpp"
#include "denied_memory.hpp"
#include "store/places/heap.hpp"
#include "store/places/space.hpp"

using namespace tensorshelf;

namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

// Grows without bytes behind it: the heap asks for room and nothing else.
class NoBytes final : public Medium {
 public:
  NoBytes(std::uint64_t size, std::uint64_t most) : size_(size), most_(most) {}
  Ticket write(std::uint64_t, std::span<const std::byte>, std::uint64_t) override { return {}; }
  void wait(const Ticket&) override {}
  void barrier() override {}
  void store_word(std::uint64_t, std::uint64_t) override {}
  void read(std::uint64_t, std::span<std::byte>) override {}
  std::span<const std::byte> view(const Extent&) override { return {}; }
  std::uint64_t size() override { return size_; }
  std::uint64_t reserve(std::uint64_t size) override {
    if (size > most_) throw Error(Errc::full, "the medium ends", "Use a larger one.");
    return size_ = std::max(size_, size);
  }
  Promises promises() const override { return {}; }

 private:
  std::uint64_t size_;
  std::uint64_t most_;
};

Claimed claimed(std::uint64_t capacity_bytes, const Claims& claims) {
  Claimed claimed(capacity_bytes);
  claimed.add(claims);
  return claimed;
}

}  // namespace

TEST_CASE("pages for a large manifest, out of holes of two pages each") {
  // 400,000 holes and 100,000 pages: looking at every hole for every page would take many minutes.
  constexpr std::uint64_t holes = 400'000;
  constexpr std::uint64_t pages = 100'000;
  Claims used;
  for (std::uint64_t hole = 0; hole < holes; ++hole) {
    used.slots.push_back({format::kHeapAt + hole * 3 * kPageBytes + 2 * kPageBytes, kPageBytes});
  }
  const std::uint64_t capacity = format::kHeapAt + holes * 3 * kPageBytes;
  NoBytes medium(capacity, capacity);
  Heap heap(medium, claimed(capacity, used));
  const std::uint64_t free = heap.free_bytes();
  heap.reserve_pages(pages);
  REQUIRE(heap.free_bytes() == free - pages * kPageBytes);
  std::set<std::uint64_t> taken;
  for (std::uint64_t page = 0; page < pages; ++page) {
    const std::uint64_t at = heap.take_page(page % 2);
    const std::uint64_t place = (at - format::kHeapAt) / kPageBytes;
    if (place % 3 == 2 || at % kPageBytes != 0 || at >= capacity || !taken.insert(at).second) {
      FAIL("page " << page << " lies at " << at);
    }
  }
}

TEST_CASE("a space is what was released and not taken, whatever the order") {
  const auto seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr std::uint64_t size = 300;
  std::vector<bool> is_free(size, false);
  Space space;
  const auto check = [&](std::uint64_t at, std::uint64_t length, bool before) {
    for (std::uint64_t i = at; i < at + length; ++i) {
      REQUIRE(is_free[i] == before);
      is_free[i] = !before;
    }
  };
  for (int round = 0; round < 5000; ++round) {
    const std::uint64_t length = 1 + random() % 12;
    const std::uint64_t at = random() % (size - length);
    std::optional<std::uint64_t> taken;
    switch (random() % 6) {
      case 0:
        taken = space.take(length);
        break;
      case 1:
        taken = space.take_low(length);
        break;
      case 2:
        taken = space.take_high(length);
        break;
      case 3: {
        const bool all = std::all_of(is_free.begin() + static_cast<std::ptrdiff_t>(at),
                                     is_free.begin() + static_cast<std::ptrdiff_t>(at + length),
                                     [](bool one) { return one; });
        REQUIRE(space.take_at(at, length) == all);
        if (all) taken = at;
        break;
      }
      case 4:
        if (space.total() > 0) {
          const Extent lowest = space.take_lowest(length);
          REQUIRE(lowest.size_bytes >= 1);
          REQUIRE(lowest.size_bytes <= length);
          check(lowest.at, lowest.size_bytes, true);
        }
        break;
      default:
        if (std::none_of(is_free.begin() + static_cast<std::ptrdiff_t>(at),
                         is_free.begin() + static_cast<std::ptrdiff_t>(at + length),
                         [](bool one) { return one; })) {
          space.release(at, length);
          check(at, length, false);
        }
    }
    if (taken) check(*taken, length, true);
    const auto free = static_cast<std::uint64_t>(std::count(is_free.begin(), is_free.end(), true));
    REQUIRE(space.total() == free);
    std::uint64_t run = 0;
    std::uint64_t largest = 0;
    for (const bool one : is_free) largest = std::max(largest, run = one ? run + 1 : 0);
    REQUIRE(space.largest() == largest);
  }
}

TEST_CASE("slots that do not fit take nothing, and what was given back is given again") {
  NoBytes medium(format::kHeapAt, format::kHeapAt + 10 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  heap.reserve_pages(16);
  const auto first = heap.take_slots({"a", 3 * kMiB, 2});
  const std::uint64_t free = heap.free_bytes();
  for (const std::uint64_t size : {5 * kMiB, std::uint64_t{1} << 40, std::uint64_t{1} << 61}) {
    try {
      heap.take_slots({"b", size, 2});
      FAIL("there is no room");
    } catch (const Error& error) {
      REQUIRE(error.code() == Errc::full);
      REQUIRE_FALSE(error.remedy().empty());
    }
    REQUIRE(heap.free_bytes() == free);
  }
  for (const std::uint64_t at : first) heap.release(Extent{at, 3 * kMiB});
  heap.take_slots({"b", 3 * kMiB, 2});
}

TEST_CASE("slots that together are beyond all numbers take nothing") {
  const auto size_bits = GENERATE(60u, 62u);
  const unsigned slot_count = size_bits == 60 ? GENERATE(8u, 14u, 16u) : GENERATE(2u, 4u, 5u, 16u);
  const std::uint64_t most = GENERATE(format::kHeapAt + 16 * kMiB, ~std::uint64_t{0});
  CAPTURE(size_bits, slot_count, most);
  NoBytes medium(format::kHeapAt, most);
  Heap heap(medium, Claimed(format::kHeapAt));
  heap.take_slots({"a", 3 * kMiB, 2});
  const std::uint64_t free = heap.free_bytes();
  const std::uint64_t capacity = heap.capacity_bytes();
  try {
    heap.take_slots({"b", std::uint64_t{1} << size_bits, slot_count});
    FAIL("there is no room");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::full);
    const auto needed = "'b' needs " + std::to_string(slot_count) + " x ";
    REQUIRE(std::string(error.what()).starts_with(needed));
    REQUIRE_FALSE(error.remedy().empty());
  }
  REQUIRE(heap.free_bytes() == free);
  REQUIRE(heap.capacity_bytes() == capacity);
  heap.take_slots({"c", 3 * kMiB, 2});
}

TEST_CASE("a tensor without bytes takes no place, and sets none aside") {
  NoBytes medium(format::kHeapAt, format::kHeapAt + 10 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  using Slots = decltype(heap.take_slots({"a", 0, 3}));
  REQUIRE((heap.take_slots({"a", 0, 3}) == Slots(3)));
  REQUIRE(heap.capacity_bytes() == format::kHeapAt);
  heap.take_slots({"b", 100, 2});
  const std::uint64_t free = heap.free_bytes();
  REQUIRE((heap.take_slots({"c", 0, format::kMaxSlots}) == Slots(format::kMaxSlots)));
  REQUIRE(heap.free_bytes() == free);
}

TEST_CASE("pages that are in use already are not set aside once more") {
  const std::uint64_t in_use = GENERATE(as<std::uint64_t>{}, 1, 7, 8);
  CAPTURE(in_use);
  Claims claims;
  for (std::uint64_t page = 0; page < in_use; ++page) {
    claims.pages.push_back({format::kHeapAt + page * kPageBytes, kPageBytes});
  }
  const std::uint64_t capacity = format::kHeapAt + 100 * kPageBytes;
  NoBytes medium(capacity, capacity);
  Heap heap(medium, claimed(capacity, claims));
  REQUIRE(heap.free_bytes() == (100 - in_use) * kPageBytes);
  heap.reserve_pages(8);
  REQUIRE(heap.free_bytes() == 92 * kPageBytes);
  heap.release_page(format::kHeapAt);  // into the pool
  heap.reserve_pages(8);
  REQUIRE(heap.free_bytes() == 92 * kPageBytes);
}

TEST_CASE("pages out of all that is left, where the medium grows no more") {
  const std::uint64_t holes = GENERATE(as<std::uint64_t>{}, 1, 2, 5);
  CAPTURE(holes);
  Claims used;
  for (std::uint64_t hole = 0; hole < holes; ++hole) {  // of one page each
    used.slots.push_back({format::kHeapAt + (2 * hole + 1) * kPageBytes, kPageBytes});
  }
  const std::uint64_t capacity = format::kHeapAt + 2 * holes * kPageBytes;
  NoBytes medium(capacity, capacity);
  Heap heap(medium, claimed(capacity, used));
  heap.reserve_pages(holes);
  REQUIRE(heap.free_bytes() == 0);
  for (std::uint64_t page = 0; page < holes; ++page) {
    REQUIRE(heap.take_page(0) == format::kHeapAt + 2 * page * kPageBytes);
  }
  try {
    heap.reserve_pages(holes + 1);
    FAIL("there is no room");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::full);
  }
}

TEST_CASE("a page that was not set aside is none") {
  NoBytes medium(format::kHeapAt, format::kHeapAt + 10 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  heap.reserve_pages(3);
  std::set<std::uint64_t> taken;
  for (unsigned page = 0; page < 3; ++page) taken.insert(heap.take_page(page % 2));
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    REQUIRE_THROWS_AS(heap.take_page(copy), std::bad_alloc);
  }
  heap.reserve_pages(3);  // which are all in use: none is missing
  REQUIRE_THROWS_AS(heap.take_page(0), std::bad_alloc);
  heap.release_page(*taken.begin());
  heap.reserve_pages(3);
  REQUIRE(heap.take_page(0) == *taken.begin());
  REQUIRE_THROWS_AS(heap.take_page(1), std::bad_alloc);
}

TEST_CASE("more chunk records than the format has are refused") {
  NoBytes medium(format::kHeapAt, format::kHeapAt + 10 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  constexpr std::uint64_t most = format::kMaxLeaves * format::kPageCells;
  try {
    heap.take_cells(most + 1);
    FAIL("there are no more");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::full);
  }
  REQUIRE(heap.take_cells(most).first == 0);
}

TEST_CASE("a heap that is filled to its end and emptied again has all that it had") {
  const unsigned slot_count = GENERATE(2u, 3u, format::kMaxSlots);
  const std::uint64_t size = GENERATE(std::uint64_t{100}, 20'000, 30'000, 256 * 1024, 300'000);
  CAPTURE(slot_count, size);
  NoBytes medium(format::kHeapAt, format::kHeapAt + 10 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  std::vector<std::size_t> fitted;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::uint64_t> taken;
    try {
      for (;;) {
        const auto slots = heap.take_slots({"a", size, slot_count});
        taken.insert(taken.end(), slots.begin(), slots.end());
      }
    } catch (const Error& error) {
      REQUIRE(error.code() == Errc::full);
    }
    fitted.push_back(taken.size());
    const std::uint64_t slot = round_up(size, kPageBytes);
    REQUIRE(heap.free_bytes() == heap.capacity_bytes() - format::kHeapAt - taken.size() * slot);
    for (const std::uint64_t at : taken) heap.release(Extent{at, size});
    REQUIRE(heap.free_bytes() == heap.capacity_bytes() - format::kHeapAt);
  }
  REQUIRE(fitted[1] >= fitted[0]);  // while it grew, some lay too far apart to be one slot
  REQUIRE(fitted == std::vector<std::size_t>{fitted[0], fitted[1], fitted[1], fitted[1]});
}

TEST_CASE("what fits without the slack of a growth fits") {
  const std::uint64_t spare = GENERATE(std::uint64_t{0}, kPageBytes, kMiB);
  CAPTURE(spare);
  NoBytes medium(format::kHeapAt, format::kHeapAt + 10 * kMiB + spare);
  Heap heap(medium, Claimed(format::kHeapAt));
  const auto slots = heap.take_slots({"a", 5 * kMiB, 2});
  for (const std::uint64_t at : slots) {
    REQUIRE(at >= format::kHeapAt);
    REQUIRE(at + 5 * kMiB <= heap.capacity_bytes());
  }
  try {
    heap.take_slots({"b", kMiB, 2});
    FAIL("there is no room");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::full);
  }
}

TEST_CASE("where no free place lies lower, none is taken") {
  NoBytes medium(format::kHeapAt, format::kHeapAt + 16 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  const auto slots = heap.take_slots({"a", kMiB, 2});
  heap.take_slots({"b", kMiB, 2});
  heap.release(Extent{slots[1], kMiB});
  const std::uint64_t free = heap.free_bytes();
  CHECK(heap.take_below(slots[1], kMiB) == std::nullopt);
  CHECK(heap.free_bytes() == free);
  CHECK(heap.take_below(slots[1] + 1, kMiB) == slots[1]);
}

TEST_CASE("room in many holes is no room for slots in one piece") {
  NoBytes medium(format::kHeapAt, format::kHeapAt + 64 * kMiB);
  Heap heap(medium, Claimed(format::kHeapAt));
  std::vector<std::uint64_t> slots;
  for (int i = 0; i < 8; ++i) {
    for (const std::uint64_t at : heap.take_slots({"a", kMiB, 2})) slots.push_back(at);
  }
  std::sort(slots.begin(), slots.end());
  for (std::size_t i = 0; i < slots.size(); i += 2) heap.release(Extent{slots[i], kMiB});
  const std::uint64_t before = heap.capacity_bytes();
  heap.make_room(0, 2 * kMiB, 2);
  CHECK(heap.capacity_bytes() > before);
  const std::uint64_t grown = heap.capacity_bytes();
  heap.take_slots({"b", 2 * kMiB, 2});
  CHECK(heap.capacity_bytes() == grown);
}

TEST_CASE("slots whose growth is given up take nothing, whatever was thrown") {
  struct GivenUp {};
  constexpr std::uint64_t hole = 4 << 20;
  NoBytes medium(format::kHeapAt + hole, format::kHeapAt + 16 * hole);
  Heap heap(medium, Claimed(format::kHeapAt + hole), [] { throw GivenUp{}; });
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_AS(heap.take_slots({"w", hole, 2}), GivenUp);
    CHECK(heap.free_bytes() == hole);
  }
}

TEST_CASE("where memory runs out while pages are set aside, nothing that was free is lost") {
  for (std::int64_t nth = 0;; nth += 500) {
    CAPTURE(nth);
    NoBytes medium(64 * kMiB, 64 * kMiB);
    Claims claims;  // every other page: the pool is made of holes
    for (std::uint64_t at = 0; at < 60 * kMiB; at += 2 * kPageBytes) {
      claims.pages.push_back({format::kHeapAt + at, kPageBytes});
    }
    Heap heap(medium, claimed(64 * kMiB, claims), [] {});
    const std::uint64_t free = heap.free_bytes();
    const std::uint64_t wanted = claims.pages.size() + 4500;
    const bool denied =
        testing::denying(nth, testing::Denial::once, [&] { heap.reserve_pages(wanted); });
    if (!denied) {
      CHECK(nth > 4000);  // each hole is one
      break;
    }
    heap.reserve_pages(wanted);
    std::uint64_t pages = 0;
    try {
      while (true) heap.take_page(pages % 2), ++pages;
    } catch (const std::bad_alloc&) {  // all that was set aside
    }
    CHECK(pages >= 4500);
    CHECK(heap.free_bytes() + pages * kPageBytes == free);
  }
}
