// What keeps a version that is published beyond what `keep` does. All with structure held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensorshelf {

struct Holds {
  std::vector<std::uint64_t> held;    // in this process: a number for each hold of it
  std::size_t users = 0;              // how many of these end when a user wants: VersionPin
  std::vector<std::uint64_t> let_be;  // of those held by a reader: its writer surely lets them be
  // How many of those that are published are below the floor, and kept for readers elsewhere alone
  // (pinned.hpp).
  std::size_t pinned = 0;
  std::size_t going = 0;  // retained no more, and their places not yet given back

  bool has(std::uint64_t number) const { return std::ranges::count(held, number) > 0; }
  bool lets_be(std::uint64_t number) const { return std::ranges::count(let_be, number) > 0; }
  bool none() const { return held.empty() && pinned == 0 && going == 0; }
};

}  // namespace tensorshelf
