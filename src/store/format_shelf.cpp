#include "store/format_shelf.hpp"

#include <span>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/random_bytes.hpp"
#include "format/format.hpp"
#include "store/io/page_io.hpp"
#include "store/manifest/tree.hpp"

namespace tensorshelf {

using format::kCopies;
using format::Page;
using format::Root;

void format_shelf(Medium& medium, const Split& split) {
  const auto [keep, in_flight] = split;
  TENSORSHELF_ASSERT(in_flight >= 1 && 1 + keep + in_flight <= format::kMaxSlots);
  const std::uint64_t capacity = medium.reserve(format::kHeapAt) / kPageBytes * kPageBytes;
  const Page blank{};
  for (unsigned copy = 0; copy < kCopies && !planted(Bug::format_over_superblock); ++copy) {
    write_page(medium, format::superblock_at(copy), blank);
  }
  // I15: what was a shelf here is surely none any more, before what it names goes.
  if (!planted(Bug::blank_unsettled)) medium.barrier();
  format::ShelfId id;
  random_bytes(std::as_writable_bytes(std::span(id)));
  const format::Seeds seeds(id);
  constexpr std::uint64_t kFirstIncarnation = 1;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::incarnation_at(copy),
               format::encode_incarnation(kFirstIncarnation, seeds, copy));
    write_page(medium, format::mark_at(copy),
               format::encode_mark(format::empty_mark(1), seeds, copy));
    for (unsigned home = 1; home < 1 + keep + in_flight; ++home) {
      Root unused{};
      unused.word = format::kUnusedHomeWord;
      write_page(medium, format::root_at(home, copy), format::as_page(unused));
    }
    Root root{};
    root.word = format::attempt_word(0, kFirstIncarnation, 0);
    root.incarnation = kFirstIncarnation;
    root.keep = static_cast<std::uint16_t>(keep);
    root.in_flight = static_cast<std::uint16_t>(in_flight);
    root.step = format::kNoStep;
    root.capacity_bytes = capacity;
    root.next_tensor_id = 1;
    Tree().fill_root(root);
    format::seal_root(root, seeds, copy);
    write_page(medium, format::root_at(0, copy), format::as_page(root));
  }
  // I15: they vouch for version 0.
  if (!planted(Bug::format_without_barrier)) medium.barrier();
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::superblock_at(copy),
               format::encode_superblock(format::new_superblock(id, 1 + keep + in_flight), copy));
  }
  medium.barrier();  // I2: version 0 is acknowledged
}

}  // namespace tensorshelf
