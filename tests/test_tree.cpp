// The manifest in memory, where there are so many pages that it takes two levels of directories.
#include <map>
#include <set>

#include "base/copy_hash.hpp"
#include "denied_memory.hpp"
#include "raw_pages.hpp"
#include "store/manifest/flip.hpp"
#include "store/recovery/load_root.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kOneLevel = format::kRootRefs * format::kDirectoryRefs;  // leaves

// A tree of so many cells pages, by attempts that each add some.
Tree tree_of(std::uint64_t leaves, std::uint64_t attempts = 30) {
  Tree tree;
  const std::uint64_t each = (leaves + attempts - 1) / attempts;
  for (std::uint64_t first = 0; first < leaves; first += each) {
    tree = tree.successor(1 + first / each);
    const std::uint64_t end = std::min(leaves, first + each);
    tree.open_cells({first * format::kPageCells, (end - first) * format::kPageCells});
  }
  return tree;
}

// Every page that the attempt made or changed is among those that it writes, and no other. (A new
// directory may be there, of a leaf that was not added: nobody counts it.)
void check_written(const Tree& tree, std::uint64_t attempt) {
  std::set<const PageNode*> mine;
  tree.each_page([&](const PageNodePtr& node) {
    const bool counts = !node->below.empty() || format::page_head(node->image).used_bytes > 0;
    if (node->attempt == attempt && counts) mine.insert(node.get());
  });
  std::set<const PageNode*> written;
  for (unsigned level = 0; level <= tree.levels(); ++level) {
    for (const Tree::Changed& page : tree.changed(level)) written.insert(page.node);
  }
  REQUIRE((mine == written));
}

// Keeps of all that is written the directories, and of the rest its head: it is all zeros.
struct Directories final : Medium {
  std::map<std::uint64_t, format::Page> pages;
  std::map<std::uint64_t, format::PageHead> places;
  std::uint64_t size_bytes = 1 << 30;
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    format::Page page;
    std::copy(bytes.begin(), bytes.end(), within(page).begin());
    places[at] = format::page_head(page);
    if (format::page_head(page).kind == format::PageKind::directory) pages[at] = page;
    return {places.size(), hash_bytes(bytes, seed)};
  }
  void wait(const Ticket&) override {}
  void barrier() override {}
  void store_word(std::uint64_t, std::uint64_t) override {}
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    for (std::size_t done = 0; done < bytes.size(); done += kPageBytes) {
      const format::PageHead head = places.at(at + done);
      const auto directory = pages.find(at + done);
      const format::Page page = directory == pages.end()
                                    ? format::empty_page(head.kind, head.index, head.level)
                                    : directory->second;
      std::copy(page.bytes().begin(), page.bytes().end(), bytes.begin() + done);
    }
  }
  std::span<const std::byte> view(const Extent&) override { return {}; }
  std::uint64_t size() override { return size_bytes; }
  std::uint64_t reserve(std::uint64_t) override { return size_bytes; }
  Promises promises() const override { return {}; }
};

// Of a first version with so many leaves, each of zeros.
struct Manifest {
  Directories medium;
  std::shared_ptr<Heap> heap = std::make_shared<Heap>(medium, Claimed(medium.size_bytes));
  format::Seeds seeds = format::Seeds(format::ShelfId{});
  Homes homes;
  Version version;

  explicit Manifest(std::uint64_t leaves) {
    version.tree = tree_of(leaves, 1);
    version.root.in_flight = 1;
    version.root.word = format::attempt_word(1, 1, 1);
    version.root.capacity_bytes = medium.size_bytes;
  }
  void describe() {
    heap->reserve_pages(format::kCopies * version.tree.page_count());
    const auto described = tensorshelf::describe(version, {medium, seeds, heap, homes});
    CHECK(described.metadata_bytes % kPageBytes == 0);
  }
};

}  // namespace

TEST_CASE("every page that a root leads to was written, however many levels lie between") {
  const std::uint64_t leaves =
      GENERATE(std::uint64_t{3}, format::kDirectoryRefs + 1, kOneLevel + 1);
  CAPTURE(leaves);
  if (kSanitized && leaves > kOneLevel) return;  // hundreds of megabytes, by the same code
  Manifest manifest(leaves);
  Version& version = manifest.version;
  const auto record_of = [](std::uint64_t leaf) {
    return format::ChunkRecord{leaf, format::chunk_state(format::ChunkKind::zeros, 0, 1)};
  };
  const std::uint64_t some[] = {0, 1, leaves / 2, leaves - 2, leaves - 1};
  for (const std::uint64_t leaf : some) {
    version.tree.set_record(leaf * format::kPageCells + leaf % 7, record_of(leaf));
  }
  for (const std::uint64_t leaf : some) {
    REQUIRE((version.tree.record(leaf * format::kPageCells + leaf % 7) == record_of(leaf)));
  }
  REQUIRE((version.tree.record(leaves * format::kPageCells) == format::ChunkRecord{}));
  manifest.describe();
  std::vector<format::PageRef> refs(version.root.pages.begin(), version.root.pages.end());
  for (unsigned level = format::root_levels(version.root);; --level) {
    refs.resize(format::level_pages(version.root.leaf_count, level));
    std::vector<format::PageRef> below;
    for (const format::PageRef& ref : refs) {
      for (const std::uint64_t at : ref.at) REQUIRE(manifest.medium.places.contains(at));
      for (unsigned i = 0; level > 0 && i < format::kDirectoryRefs; ++i) {
        below.push_back(format::directory_ref(manifest.medium.pages.at(ref.at[0]), i));
      }
    }
    if (level == 0) break;
    refs = std::move(below);
  }
  REQUIRE(refs.size() == leaves);
}

TEST_CASE("an attempt has a tag of its own, whichever copy of its home has which word") {
  const unsigned copy = GENERATE(0U, 1U);
  format::Root over = {};
  over.in_flight = 1;
  over.word = format::attempt_word(7, 3, 5);
  Homes homes;
  REQUIRE(homes.next_sequence(over, 4, 9) == 10);
  const auto tag_of = [](std::uint64_t sequence) {
    return format::word_tag(format::attempt_word(8, 4, sequence));
  };
  homes.words[format::home_of(8, 2)][copy] = format::tagged_word(6, tag_of(10));
  CHECK(homes.next_sequence(over, 4, 9) == 11);
  homes.words[format::home_of(8, 2)][1 - copy] = format::tagged_word(6, tag_of(11));
  CHECK(homes.next_sequence(over, 4, 9) == 12);
}

TEST_CASE("a manifest is read as it was written, through whatever levels") {
  const std::uint64_t leaves =
      GENERATE(std::uint64_t{3}, format::kDirectoryRefs + 1, kOneLevel + 1);
  CAPTURE(leaves);
  if (kSanitized && leaves > kOneLevel) return;  // hundreds of megabytes, by the same code
  Manifest manifest(leaves);
  Version& version = manifest.version;
  manifest.describe();
  KnownPages known;
  const LoadedRoot loaded = load_root(manifest.medium, manifest.seeds, version.root, known);
  REQUIRE(loaded.repairs.empty());
  const auto refs_of = [](const Tree& tree) {
    std::vector<format::PageRef> all;
    tree.each_page([&](const PageNodePtr& page) { all.push_back(page->ref); });
    return all;
  };
  REQUIRE((refs_of(loaded.version->tree) == refs_of(version.tree)));
}

TEST_CASE("memory that runs out while a page is added leaves none unwritten") {
  // Before a page for which the root has no room, one that needs a directory, one that needs a
  // level more, and one that needs none of these.
  const std::uint64_t leaves =
      GENERATE(std::uint64_t{1}, std::uint64_t{format::kRootRefs}, format::kDirectoryRefs,
               kOneLevel, kOneLevel + 1, kOneLevel + format::kDirectoryRefs);
  const Denial denial = GENERATE(Denial::once, Denial::from_then_on);
  if (kSanitized && leaves >= kOneLevel) return;  // as above
  const Tree before = tree_of(leaves);
  REQUIRE(before.leaf_count() == leaves);
  constexpr std::uint64_t attempt = 1000;
  std::int64_t nth = 0;
  for (bool met = true; met; ++nth) {
    CAPTURE(leaves, denial == Denial::once, nth);
    Tree tree = before.successor(attempt);
    tree.open_cells({0, 1});  // and with it the directories above
    met = denying(nth, denial, [&] {
      tree.open_cells({leaves * format::kPageCells, format::kPageCells});
    });
    tree.open_cells({(leaves - 1) * format::kPageCells, 1});  // beside it
    check_written(tree, attempt);
  }
  REQUIRE(nth > 4);
}

TEST_CASE("a directory alone behind the goal is moved, and no leaf below it") {
  Tree tree = Tree().successor(1);
  tree.open_cells({0, 200 * format::kPageCells});
  REQUIRE(tree.levels() == 1);
  std::uint64_t at = format::kHeapAt;
  const auto place = [&](bool leaves) {
    tree.each_page([&](const PageNodePtr& node) {
      if (node->below.empty() != leaves) return;
      node->ref.at = {at, at + kPageBytes};
      at += 2 * kPageBytes;
    });
  };
  place(true);
  const std::uint64_t goal = at;
  place(false);
  Tree next = tree.successor(2);
  CHECK(next.open_beyond(goal));
  CHECK(next.changed(1).size() == 2);
  CHECK(next.changed(0).empty());
}
