// CUDA in a build without it: says so.
#include <tensorshelf/error.hpp>

#include "feed/cuda_copy.hpp"

namespace tensorshelf {
namespace {

constexpr const char* kLacks = "this build of tensorshelf has no CUDA";

}  // namespace

CudaSupport cuda_support() { return {.lacks = kLacks}; }

std::unique_ptr<DeviceCopy> make_cuda_copy(const DeviceBytes&) {
  throw Error(Errc::unsupported, kLacks,
              "Copy the values to host memory and assign those, or build with a CUDA toolkit and "
              "-DTENSORSHELF_CUDA=ON.");
}

}  // namespace tensorshelf
