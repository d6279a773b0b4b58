#include "fake_cudart.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace fake {

Cuda& cuda() {
  static Cuda cuda;
  return cuda;
}

void add_memory(const void* at, std::size_t size, int device) {
  cuda().memory[static_cast<const std::byte*>(at)] = {size, device};
}

namespace {

std::recursive_mutex mutex;
// What may break off a capture in another thread.
const std::set<std::string> kUnsafe = {
    "cudaHostAlloc",   "cudaHostRegister",  "cudaStreamCreate",     "cudaEventCreate",
    "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaEventSynchronize", "cudaStreamSynchronize"};
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

CUstream_st& stream_of(cudaStream_t stream) {
  static CUstream_st legacy;
  return stream ? *stream : legacy;
}

void run_until(CUstream_st& stream, std::size_t after) {
  while (stream.done < after) {
    const auto work = std::move(stream.work.front());
    stream.work.pop_front();
    ++stream.done;
    work();
  }
}

std::size_t queued(const CUstream_st& stream) { return stream.done + stream.work.size(); }

// Counts the call, and gives the error that the test asked for. As in the real one, memory that
// runs out is an error too, never an exception.
cudaError_t called(const char* function) noexcept {
  try {
    const int count = ++cuda().calls[function];
    if (kUnsafe.contains(function) && capture_mode != cudaStreamCaptureModeRelaxed) {
      ++cuda().disturbed;
    }
    if (function != cuda().fail || count < cuda().fail_at) return cudaSuccess;
    return cuda().last = cuda().error;
  } catch (const std::bad_alloc&) {
    return cuda().last = cudaErrorMemoryAllocation;
  }
}

CUresult context_state(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = cuda().in_use.contains(device);
  return CUDA_SUCCESS;
}

// Those that were made, and are there.
std::set<CUstream_st*>& made() {
  static std::set<CUstream_st*> made;
  return made;
}

// Memory of the library's own that it had page-locked.
std::map<void*, std::size_t>& locked() {
  static std::map<void*, std::size_t> locked;
  return locked;
}

}  // namespace

bool is_page_locked(const void* at) {
  const std::lock_guard lock(mutex);
  return std::ranges::any_of(locked(), [&](const auto& one) {
    const auto* const begin = static_cast<const std::byte*>(one.first);
    return begin <= at && at < begin + one.second;
  });
}

void run_all() {
  const std::lock_guard lock(mutex);
  for (CUstream_st* stream : made()) run_until(*stream, queued(*stream));
}

void queue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  stream_of(stream).work.push_back(std::move(work));
}

namespace {

void queue_copy(cudaStream_t stream, std::function<void()> copy) {
  queue(stream, std::move(copy));
  CUstream_st& on = stream_of(stream);
  if (cuda().early) run_until(on, queued(on));
}

}  // namespace
}  // namespace fake

using fake::called;
using fake::cuda;

extern "C" {

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(fake::mutex);
  return std::exchange(cuda().last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t) { return "as the test asked"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheTest"; }

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(fake::mutex);
  *count = cuda().devices;
  return called("cudaGetDeviceCount");
}

cudaError_t cudaGetDevice(int* device) {
  const std::lock_guard lock(fake::mutex);
  *device = cuda().current;
  return called("cudaGetDevice");
}

cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(fake::mutex);
  if (device < 0 || device >= cuda().devices) return cuda().last = cudaErrorInvalidDevice;
  try {
    cuda().in_use.insert(device);
    cuda().made_current.push_back(device);
  } catch (const std::bad_alloc&) {
    return cuda().last = cudaErrorMemoryAllocation;
  }
  cuda().current = device;
  return called("cudaSetDevice");
}

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** found, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  const std::lock_guard lock(fake::mutex);
  *found = reinterpret_cast<void*>(&fake::context_state);
  *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** found, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  const std::lock_guard lock(fake::mutex);
  return cudaGetDriverEntryPointByVersion(symbol, found, 0, flags, status);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
  const std::lock_guard lock(fake::mutex);
  *found = {};
  found->type = cudaMemoryTypeUnregistered;
  found->device = -2;
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& [begin, of] : cuda().memory) {
    if (at < begin || at >= begin + of.first) continue;
    found->type = cuda().managed || cuda().managed_at.contains(begin) ? cudaMemoryTypeManaged
                                                                      : cudaMemoryTypeDevice;
    found->device = of.second;
  }
  return called("cudaPointerGetAttributes");
}

cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  const std::lock_guard lock(fake::mutex);
  if (const cudaError_t error = called("cudaHostAlloc"); error != cudaSuccess) return error;
  *memory = std::malloc(size);
  ++cuda().buffers;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(fake::mutex);
  std::free(memory);
  --cuda().buffers;
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, std::size_t size, unsigned) {
  const std::lock_guard lock(fake::mutex);
  if (const cudaError_t error = called("cudaHostRegister"); error != cudaSuccess) return error;
  fake::locked().emplace(memory, size);
  ++cuda().buffers;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(fake::mutex);
  if (fake::locked().erase(memory) == 0) return cuda().last = cudaErrorHostMemoryNotRegistered;
  --cuda().buffers;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(fake::mutex);
  if (const cudaError_t error = called("cudaStreamCreate"); error != cudaSuccess) return error;
  try {
    std::unique_ptr<CUstream_st> made(new CUstream_st{.device = cuda().current, .work = {}});
    fake::made().insert(made.get());
    *stream = made.release();
  } catch (const std::bad_alloc&) {
    return cuda().last = cudaErrorMemoryAllocation;
  }
  ++cuda().streams;
  return cudaSuccess;
}

// What others wait for on it is done all the same, as by a device.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  static std::vector<std::unique_ptr<CUstream_st>> destroyed;
  const std::lock_guard lock(fake::mutex);
  if (!stream->work.empty()) ++cuda().abandoned;
  fake::made().erase(stream);
  destroyed.emplace_back(stream);
  --cuda().streams;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(fake::mutex);
  *status = cuda().capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return called("cudaStreamIsCapturing");
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  const std::lock_guard lock(fake::mutex);
  std::swap(*mode, fake::capture_mode);
  return called("cudaThreadExchangeStreamCaptureMode");
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(fake::mutex);
  auto& found = fake::stream_of(stream);
  fake::run_until(found, fake::queued(found));
  return called("cudaStreamSynchronize");
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(fake::mutex);
  CUstream_st* const before = event->stream;
  const std::size_t after = event->after;
  fake::queue(stream, [before, after] { fake::run_until(*before, after); });
  return called("cudaStreamWaitEvent");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(fake::mutex);
  if (const cudaError_t error = called("cudaEventCreate"); error != cudaSuccess) return error;
  *event = new CUevent_st;
  ++cuda().events;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(fake::mutex);
  delete event;
  --cuda().events;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(fake::mutex);
  event->stream = &fake::stream_of(stream);
  event->after = fake::queued(*event->stream);
  return called("cudaEventRecord");
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(fake::mutex);
  fake::run_until(*event->stream, event->after);
  return called("cudaEventSynchronize");
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  const std::lock_guard lock(fake::mutex);
  if (const cudaError_t error = called("cudaMemcpyAsync"); error != cudaSuccess) return error;
  cuda().bytes += size;
  fake::queue_copy(stream, [target, source, size] { std::memcpy(target, source, size); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  const std::lock_guard lock(fake::mutex);
  if (const cudaError_t error = called("cudaMemcpy2DAsync"); error != cudaSuccess) return error;
  const auto wrong = [&](std::size_t pitch) { return pitch < width || pitch > 0x7fffffff; };
  if (wrong(target_pitch) || wrong(source_pitch)) return cuda().last = cudaErrorInvalidPitchValue;
  cuda().bytes += width * height;
  fake::queue_copy(stream, [=] {
    auto* to = static_cast<std::byte*>(target);
    const auto* from = static_cast<const std::byte*>(source);
    for (std::size_t row = 0; row < height; ++row, to += target_pitch, from += source_pitch) {
      std::memcpy(to, from, width);
    }
  });
  return cudaSuccess;
}

}  // extern "C"
