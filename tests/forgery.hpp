// A shelf whose metadata can be rewritten as its writer would have sealed it.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/copy_hash.hpp"
#include "format/format.hpp"
#include "raw_pages.hpp"
#include "store/io/root_scan.hpp"
#include "store_bench.hpp"

namespace tensorshelf::testing {

using format::kCopies;
using format::Page;
using format::PageRef;
using format::Root;

inline constexpr unsigned kSlots = 2;  // K of a shelf that keeps no version

// A shelf at version 2, with two tensors, whose metadata can be rewritten.
struct Forgery {
  Bench bench;
  unsigned slots;  // K
  format::Seeds seeds{format::ShelfId{}};

  explicit Forgery(unsigned keep = 0, Placement placement = Placement::whole,
                   std::uint32_t format_version = format::kFormatVersion)
      : bench(64 * kMiB, true, keep, format_version), slots(kSlots + keep) {
    bench.placement = placement;
    Shelf shelf = bench.open();
    make(shelf, "a", 5000).write(pattern(5000, 1));
    make(shelf, "b", kMiB + 1).write(pattern(kMiB + 1, 2));
    shelf.persist(1);
    shelf.find("a")->write(pattern(5000, 3));
    shelf.persist(2);
    shelf.find("a")->write(pattern(5000, 4));  // and dropped: version 1 is not whole any more
    shelf.close();
    seeds = format::Seeds(superblock().shelf_id);
  }

  format::Superblock superblock() const {
    return format::read_superblock(raw_at(*bench.medium, 0), 0).superblock.value();
  }
  Root root() const { return scan_roots(*bench.medium, seeds, slots).candidates().front(); }

  // As its writer would have sealed it, in the home of its version.
  void put(Root root) const {
    const unsigned home = format::home_of(root);
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      format::seal_root(root, seeds, copy);
      write_page(*bench.medium, format::root_at(home, copy), format::as_page(root));
    }
  }
  template <typename Edit>
  void edit_root(Edit edit) const {
    Root forged = root();
    edit(forged);
    put(forged);
  }
  template <typename Edit>
  void edit_superblock(Edit edit) const {
    auto forged = superblock();
    edit(forged);
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      write_page(*bench.medium, format::superblock_at(copy),
                 format::encode_superblock(forged, copy));
    }
  }
  void set_version(std::uint64_t version) const {
    edit_root([&](Root& forged) {
      forged.floor = version;
      forged.word = format::attempt_word(version, forged.incarnation, forged.sequence);
    });
  }
  void set_incarnation(std::uint64_t incarnation) const {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      write_page(*bench.medium, format::incarnation_at(copy),
                 format::encode_incarnation(incarnation, seeds, copy));
    }
  }
  void set_mark(const format::PreparedMark& mark) const {
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      write_page(*bench.medium, format::mark_at(copy), format::encode_mark(mark, seeds, copy));
    }
  }

  PageRef put_page(PageRef ref, const Page& page) const {
    for (std::uint64_t at : ref.at) write_page(*bench.medium, at, page);
    ref.checksum = hash_bytes(page.bytes(), seeds.page(ref.at[0]));
    return ref;
  }
  template <typename Edit>
  void edit_directory(Edit edit) const {  // the first, of format 2
    Root forged = root();
    Page directory = page_at(*bench.medium, forged.pages[0].at[0]);
    edit(directory);
    forged.pages[0] = put_page(forged.pages[0], directory);
    put(forged);
  }
  // Edits the leaf of that kind and number, and seals over it what names it, and the root.
  template <typename Edit>
  void edit_leaf(format::PageKind kind, Edit edit, unsigned index = 0) const {
    const std::vector<PageRef> refs = leaves();
    for (unsigned leaf = 0; leaf < refs.size(); ++leaf) {
      Page page = page_at(*bench.medium, refs[leaf].at[0]);
      const auto head = format::page_head(page);
      if (head.kind != kind || head.index != index) continue;
      edit(page);
      set_leaf(leaf, put_page(refs[leaf], page));
      return;
    }
    throw std::logic_error("no such leaf");
  }
  void set_leaf(unsigned leaf, const PageRef& ref) const {
    if (format::root_levels(root()) == 0) {
      edit_root([&](Root& forged) { forged.pages[leaf] = ref; });
    } else {
      edit_directory([&](Page& page) { format::set_directory_ref(page, leaf, ref); });
    }
  }
  template <typename Edit>
  void edit_record(Edit edit) const {  // of the first tensor
    edit_leaf(format::PageKind::records, [&](Page& page) {
      format::TensorRecord record;
      std::byte* const at = within(page).data() + sizeof(format::PageHead);
      std::memcpy(&record, at, sizeof record);
      edit(record, at + sizeof record);
      std::memcpy(at, &record, sizeof record);
    });
  }
  template <typename Edit>
  void edit_layouts(Edit edit) const {  // of the tensors on the first page of records
    edit_leaf(format::PageKind::records, [&](Page& page) {
      std::string reason;
      std::vector<format::TensorLayout> layouts;
      REQUIRE(format::read_records(page, slots, layouts, reason));
      edit(layouts);
      page = format::empty_page(format::PageKind::records, format::page_head(page).index);
      for (const auto& layout : layouts) REQUIRE(format::append_record(page, layout));
    });
  }

  // Every leaf of the newest version, as what is above it names it.
  std::vector<PageRef> leaves() const {
    const Root newest = root();
    std::vector<PageRef> refs;
    for (unsigned leaf = 0; leaf < newest.leaf_count; ++leaf) {
      if (format::root_levels(newest) == 0) {
        refs.push_back(newest.pages[leaf]);
        continue;
      }
      const auto& directory = newest.pages[leaf / format::kDirectoryRefs];
      refs.push_back(format::directory_ref(page_at(*bench.medium, directory.at[0]),
                                           leaf % format::kDirectoryRefs));
    }
    return refs;
  }
  format::TensorLayout layout(const std::string& name) const {
    for (const PageRef& ref : leaves()) {
      const Page page = page_at(*bench.medium, ref.at[0]);
      if (format::page_head(page).kind != format::PageKind::records) continue;
      std::string reason;
      std::vector<format::TensorLayout> layouts;
      REQUIRE(format::read_records(page, slots, layouts, reason));
      for (const auto& layout : layouts) {
        if (layout.name == name) return layout;
      }
    }
    throw std::logic_error("no tensor " + name);
  }

  // Data is not looked at, so that what refuses is the check of the number alone. The older root is
  // no way out: it is believed only after its data, of which a chunk was overwritten.
  std::optional<Error> refusal(Mode mode) const {
    return error_of([&] { bench.open(mode, Verify::never); });
  }
  std::optional<Errc> error_of_opening(Mode mode) const {
    const auto error = refusal(mode);
    return error ? std::optional(error->code()) : std::nullopt;
  }
};

}  // namespace tensorshelf::testing
