// Copies of bytes with gaps: a call for all rows at equal distances.
#include "feed/cuda/lanes.hpp"

namespace tensorshelf::cuda {
namespace {

// The most that CUDA takes (cudaDeviceProp::memPitch), on every device so far.
constexpr std::int64_t kMostPitch = 0x7fffffff;

// One side of a copy.
template <typename Byte>
struct Side {
  Byte* at;
  std::int64_t pitch;  // from row to row
};

void queue_rows(CopyLane& lane, Side<std::byte> to, Side<const std::byte> from, const Rows& rows,
                const char* what) {
  if (rows.adjoin()) {
    const std::size_t bytes = rows.count * rows.row_bytes;
    return check(cudaMemcpyAsync(to.at, from.at, bytes, cudaMemcpyDefault, lane.stream), what,
                 lane.device);
  }
  const auto width = static_cast<std::int64_t>(rows.row_bytes);
  if (rows.pitch >= width && rows.pitch <= kMostPitch) {
    return check(cudaMemcpy2DAsync(to.at, static_cast<std::size_t>(to.pitch), from.at,
                                   static_cast<std::size_t>(from.pitch), rows.row_bytes, rows.count,
                                   cudaMemcpyDefault, lane.stream),
                 what, lane.device);
  }
  // cudaMemcpy2D takes no pitch above kMostPitch, below the width of a row, or below 0.
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    const auto row = static_cast<std::int64_t>(i);
    check(cudaMemcpyAsync(to.at + row * to.pitch, from.at + row * from.pitch, rows.row_bytes,
                          cudaMemcpyDefault, lane.stream),
          what, lane.device);
  }
}

}  // namespace

void queue_to_host(CopyLane& lane, void* host, const void* data, const Stretch& stretch) {
  auto* const to = static_cast<std::byte*>(host);
  const auto* const from = static_cast<const std::byte*>(data);
  stretch.layout.cut(stretch.from, stretch.size_bytes, [&](const Rows& rows, std::uint64_t place) {
    const auto width = static_cast<std::int64_t>(rows.row_bytes);
    queue_rows(lane, {to + place, width}, {from + rows.at, rows.pitch}, rows,
               "copying to the host");
  });
}

void queue_to_device(CopyLane& lane, void* data, const void* host, const Stretch& stretch) {
  auto* const to = static_cast<std::byte*>(data);
  const auto* const from = static_cast<const std::byte*>(host);
  stretch.layout.cut(stretch.from, stretch.size_bytes, [&](const Rows& rows, std::uint64_t place) {
    const auto width = static_cast<std::int64_t>(rows.row_bytes);
    queue_rows(lane, {to + rows.at, rows.pitch}, {from + place, width}, rows,
               "copying to the device");
  });
}

}  // namespace tensorshelf::cuda
