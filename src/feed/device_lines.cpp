#include "feed/device_lines.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mixed.hpp"
#include "feed/cuda/copies.hpp"

namespace tensorshelf {
namespace {

constexpr std::size_t kMostLines = 16;

// A line of the first row, another one in each round.
DeviceBytes line_of(const DeviceBytes& source, std::uint64_t round) {
  std::uint64_t row_bytes = source.size_bytes;
  for (const DeviceAxis& axis : source.axes) row_bytes /= axis.count;
  const std::uint64_t lines = (row_bytes + kLineBytes - 1) / kLineBytes;
  const std::uint64_t begin = mixed(round) % lines * kLineBytes;
  return {.data = static_cast<const std::byte*>(source.data) + begin,
          .size_bytes = std::min(kLineBytes, row_bytes - begin),
          .stream = source.stream,
          .device = source.device};
}

}  // namespace

DeviceLines::DeviceLines(std::span<const Source* const> sources,
                         std::shared_ptr<const DeviceMark> mark, std::uint64_t round)
    : mark_(std::move(mark)) {
  const std::size_t count = std::min(kMostLines, sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Source* const source = sources[(round + i * sources.size() / count) % sources.size()];
    const DeviceBytes place = line_of(std::get<DeviceBytes>(source->bytes), round + i);
    if (!is_of_device_alone(place)) continue;
    sources_.push_back(source);
    places_.push_back(place);
  }
  if (!places_.empty()) queued_ = make_cuda_batch(places_);
}

void DeviceLines::take() {
  const auto queued = std::exchange(queued_, nullptr);
  if (!queued) return;
  for (std::size_t i = 0; i < queued->count(); ++i) {
    const auto bytes = queued->wait(i);
    std::memcpy(lines_.emplace_back().data(), bytes.data(), bytes.size());
  }
}

const Source* DeviceLines::changed() const {
  if (lines_.empty()) return nullptr;
  const auto now = make_cuda_batch(std::span(places_).first(lines_.size()), mark_.get());
  const std::size_t count = now ? now->count() : 0;  // fewer where another kind of memory is there
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (i >= count) return sources_[i];
    const auto bytes = now->wait(i);
    if (!std::equal(bytes.begin(), bytes.end(), lines_[i].begin())) return sources_[i];
  }
  return nullptr;
}

}  // namespace tensorshelf
