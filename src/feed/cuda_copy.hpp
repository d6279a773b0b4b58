// CUDA as a DeviceCopy. cuda_copy.cpp is the one file that includes CUDA's headers;
// cuda_absent.cpp stands in for it in a build without CUDA.
#pragma once

#include <memory>

#include <tensorshelf/cuda.hpp>

#include "feed/device_copy.hpp"

namespace tensorshelf {

// Errors: those of write_from_device() (cuda.hpp) that are not the tensor's.
std::unique_ptr<DeviceCopy> make_cuda_copy(const DeviceBytes& source);

}  // namespace tensorshelf
