#include "store/tensor.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

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

void StoredTensor::check_sound(std::uint64_t of) const {
  if (spoiled != of) return;
  throw Error(Errc::spoiled,
              fmt::format("'{}' is spoiled: an assignment to it failed half-way, over one that was "
                          "not persisted yet",
                          name()),
              "Assign it whole, or discard() what is not persisted.");
}

}  // namespace tensorshelf
