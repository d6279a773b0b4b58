#include "store/manifest/attempt.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace tensorshelf {

Attempt::Attempt(std::shared_ptr<const Version> over, std::uint64_t sequence_number)
    : sequence(sequence_number),
      base(std::move(over)),
      tree(base->tree.successor(sequence)),
      names(base->names),
      tensor_bytes(base->tensor_bytes) {}

Capacities Version::capacities() const {
  Capacities there = root.capacity_bytes;
  for (const format::MediumLayout& medium : tree.media()) {
    there.end[medium.index] = medium.capacity_bytes;
  }
  return there;
}

Names& Attempt::change_names() {
  if (!own_names) {
    own_names = std::make_shared<Names>(*names);
    names = own_names;
  }
  return *own_names;
}

bool has(const Version& version, const StoredTensor& tensor) {
  if (name_in(*version.names, tensor) == nullptr) return false;
  return format::chunk_kind(version.tree.record(tensor.cell(0))) != format::ChunkKind::none;
}

void take_names(const Version& loaded) noexcept {
  if (!loaded.renames) return;
  for (const auto& [name, named] : *loaded.names) named.tensor->names.set(name);
}

void take_places(std::span<const std::shared_ptr<Version>> loaded) noexcept {
  const auto moved = [](const auto& version) { return version->moved; };
  if (std::none_of(loaded.begin(), loaded.end(), moved)) return;
  for (const auto& version : loaded) {
    for (const auto& [name, named] : *version->names) {
      std::lock_guard lock(named.tensor->mutex);
      named.tensor->lie_at(named.holding);
    }
  }
}

}  // namespace tensorshelf
