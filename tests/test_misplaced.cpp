// Bytes that are whole and lie where others belong: a misdirected write, a page of another place, a
// chunk of another tensor. Their checksum is moved along with them, so that only its seed can tell.
// And the copies of a page, which must not be where one mishap takes both.
#include <algorithm>
#include <set>

#include "forgery.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

format::ShelfId shelf_id(std::uint8_t first) { return {first}; }

// Two tensors of two whole chunks each, at version 3.
struct Shelved : Forgery {
  Shelved() {
    Shelf shelf = bench.open();
    make(shelf, "x", 2 * kMiB).write(pattern(2 * kMiB, 5));
    make(shelf, "y", 2 * kMiB).write(pattern(2 * kMiB, 6));
    shelf.persist(3);
  }
};

struct ChunkName {
  const char* tensor;
  unsigned index;
};

// Swaps the bytes of two chunks and their checksums.
void swap_chunks(const Shelved& shelved, const ChunkName& one, const ChunkName& other) {
  const auto first = shelved.layout(one.tensor);
  const auto second = shelved.layout(other.tensor);
  Medium& medium = *shelved.bench.medium;
  shelved.edit_leaf(format::PageKind::cells, [&](Page& page) {
    const auto place = [&](const format::TensorLayout& layout, unsigned index) {
      const auto record = format::cell(page, static_cast<unsigned>(layout.first_cell + index));
      return layout.slot_at[format::chunk_slot(record)] + index * kChunkBytes;
    };
    const std::uint64_t at[] = {place(first, one.index), place(second, other.index)};
    std::vector<std::byte> bytes[] = {std::vector<std::byte>(kChunkBytes),
                                      std::vector<std::byte>(kChunkBytes)};
    for (int i = 0; i < 2; ++i) medium.read(at[i], bytes[i]);
    for (int i = 0; i < 2; ++i) medium.wait(medium.write(at[i], bytes[1 - i], 0));
    const auto cell = [](const format::TensorLayout& layout, unsigned index) {
      return static_cast<unsigned>(layout.first_cell + index);
    };
    auto here = format::cell(page, cell(first, one.index));
    auto there = format::cell(page, cell(second, other.index));
    std::swap(here.checksum, there.checksum);
    format::set_cell(page, cell(first, one.index), here);
    format::set_cell(page, cell(second, other.index), there);
  });
}

}  // namespace

TEST_CASE("seeds of chunks and pages differ by shelf, tensor, index and place") {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  for (const auto& shelf : {shelf_id(1), shelf_id(2)}) {
    const format::Seeds seeds(shelf);
    for (std::uint64_t id = 0; id < 200; ++id) {
      for (std::uint64_t index = 0; index < 200; ++index, ++count) {
        seen.insert(seeds.chunk(id, index));
      }
      seen.insert(seeds.page(format::kHeapAt + id * kPageBytes));
      ++count;
    }
  }
  REQUIRE(seen.size() == count);
}

TEST_CASE("a chunk in the place of another does not verify") {
  const std::pair<ChunkName, ChunkName> rows[] = {
      {{"x", 0}, {"x", 1}},  // of the same tensor: the index tells
      {{"x", 0}, {"y", 0}},  // of the same index: the tensor's id does
      {{"x", 0}, {"y", 1}},
  };
  for (const auto& [one, other] : rows) {
    CAPTURE(one.tensor, one.index, other.tensor, other.index);
    const Shelved shelved;
    REQUIRE(shelved.bench.open(Mode::read).verify().damage.empty());
    swap_chunks(shelved, one, other);
    const auto damage = shelved.bench.open(Mode::read).verify().damage;
    REQUIRE(damage.size() == 2);
    REQUIRE(damage[0].tensor == one.tensor);
    REQUIRE(damage[0].chunk == one.index);
    REQUIRE(damage[1].tensor == other.tensor);
    REQUIRE(damage[1].chunk == other.index);
    swap_chunks(shelved, one, other);  // the forger's hand leaves nothing else behind
    REQUIRE(shelved.bench.open(Mode::read).verify().damage.empty());
  }
}

TEST_CASE("a manifest page in the place of another does not verify") {
  const bool copies = GENERATE(true, false);  // the copies of one page, or two pages
  const std::uint32_t format_version = GENERATE(format::kOldestFormat, format::kFormatVersion);
  CAPTURE(copies, format_version);
  const Forgery forgery(0, Placement::whole, format_version);
  Medium& medium = *forgery.bench.medium;
  const auto leaves = forgery.leaves();
  REQUIRE(leaves.size() >= 2);
  if (copies) {
    forgery.set_leaf(0, {{leaves[0].at[1], leaves[0].at[0]}, leaves[0].checksum});
  } else {
    const Page pages[] = {page_at(medium, leaves[0].at[0]), page_at(medium, leaves[1].at[0])};
    for (unsigned i = 0; i < 2; ++i) {
      const auto& place = leaves[1 - i].at;
      for (const std::uint64_t at : place) write_page(medium, at, pages[i]);
      forgery.set_leaf(i, {place, leaves[i].checksum});
    }
  }
  REQUIRE(forgery.error_of_opening(Mode::read) == Errc::corrupt);
  REQUIRE(forgery.error_of_opening(Mode::update) == Errc::corrupt);
}

TEST_CASE("header pages verify in their own place, and in their own shelf, alone") {
  const format::Seeds seeds(shelf_id(1));
  const format::Seeds others(shelf_id(2));
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    CAPTURE(copy);
    const auto superblock =
        raw(format::encode_superblock(format::new_superblock(shelf_id(1), kSlots), copy));
    CHECK(format::read_superblock(superblock, copy).state == format::SuperblockState::good);
    CHECK(format::read_superblock(superblock, 1 - copy).state == format::SuperblockState::damaged);

    const auto incarnation = raw(format::encode_incarnation(7, seeds, copy));
    CHECK(format::read_incarnation(incarnation, seeds, copy) == 7U);
    CHECK_FALSE(format::read_incarnation(incarnation, seeds, 1 - copy));
    CHECK_FALSE(format::read_incarnation(incarnation, others, copy));

    Root root{};
    root.incarnation = 7;
    root.in_flight = 1;
    root.floor = 4;
    root.word = format::attempt_word(4, root.incarnation, root.sequence);
    root.capacity_bytes = format::kHeapAt;
    format::seal_root(root, seeds, copy);
    const auto page = raw(format::as_page(root));
    CHECK(format::read_root(page, seeds, {0, copy, kSlots}));
    CHECK_FALSE(format::read_root(page, seeds, {0, 1 - copy, kSlots}));
    CHECK_FALSE(format::read_root(page, seeds, {1, copy, kSlots}));
    CHECK_FALSE(format::read_root(page, others, {0, copy, kSlots}));
  }
}

TEST_CASE("the two copies of a page lie far apart, also after many commits") {
  const std::uint32_t format_version = GENERATE(format::kOldestFormat, format::kFormatVersion);
  const Forgery forgery(0, Placement::whole, format_version);  // or one scratch would take both
  Shelf shelf = forgery.bench.open();
  std::vector<TensorRef> tensors;
  for (int i = 0; i < 600; ++i) tensors.push_back(make(shelf, "t" + std::to_string(i), 64));
  for (unsigned round = 0; round < 40; ++round) {
    for (std::size_t i = 0; i < tensors.size(); i += 1 + round * 37 % 101) {
      tensors[i].write(pattern(64, round));
    }
    shelf.persist(round);
    const Root root = forgery.root();
    std::vector<PageRef> pages = forgery.leaves();
    const std::uint64_t top = format::level_pages(root.leaf_count, format::root_levels(root));
    pages.insert(pages.end(), &root.pages[0], &root.pages[top]);
    REQUIRE(pages.size() > 10);
    for (const auto& [at, checksum] : pages) {
      CAPTURE(round, at[0], at[1]);
      REQUIRE(std::max(at[0], at[1]) - std::min(at[0], at[1]) >= kMiB);
    }
  }
}
