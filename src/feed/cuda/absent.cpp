// CUDA in a build without it: says so.
#include <tensorshelf/error.hpp>

#include "feed/cuda/copies.hpp"

namespace tensorshelf {
namespace {

constexpr const char* kLacks = "this build of tensorshelf has no CUDA";

[[noreturn]] void refuse() {
  throw Error(Errc::unsupported, kLacks,
              "Copy the values to host memory and assign those, or build with a CUDA toolkit and "
              "-DTENSORSHELF_CUDA=ON.");
}

}  // namespace

CudaSupport cuda_support() { return {.lacks = kLacks}; }

std::shared_ptr<const DeviceMark> make_cuda_mark(const DeviceBytes&) { refuse(); }
bool is_of_device_alone(const DeviceBytes&) { refuse(); }
std::unique_ptr<DeviceCopy> make_cuda_copy(const DeviceBytes&, const DeviceMark*,
                                           const PieceRing&) {
  refuse();
}
std::unique_ptr<DeviceFill> make_cuda_fill(const DeviceTarget&) { refuse(); }
std::unique_ptr<DeviceBatch> make_cuda_batch(std::span<const DeviceBytes>, const DeviceMark*) {
  refuse();
}

}  // namespace tensorshelf
