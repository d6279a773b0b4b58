// An error of CUDA as one of ours.
#pragma once

#include <cuda_runtime_api.h>

namespace tensorshelf::cuda {

// Throws Errc::io for an error of CUDA.
void check(cudaError_t result, const char* what, int device);

}  // namespace tensorshelf::cuda
