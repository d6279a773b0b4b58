#include "store/io/incarnation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"

namespace tensorshelf {

using format::kCopies;
using format::Root;

namespace {

// Where both copies are lost, the number is found above those of the roots. How often the shelf was
// opened since then, without a commit, nobody knows; no one does it so often.
constexpr std::uint64_t kUnknownOpens = 1 << 20;

void write_incarnation(Medium& medium, const format::Seeds& seeds, unsigned copy,
                       std::uint64_t incarnation) {
  write_page(medium, format::incarnation_at(copy),
             format::encode_incarnation(incarnation, seeds, copy));
  // I10: no one can take our number for theirs. I12: what recovery accepted, and stored anew, is
  // durable with it. And never are both copies under way together.
  if (!planted(Bug::incarnation_not_durable)) medium.barrier();
}

}  // namespace

std::optional<std::uint64_t> newest_incarnation(Medium& medium, std::uint64_t from,
                                                const format::Seeds& seeds) {
  std::optional<std::uint64_t> newest;
  Unread ignored;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto page = read_page(medium, from + format::incarnation_at(copy), ignored);
    const auto found = page ? format::read_incarnation(*page, seeds, copy) : std::nullopt;
    if (!found && !planted(Bug::lost_incarnation_passed)) return {};
    newest = std::max(newest, found);
  }
  return newest;
}

Incarnations read_incarnations(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                               Purpose purpose) {
  Incarnations there;
  const auto note = [&](const auto& found) {
    there.last = std::max(there.last, found ? found->incarnation : 0);
  };
  for (const auto* homes : {&scan.roots, &scan.described}) {
    for (const auto& home : *homes) std::for_each(home.begin(), home.end(), note);
  }
  std::for_each(scan.marks.found.begin(), scan.marks.found.end(), note);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto page = read_page(medium, format::incarnation_at(copy), there.unread);
    if (page) there.found[copy] = format::read_incarnation(*page, seeds, copy);
    there.last = std::max(there.last, there.found[copy].value_or(0));
  }
  if (there.lost() && purpose != Purpose::repair) {
    throw Error(
        Errc::corrupt, "both copies of the incarnation record are damaged" + there.unread.reason(),
        "Open with mode=\"r\", which needs none; repair() finds a new one.", there.unread.os_error);
  }
  if (there.lost() && !planted(Bug::repair_reuses_incarnation)) there.last += kUnknownOpens;
  if (there.last >= format::kMaxCounter - 1) {
    throw Error(
        Errc::corrupt,
        fmt::format("the incarnation record says {}, and the format counts no further", there.last),
        "Open with mode=\"r\" and export: no shelf comes so far by being opened.");
  }
  there.older = there.found[0].value_or(0) <= there.found[1].value_or(0) ? 0 : 1;
  return there;
}

bool restore_incarnation(Medium& medium, const format::Seeds& seeds, const RootScan& scan,
                         const Incarnations& there) {
  if (there.lost()) return false;
  const unsigned copy = there.newer();
  const std::uint64_t value = there.found[copy].value();
  const auto roots = scan.candidates();
  const bool durable = std::any_of(roots.begin(), roots.end(),
                                   [value](const Root& root) { return root.incarnation == value; });
  if (durable || planted(Bug::incarnation_unrestored)) return false;
  store_over_itself(medium, format::incarnation_at(copy),
                    format::encode_incarnation(value, seeds, copy),
                    sizeof(format::IncarnationRecord));
  return true;
}

std::uint64_t bump_incarnation(Medium& medium, const format::Seeds& seeds,
                               const Incarnations& there) {
  if (there.found[there.older]) {
    const std::uint64_t mine = planted(Bug::incarnation_not_bumped) ? there.last : there.last + 1;
    write_incarnation(medium, seeds, there.older, mine);
    return mine;
  }
  const std::uint64_t mine = there.last + 2;
  write_incarnation(medium, seeds, there.older, mine);
  write_incarnation(medium, seeds, there.newer(), mine);
  return mine;
}

}  // namespace tensorshelf
