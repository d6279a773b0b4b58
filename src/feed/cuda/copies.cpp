// Copies from CUDA memory through the page-locked buffers of a lane, on its stream: one source in
// pieces, or several small ones together.
#include "feed/cuda/copies.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>

#include "feed/cuda/lanes.hpp"

namespace tensorshelf {
namespace {

using cuda::BesideCaptures;
using cuda::check;
using cuda::CopyLane;
using cuda::CurrentDevice;
using cuda::Given;
using cuda::holder_of;
using cuda::LaneUse;
using cuda::refuse_capture;
using cuda::use_holder_of;

class CudaMark final : public DeviceMark {
 public:
  explicit CudaMark(const DeviceBytes& source) : stream_(source.stream) {
    const BesideCaptures aside;
    CurrentDevice current;
    static_cast<void>(use_holder_of(Given(source), current));
    device_ = current.device();
    refuse_capture(stream_, device_);
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event", device_);
    const cudaError_t recorded = cudaEventRecord(event_, stream_);
    if (recorded != cudaSuccess) destroy();
    check(recorded, "recording an event on the stream", device_);
  }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;
  ~CudaMark() override { destroy(); }

  bool is_of(const DeviceBytes& source) const override {
    if (source.stream != stream_) return false;
    if (source.device >= 0) return source.device == device_;
    const CurrentDevice current;
    return holder_of(Given(source), current.device()).device == device_;
  }
  cudaEvent_t event() const { return event_; }

 private:
  // What waits for it already loses nothing.
  void destroy() noexcept {
    if (cudaEventDestroy(event_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

  cudaStream_t stream_;
  int device_ = 0;
  cudaEvent_t event_ = nullptr;
};

class CudaCopy final : public DeviceCopy {
 public:
  CudaCopy(const DeviceBytes& source, const CudaMark* after, const PieceRing& ring)
      : data_(source.data),
        layout_(source.size_bytes, source.axes),
        use_({Given(source), source.stream, after ? after->event() : nullptr}, ring),
        sizes_(ring.pieces) {}

  PieceRing ring() const override { return use_.ring(); }

  void begin(unsigned buffer, std::uint64_t from, std::uint64_t size_bytes) override {
    use_.guarded([&] {
      queue_to_host(lane(), lane().buffer(buffer), data_, {layout_, from, size_bytes});
      check(cudaEventRecord(lane().done[buffer], lane().stream), "recording an event",
            use_.device());
    });
    sizes_[buffer] = size_bytes;
  }

  std::span<const std::byte> wait(unsigned buffer) override {
    use_.guarded([&] {
      check(cudaEventSynchronize(lane().done[buffer]), "copying to the host", use_.device());
    });
    return {lane().buffer(buffer), sizes_[buffer]};
  }

  void settle() noexcept override { use_.settle(); }

 private:
  CopyLane& lane() { return use_.lane(); }

  const void* data_;
  const Strided layout_;
  LaneUse use_;
  std::vector<std::uint64_t> sizes_;  // of the pieces, by their buffers
};

// So many of the first can be copied together.
std::size_t together(std::span<const DeviceBytes> sources) {
  CurrentDevice current;
  std::uint64_t all = 0;
  std::size_t count = 0;
  int first = 0;
  for (const DeviceBytes& source : sources) {
    const cuda::Held held = use_holder_of(Given(source), current);
    if (count == 0) first = held.device;
    const bool alike = source.stream == sources[0].stream && held.device == first;
    if (!held.by_device_alone || !alike || source.size_bytes > PieceRing{}.piece_bytes - all) break;
    all += source.size_bytes;
    ++count;
  }
  return count;
}

// Into one buffer, in the order of the sources.
class CudaBatch final : public DeviceBatch {
 public:
  CudaBatch(std::span<const DeviceBytes> sources, const CudaMark* after)
      : device_(device_of(sources[0])) {
    const BesideCaptures aside;
    CurrentDevice current;
    current.use(device_);
    if (after == nullptr) refuse_capture(sources[0].stream, device_);
    lane_.take(device_, {});
    lane_.guarded([&] { begin(sources, after); });
  }
  CudaBatch(const CudaBatch&) = delete;
  CudaBatch& operator=(const CudaBatch&) = delete;
  ~CudaBatch() override { lane_.settle(); }

  std::size_t count() const override { return parts_.size(); }

  std::span<const std::byte> wait(std::size_t source) override {
    const BesideCaptures aside;
    CurrentDevice current;
    current.use(device_);
    lane_.guarded(
        [&] { check(cudaEventSynchronize(lane_->done[0]), "copying to the host", device_); });
    return parts_[source];
  }

 private:
  static int device_of(const DeviceBytes& source) {
    CurrentDevice current;
    static_cast<void>(use_holder_of(Given(source), current));
    return current.device();
  }

  void begin(std::span<const DeviceBytes> sources, const CudaMark* after) {
    const cudaStream_t theirs = sources[0].stream;
    lane_->begin_behind(after ? after->event() : nullptr, theirs);
    std::byte* to = lane_->buffer(0);
    for (const DeviceBytes& source : sources) {
      const Strided layout(source.size_bytes, source.axes);
      queue_to_host(*lane_, to, source.data, {layout, 0, source.size_bytes});
      parts_.emplace_back(to, source.size_bytes);
      to += source.size_bytes;
    }
    check(cudaEventRecord(lane_->done[0], lane_->stream), "recording an event", device_);
    if (after == nullptr) {  // I9: who changes the sources next waits for the copies
      check(cudaStreamWaitEvent(theirs, lane_->done[0], 0), "ordering two streams", device_);
    }
  }

  const int device_;
  cuda::TakenLane lane_;
  std::vector<std::span<const std::byte>> parts_;
};

}  // namespace

CudaSupport cuda_support() {
  CudaSupport support = {.built = true, .runtime_version = CUDART_VERSION};
  const cudaError_t result = cudaGetDeviceCount(&support.devices);
  if (result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    support.devices = 0;
    support.lacks = fmt::format("no CUDA device to use: {}", cudaGetErrorString(result));
  } else if (support.devices == 0) {
    support.lacks = "no CUDA device to use: the driver shows none";
  }
  return support;
}

bool is_of_device_alone(const DeviceBytes& source) {
  CurrentDevice current;
  return use_holder_of(Given(source), current).by_device_alone;
}

std::shared_ptr<const DeviceMark> make_cuda_mark(const DeviceBytes& source) {
  cuda::require_device();
  return std::make_shared<CudaMark>(source);
}

std::unique_ptr<DeviceCopy> make_cuda_copy(const DeviceBytes& source, const DeviceMark* after,
                                           const PieceRing& ring) {
  cuda::require_device();
  return std::make_unique<CudaCopy>(source, dynamic_cast<const CudaMark*>(after), ring);
}

std::unique_ptr<DeviceBatch> make_cuda_batch(std::span<const DeviceBytes> sources,
                                             const DeviceMark* after) {
  cuda::require_device();
  const std::size_t count = together(sources);
  if (count == 0) return nullptr;
  return std::make_unique<CudaBatch>(sources.first(count), dynamic_cast<const CudaMark*>(after));
}

}  // namespace tensorshelf
