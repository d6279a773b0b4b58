#include "feed/cuda/check.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

namespace tensorshelf::cuda {

void check(cudaError_t result, const char* what, int device) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // ours to tell: the caller's next call starts clean
  throw Error(Errc::io,
              fmt::format("CUDA device {}: {} failed: {} ({})", device, what,
                          cudaGetErrorString(result), cudaGetErrorName(result)),
              result == cudaErrorMemoryAllocation
                  ? "Free memory on the host and on the device, or raise `ulimit -l`."
                  : "Run with CUDA_LAUNCH_BLOCKING=1 to find a kernel at fault. Most CUDA errors "
                    "end the use of the device by this process: start it again and resume from "
                    "the last version.");
}

}  // namespace tensorshelf::cuda
