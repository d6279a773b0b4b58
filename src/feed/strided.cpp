#include "feed/strided.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

Strided::Strided(std::uint64_t size_bytes, std::vector<DeviceAxis> axes)
    : row_bytes_(size_bytes), axes_(std::move(axes)) {
  for (const DeviceAxis& axis : axes_) {
    if (axis.count > 0 && row_bytes_ % axis.count == 0) {
      row_bytes_ /= axis.count;
      continue;
    }
    throw Error(
        Errc::bad_argument,
        fmt::format("{} bytes of device memory cannot be {} equal parts", size_bytes, axis.count),
        "Give the bytes of all rows together, and axes of at least one part each.");
  }
}

// From that byte on: the rest of a row that is cut, a row's begin, or as many whole rows as the
// innermost axis has side by side.
Rows Strided::next(std::uint64_t from, std::uint64_t most_bytes) const {
  const std::uint64_t within = from % row_bytes_;
  std::uint64_t row = from / row_bytes_;
  Rows rows = {.at = static_cast<std::int64_t>(within),
               .row_bytes = std::min(row_bytes_ - within, most_bytes)};
  if (!axes_.empty() && rows.row_bytes == row_bytes_) {
    const DeviceAxis& inner = axes_.back();
    rows.count = std::min(most_bytes / row_bytes_, inner.count - row % inner.count);
    rows.pitch = inner.step_bytes;
  }
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    rows.at += static_cast<std::int64_t>(row % axis->count) * axis->step_bytes;
    row /= axis->count;
  }
  return rows;
}

}  // namespace tensorshelf
