#include "feed/source_copy.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/side_by_side.hpp"
#include "feed/access.hpp"
#include "feed/cuda/copies.hpp"
#include "feed/device_source.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kPacedBytes = 4 * kChunkBytes;  // between two looks at the clock

void copy_from_host(const Source& source, std::span<const std::byte> bytes, Pace& pace) {
  TensorRef target = source.target;
  if (!pace.limited()) return target.write(bytes);
  Assignment assignment = target.assign();
  for (std::uint64_t at = 0; at < bytes.size(); at += kPacedBytes) {
    const auto piece = bytes.subspan(at, std::min(kPacedBytes, bytes.size() - at));
    assignment.write(piece, at);
    pace.copied(piece.size());
  }
  assignment.done();
}

void copy_from_device(const Source& source, const DeviceBytes& bytes, const Save& save, Pace& pace,
                      const PipelineOptions& options) {
  TensorRef target = source.target;
  if (bytes.size_bytes == 0) return target.write({});
  Assignment assignment = target.assign();
  const PieceRing ring =
      ring_for(assignment.takes_lent(), options.device_pieces, options.device_piece_bytes);
  const auto copy = make_cuda_copy(bytes, save.moment.mark_of(bytes), ring);
  assign_in_pieces(assignment, *copy, bytes.size_bytes, 0,
                   [&](std::uint64_t size_bytes) { pace.copied(size_bytes); });
  assignment.done();
}

void copy_now(const Source& source, Save& save, Pace& pace, const PipelineOptions& options) {
  if (const auto* device = std::get_if<DeviceBytes>(&source.bytes)) {
    return copy_from_device(source, *device, save, pace, options);
  }
  copy_from_host(source, std::get<std::span<const std::byte>>(source.bytes), pace);
}

template <class Copy>
void noted(const Source& source, Save& save, bool trace, Copy copy) {
  if (!trace) return copy();
  CopyTimes times{.source = static_cast<std::size_t>(&source - save.plan->sources().data()),
                  .thread = ::gettid(),
                  .began = Save::Clock::now()};
  copy();
  times.ended = Save::Clock::now();
  save.source_copied(times);
}

}  // namespace

void queue_eager(Save& save) {
  std::vector<DeviceBytes> sources;
  for (const Source& source : save.eager) {
    const auto* device = std::get_if<DeviceBytes>(&source.bytes);
    if (device == nullptr || device->size_bytes == 0) continue;
    sources.push_back(*device);
    save.queued_sources.push_back(&source);
  }
  if (!sources.empty()) save.queued = make_cuda_batch(sources);
  save.queued_sources.resize(save.queued ? save.queued->count() : 0);
}

void copy_eager(Save& save, const PipelineOptions& options) {
  std::vector<const Source*> sources;
  std::uint64_t size_bytes = 0;
  for (std::size_t turn = 0; turn < save.eager.size(); ++turn) {
    const Source& source = save.at(turn, options.workers);
    const auto& queued = save.queued_sources;  // in the order of the plan
    if (std::ranges::binary_search(queued, &source)) continue;
    sources.push_back(&source);
    size_bytes += FeedAccess::tensor(source.target)->layout.size_bytes;
  }
  auto one = [&](std::size_t part) {
    Pace unpaced(save, 0);
    copy(*sources[part], save, unpaced, options);
  };
  const std::uint64_t paying = 1 + size_bytes / sharing.bytes_each;
  const auto threads = static_cast<unsigned>(std::min<std::uint64_t>(options.workers, paying));
  side_by_side(threads, sources.size(), PartJob(one));
}

void take_queued(Save& save, bool trace) {
  const auto batch = std::exchange(save.queued, nullptr);
  for (std::size_t i = 0; i < save.queued_sources.size(); ++i) {
    const Source& source = *save.queued_sources[i];
    noted(source, save, trace, [&] { TensorRef(source.target).write(batch->wait(i)); });
  }
}

void copy(const Source& source, Save& save, Pace& pace, const PipelineOptions& options) {
  noted(source, save, options.trace, [&] { copy_now(source, save, pace, options); });
}

}  // namespace tensorshelf
