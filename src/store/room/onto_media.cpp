// Tensors that move to other media, and a medium from which all move.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/planted.hpp"
#include "store/commit/assignment.hpp"
#include "store/media_set/further_media.hpp"
#include "store/room/placing.hpp"
#include "store/room/tensor_checks.hpp"
#include "store/room/tensors.hpp"

namespace tensorshelf {

std::shared_ptr<StoredTensor> Tensors::move(std::string_view name,
                                            std::span<const unsigned> media) {
  state_.check_writable();
  refuse_inside(state_, "move() was called");
  std::uint64_t size = 0;
  {
    const auto lock = state_.lock_usable();
    const auto there = state_.names_now().find(name);
    if (there != state_.names_now().end()) size = there->second.tensor->layout.size_bytes;
  }
  Where where;
  const auto closed = close_over(where, name, size, media);
  const std::shared_ptr<StoredTensor> old = replaceable(name, "move");
  if (is_on(old->layout, where)) return old;
  return remake(*old, unplaced(*old), where);
}

// Where nothing more is placed, everything moves to where it would be made now.
void Tensors::remove_medium(unsigned number) {
  state_.check_writable();
  refuse_inside(state_, "remove_medium() was called");
  check_medium(state_, number);
  state_.further->attached().retire(number);
  try {
    while (!taken_out(number)) {
      while (const auto name = one_on(number)) move(*name, {});
    }
  } catch (...) {
    state_.further->attached().retire(number, false);
    throw;
  }
}

// False where somebody placed a tensor there who had chosen to before, also one that no name has
// yet: its value is assigned, and it is added when we let its thread pass the gate.
bool Tensors::taken_out(unsigned medium) {
  const auto closed = close_for_growth();
  state_.check_writable();
  state_.check_not_abandoned();
  state_.rival.look();
  if (one_on(medium) || is_made_on(medium)) return false;
  auto named = state_.open->tree.media();
  std::erase_if(named, [&](const auto& one) { return one.index == medium; });
  if (state_.open->tree.has_media_page()) {
    state_.open->tree.set_media(named, state_.further->path_hash());
  }
  state_.open->names_changed = true;
  return true;
}

bool Tensors::is_made_on(unsigned medium) const {
  if (planted(Bug::made_on_removed)) return false;
  return std::ranges::any_of(being_made_, [&](const auto& one) {
    const auto tensor = one.lock();
    return tensor && tensor->media.has(medium);
  });
}

std::optional<std::string> Tensors::one_on(unsigned number) const {
  const auto lock = state_.lock_usable();
  for (const auto& [name, named] : state_.names_now()) {
    if (named.tensor->media.has(number)) return std::string(name);
  }
  return std::nullopt;
}

}  // namespace tensorshelf
