#include "store/manifest/tensor.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

void StoredTensor::lie_at(const std::shared_ptr<Holding>& now) noexcept {
  holding = now;
  const auto places = now->slot_at();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (layout.slot_at[i] == places[i]) continue;
    layout.slot_at[i] = places[i];
    const auto slot = static_cast<unsigned>(i / layout.stripes);
    if (planted(Bug::moved_label_kept)) continue;
    for (std::uint64_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      clear_verified(slot, chunk);
      if (whole()) label(slot, chunk) = 0;
    }
  }
}

void StoredTensor::check_range(std::uint64_t offset, std::uint64_t size) const {
  const std::uint64_t end = layout.size_bytes;
  if (offset <= end && size <= end - offset) return;
  throw Error(
      Errc::layout,
      fmt::format("bytes {} to {} of '{}', which has {}", offset, offset + size, name(), end),
      "Stay within the tensor, or replace() it with a larger one.");
}

void StoredTensor::check_there() const {
  if (!erased) return;
  throw Error(Errc::unknown_name, fmt::format("'{}' was erased or replaced", name()),
              "Look it up again by its name.");
}

void StoredTensor::check_not_spoiled(std::uint64_t of) const {
  if (spoiled != of) return;
  throw Error(Errc::spoiled,
              fmt::format("'{}' is spoiled: an assignment to it failed half-way, over one that was "
                          "not persisted yet",
                          name()),
              "Assign it whole, or discard() what is not persisted.");
}

}  // namespace tensorshelf
