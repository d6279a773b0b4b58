#include "store/state/version_set.hpp"

#include <algorithm>

namespace tensorshelf {

const Version* VersionSet::find(std::uint64_t number) const {
  const auto found = std::ranges::find_if(
      retained, [&](const auto& each) { return each->number() == number && is_offered(*each); });
  return found == retained.end() ? nullptr : found->get();
}

std::uint64_t VersionSet::oldest() const {
  return (*std::ranges::find_if(retained, [this](const auto& each) { return is_offered(*each); }))
      ->number();
}

}  // namespace tensorshelf
