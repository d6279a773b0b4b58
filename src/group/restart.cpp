// agree(): what a restart goes on from, by what the shelves hold.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include <tensorshelf/error.hpp>
#include <tensorshelf/group.hpp>

#include "base/planted.hpp"

namespace tensorshelf {
namespace {

bool has_committed(const GroupPart& part, const Epoch& epoch) {
  return std::ranges::find(part.committed, epoch) != part.committed.end();
}

bool holds(const GroupPart& part, const Epoch& epoch) {
  if (has_committed(part, epoch)) return true;
  return part.prepared == epoch && !planted(Bug::group_prepared_overlooked);
}

std::vector<std::uint32_t> ranks_without(std::span<const GroupPart> parts, std::uint32_t members,
                                         const Epoch& epoch) {
  std::vector<char> held(members);
  for (const GroupPart& part : parts) {
    if (holds(part, epoch)) held[part.rank] = 1;
  }
  std::vector<std::uint32_t> without;
  for (std::uint32_t rank = 0; rank < members; ++rank) {
    if (held[rank] == 0) without.push_back(rank);
  }
  if (planted(Bug::group_missing_part_taken) && without.size() == 1) without.clear();
  return without;
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t kNamed = 5;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    text += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
  }
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

void check_members(std::span<const GroupPart> parts, std::uint32_t members) {
  for (const GroupPart& part : parts) {
    const bool empty = part.committed.empty() && !part.prepared;
    if (part.rank < members && (empty || part.members == members)) continue;
    throw Error(Errc::bad_argument,
                fmt::format("a shelf holds the part of rank {} of {}, and the group has {} ranks",
                            part.rank, part.members, members),
                "Start as many ranks as saved it, or merge their shelves and go on from that.");
  }
}

[[noreturn]] void throw_incomplete(std::span<const GroupPart> parts, const Epoch& newest,
                                   const std::vector<std::uint32_t>& without) {
  const bool lost = std::ranges::any_of(without, [&](std::uint32_t rank) {
    return std::ranges::none_of(parts, [&](const GroupPart& part) {
      return part.rank == rank && (!part.committed.empty() || part.prepared);
    });
  });
  if (lost) {
    throw Error(Errc::not_found,
                fmt::format("epoch {} was committed, and no shelf that is here has the part of {}",
                            newest.number, ranks_text(without)),
                "Bring the shelf back, or one that holds a copy of it.");
  }
  throw Error(Errc::stale,
              fmt::format("epoch {} was committed, and of {} there are older parts alone",
                          newest.number, ranks_text(without)),
              "Bring the newer shelf back; was it put back from a copy?");
}

// The newest one that can be gone on from; number 0 where there is none.
Epoch choose(std::span<const GroupPart> parts, std::uint32_t members) {
  std::set<Epoch, std::greater<>> found;  // the newest first
  Epoch newest;                           // that was committed
  for (const GroupPart& part : parts) {
    found.insert(part.committed.begin(), part.committed.end());
    if (!part.committed.empty()) newest = std::max(newest, part.committed.back());
    if (part.prepared) found.insert(*part.prepared);
  }
  for (const Epoch& epoch : found) {
    const bool older = epoch < newest;
    if (older && !planted(Bug::group_older_taken)) break;
    if (ranks_without(parts, members, epoch).empty()) return epoch;
  }
  if (newest.number != 0) throw_incomplete(parts, newest, ranks_without(parts, members, newest));
  return {};
}

}  // namespace

Agreement agree(std::span<const GroupPart> parts, std::uint32_t members) {
  check_members(parts, members);
  Agreement agreed{choose(parts, members), {}, {}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const GroupPart& part = parts[i];
    Todo todo = Todo::nothing;
    if (part.prepared) todo = part.prepared == agreed.epoch ? Todo::commit : Todo::abandon;
    if (todo == Todo::abandon && planted(Bug::group_leftover_committed)) todo = Todo::commit;
    agreed.todos.push_back(todo);
    if (agreed.epoch.number != 0 && !holds(part, agreed.epoch)) agreed.behind.push_back(i);
  }
  return agreed;
}

}  // namespace tensorshelf
