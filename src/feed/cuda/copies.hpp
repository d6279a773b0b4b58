// CUDA as copies of a device. The files of this folder alone include CUDA's headers; absent.cpp
// stands in for them in a build without CUDA.
//
// What is asked of CUDA: work of one stream runs in its order; an event stands for all that was
// queued before it; a copy that was waited for has arrived. And nothing else: two streams run in
// any order, a copy may run at any time until it is waited for, every call may fail, and a lane is
// not used again behind a failure. tests/fake_cudart.cpp breaks what is not asked.
#pragma once

#include <memory>
#include <span>

#include <tensorshelf/cuda.hpp>

#include "feed/device_copy.hpp"

namespace tensorshelf {

// Errors of all: those of write_from_device() (cuda.hpp) that are not the tensor's.
std::shared_ptr<const DeviceMark> make_cuda_mark(const DeviceBytes& source);
// Behind that mark; else behind all that is queued on source.stream now.
std::unique_ptr<DeviceCopy> make_cuda_copy(const DeviceBytes& source,
                                           const DeviceMark* after = nullptr,
                                           const PieceRing& ring = {});
bool is_of_device_alone(const DeviceBytes& source);  // not managed or page-locked memory
std::unique_ptr<DeviceFill> make_cuda_fill(const DeviceTarget& target);
// Queues copies of the first sources, up to one that is on another device or stream, is managed or
// page-locked, or fits the 8 MiB of the buffer no more; nullptr where that is the very first. With
// a mark they come behind it, and what their stream is given later does not wait for them; without
// one it does.
std::unique_ptr<DeviceBatch> make_cuda_batch(std::span<const DeviceBytes> sources,
                                             const DeviceMark* after = nullptr);

}  // namespace tensorshelf
