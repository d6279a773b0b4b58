// Copies into CUDA memory, out of the page-locked buffers of a lane, on its stream.
#include <array>

#include "feed/cuda/copies.hpp"
#include "feed/cuda/lanes.hpp"

namespace tensorshelf {
namespace {

using cuda::check;
using cuda::CopyLane;
using cuda::Given;
using cuda::LaneUse;

// Smaller than what comes from a device: a thread reads a piece, and verifies it, before the bus
// has it, and what it wrote is still near then (docs/performance.md, "From a GPU").
constexpr std::uint64_t kPieceBytes = PieceRing{}.piece_bytes / 2;
static_assert(PieceRing{}.pieces >= kFillBuffers);

class CudaFill final : public DeviceFill {
 public:
  explicit CudaFill(const DeviceTarget& target)
      : data_(target.data),
        layout_(target.size_bytes, target.axes),
        use_({Given(target), target.stream}, {}) {}

  std::uint64_t buffer_bytes() const override { return kPieceBytes; }

  std::span<std::byte> room(unsigned buffer, std::uint64_t size_bytes) override {
    if (busy_[buffer]) {
      use_.guarded([&] {
        check(cudaEventSynchronize(lane().done[buffer]), "copying to the device", use_.device());
      });
    }
    return {lane().buffer(buffer), size_bytes};
  }

  void begin(unsigned buffer, std::uint64_t to, std::uint64_t size_bytes) override {
    use_.guarded([&] {
      queue_to_device(lane(), data_, lane().buffer(buffer), {layout_, to, size_bytes});
      check(cudaEventRecord(lane().done[buffer], lane().stream), "recording an event",
            use_.device());
    });
    busy_[buffer] = true;
  }

  void finish() override {
    use_.guarded([&] {
      check(cudaStreamSynchronize(lane().stream), "copying to the device", use_.device());
    });
  }

  void settle() noexcept override { use_.settle(); }

 private:
  CopyLane& lane() { return use_.lane(); }

  void* data_;
  const Strided layout_;
  LaneUse use_;
  std::array<bool, kFillBuffers> busy_ = {};  // was copied from since the lane was taken
};

}  // namespace

std::unique_ptr<DeviceFill> make_cuda_fill(const DeviceTarget& target) {
  cuda::require_device();
  return std::make_unique<CudaFill>(target);
}

}  // namespace tensorshelf
