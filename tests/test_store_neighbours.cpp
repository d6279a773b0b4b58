// What lies beside the newest version: those that are retained, and a prepared attempt.
#include <algorithm>

#include "base/copy_hash.hpp"
#include "format/format.hpp"
#include "kept_versions.hpp"
#include "raw_pages.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// A root with one leaf of records and one of cells, and what its records say.
struct Manifest {
  Medium& medium;
  format::Seeds seeds;
  format::Root root = {};
  unsigned leaf = 0;  // that of the records
  std::vector<format::TensorLayout> layouts = {};

  Manifest(Medium& there, std::uint64_t version, unsigned homes)
      : medium(there),
        seeds(format::read_superblock(raw_at(there, 0), 0).superblock.value().shelf_id),
        root(format::read_described(
                 raw_at(there, format::root_at(format::home_of(version, homes), 0)), version, seeds,
                 {format::home_of(version, homes), 0, homes})
                 .value()) {
    while (format::page_head(page_at(records().at[0])).kind != format::PageKind::records) ++leaf;
    std::string reason;
    REQUIRE(format::read_records(page_at(records().at[0]), homes, layouts, reason));
  }
  format::Page page_at(std::uint64_t at) const { return testing::page_at(medium, at); }
  const format::PageRef& records() const { return root.pages[leaf]; }
  format::PageRef put(format::PageRef ref, const format::Page& page) const {
    for (const std::uint64_t at : ref.at) write_page(medium, at, page);
    ref.checksum = hash_bytes(page.bytes(), seeds.page(ref.at[0]));
    return ref;
  }
  // With what the layouts say by now, as its writer would have sealed it.
  void write() {
    format::Page page = format::empty_page(format::PageKind::records, 0);
    for (const auto& layout : layouts) REQUIRE(format::append_record(page, layout));
    root.pages[leaf] = put(records(), page);
    for (unsigned copy = 0; copy < format::kCopies; ++copy) {
      format::seal_root(root, seeds, copy);
      write_page(medium, format::root_at(format::home_of(root), copy), format::as_page(root));
    }
  }
};

}  // namespace

TEST_CASE("a retained version that cannot be loaded takes no place from a prepared attempt") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    make(shelf, "old", 5000).write(pattern(5000, 1));
    shelf.persist();
    shelf.erase("old");
    make(shelf, "w", 5000).write(pattern(5000, 2));
    shelf.persist();
    make(shelf, "new", 5000).write(pattern(5000, 3));
    shelf.prepare({}, "g");
  }
  // Version 1 says that `old` lay where `new` and `w` do, and is found out by the latter alone.
  const Manifest prepared(*kept.medium, 3, 3);
  Manifest first(*kept.medium, 1, 3);
  REQUIRE(first.layouts.size() == 1);
  first.root.capacity_bytes = prepared.root.capacity_bytes;
  for (const auto& layout : prepared.layouts) {
    first.layouts[0].slot_at[layout.name == "w" ? 2 : 0] = layout.slot_at[0];
  }
  first.write();
  Shelf shelf = kept.open();
  CHECK(shelf.version() == 2);
  CHECK(shelf.info().recovery.dropped == std::vector<std::uint64_t>{1});
  REQUIRE(shelf.prepared());
  CHECK(shelf.resolve(Decision::commit).commit->version == 3);
  CHECK((value(shelf.find("new").value()) == pattern(5000, 3)));
  CHECK((value(shelf.find("w").value()) == pattern(5000, 2)));
}

TEST_CASE("beside damage opening names an older version only where it is retained") {
  const unsigned keep = GENERATE(0U, 1U);
  const Kept kept({.keep = keep, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  {
    Shelf shelf = kept.open();
    make(shelf, "w", 5000);
    for (const unsigned version : {1U, 2U}) {
      shelf.find("w")->write(pattern(5000, version));
      shelf.persist(version);
    }
  }
  const auto newest = pattern(kPageBytes, 2);
  const auto all = kept.medium->view({0, kept.medium->size()});
  const auto there = std::search(all.begin(), all.end(), newest.begin(), newest.end());
  REQUIRE(there != all.end());
  kept.medium->wait(kept.medium->write(static_cast<std::uint64_t>(there - all.begin()),
                                       pattern(kPageBytes, 9), 0));
  OpenOptions options = kept.options(Mode::read);
  options.verify = Verify::on_open;
  const auto error = error_of([&] { kept.open(options); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  const std::string what = error->what();
  CHECK((what.find("version 1 is intact") != std::string::npos) == (keep == 1));
  CHECK((error->remedy().find("at(1)") != std::string::npos) == (keep == 1));
  if (keep == 0) CHECK(what.find("no older version is kept") != std::string::npos);
}
