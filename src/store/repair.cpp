#include "store/repair.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <optional>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"

namespace tensorshelf {

using format::kCopies;
using format::kSlots;
using format::Page;
using format::Root;

void repair_copies(Medium& medium, const format::Seeds& seeds, const ShelfHead& head,
                   const RootScan& scan, const Root& root, const LoadedRoot& loaded) {
  for (unsigned copy : head.bad_copies) {
    write_page(medium, format::superblock_at(copy),
               format::encode_superblock(head.superblock, copy));
  }
  for (const PageRepair& page : loaded.repairs) write_page(medium, page.at, *page.page);
  const auto home = static_cast<unsigned>(format::word_version(root.word) % kSlots);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto& there = scan.roots[home][copy];
    if (there && there->word == root.word && !planted(Bug::recovery_rewrites_root)) {
      // A word that a dead process stored is visible but perhaps not durable: store it again.
      if (medium.promises().mapped) {
        medium.store_word(format::root_at(home, copy), root.word);
      }
      continue;
    }
    Root replica = root;
    format::seal_root(replica, seeds, copy);
    write_page(medium, format::root_at(home, copy), format::as_page(replica));
  }
}

namespace {

void write_incarnation(Medium& medium, const format::Seeds& seeds, unsigned copy,
                       std::uint64_t incarnation) {
  write_page(medium, format::incarnation_at(copy),
             format::encode_incarnation(incarnation, seeds, copy));
  // I10: no one can take our number for theirs. Also: the repairs are durable, and never are both
  // copies under way together.
  if (!planted(Bug::incarnation_not_durable)) medium.barrier();
}

}  // namespace

// The two copies are written in turn, one at each open, so that they differ by one at most and the
// larger is the last number given out. A damaged copy may have held one more than the other does:
// that number is skipped, and both are written (I5).
std::uint64_t bump_incarnation(Medium& medium, const format::Seeds& seeds, const RootScan& scan) {
  std::uint64_t last = 0;
  for (const Root& root : scan.candidates()) last = std::max(last, root.incarnation);
  std::array<std::optional<std::uint64_t>, kCopies> found;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    found[copy] =
        format::read_incarnation(read_page(medium, format::incarnation_at(copy)), seeds, copy);
    last = std::max(last, found[copy].value_or(0));
  }
  if (!found[0] && !found[1]) {
    throw Error(Errc::corrupt, "both copies of the incarnation record are damaged",
                "Open with mode \"r\" and export; writing could not be fenced.");
  }
  if (last >= format::kMaxCounter - 1) {
    throw Error(
        Errc::corrupt,
        fmt::format("the incarnation record says {}, and the format counts no further", last),
        "Open with mode \"r\" and export: no shelf comes so far by being opened.");
  }
  const unsigned older = found[0].value_or(0) <= found[1].value_or(0) ? 0 : 1;
  if (found[older]) {
    const std::uint64_t mine = planted(Bug::incarnation_not_bumped) ? last : last + 1;
    write_incarnation(medium, seeds, older, mine);
    return mine;
  }
  const std::uint64_t mine = last + 2;
  write_incarnation(medium, seeds, older, mine);
  write_incarnation(medium, seeds, 1 - older, mine);
  return mine;
}

void format_shelf(Medium& medium) {
  const std::uint64_t capacity = medium.reserve(format::kHeapAt) / kPageBytes * kPageBytes;
  const Page blank{};
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::superblock_at(copy), blank);
  }
  medium.barrier();  // whatever was there is no shelf any more
  format::ShelfId id;
  const auto got = ::getrandom(id.data(), id.size(), 0);
  TENSORSHELF_ASSERT(got == static_cast<ssize_t>(id.size()));
  const format::Seeds seeds(id);
  constexpr std::uint64_t kFirstIncarnation = 1;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::incarnation_at(copy),
               format::encode_incarnation(kFirstIncarnation, seeds, copy));
    for (unsigned home = 1; home < kSlots; ++home) {
      Root unused{};
      unused.word = format::kUnusedHomeWord;
      write_page(medium, format::root_at(home, copy), format::as_page(unused));
    }
    Root root{};
    root.word = format::make_word(0, kFirstIncarnation);
    root.incarnation = kFirstIncarnation;
    root.step = format::kNoStep;
    root.capacity_bytes = capacity;
    root.next_tensor_id = 1;
    format::seal_root(root, seeds, copy);
    write_page(medium, format::root_at(0, copy), format::as_page(root));
  }
  medium.barrier();  // I1, for version 0: the superblocks are what makes it true
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(medium, format::superblock_at(copy),
               format::encode_superblock(format::new_superblock(id), copy));
  }
  medium.barrier();  // I2
}

}  // namespace tensorshelf
