// Copies from CUDA memory through two page-locked buffers on a stream of their own. What a call
// needs (buffers, stream, events) is a CopyLane; making one takes milliseconds, so a few are kept.
#include "feed/cuda_copy.hpp"

#include <cuda.h>  // types only: the driver is reached through the runtime, and may be absent
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/extent.hpp>

namespace tensorshelf {
namespace {

constexpr std::uint64_t kBufferBytes = 4 * kChunkBytes;  // a bus is near its full speed from 1 MiB
constexpr std::size_t kIdleLanes = 4;

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

// Whether this process uses a device already. Making it current would otherwise begin to, at the
// price of hundreds of MiB there.
bool in_use(int device) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t result = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found,
                                                              7000, cudaEnableDefault, &status);
#else
  const cudaError_t result =
      cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &found, cudaEnableDefault, &status);
#endif
  if (result != cudaSuccess || status != cudaDriverEntryPointSuccess) return true;
  unsigned flags = 0;
  int active = 0;
  const auto get_state = reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(found);
  return get_state(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

// Makes a device current for the calling thread, and the one that was current again at the end.
class CurrentDevice {
 public:
  CurrentDevice() {
    check(cudaGetDevice(&before_), "finding the current device", 0);
    now_ = before_;
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (now_ != before_ && in_use(before_)) static_cast<void>(cudaSetDevice(before_));
  }

  void use(int device) {
    if (device == now_) return;
    check(cudaSetDevice(device), "making it current", device);
    now_ = device;
  }
  int device() const { return now_; }

 private:
  int before_ = 0;
  int now_ = 0;
};

// All of one device, and used by one call at a time.
struct CopyLane {
  explicit CopyLane(int of_device) : device(of_device) {
    try {
      for (auto& buffer : buffers) {
        check(cudaHostAlloc(&buffer, kBufferBytes, cudaHostAllocPortable),
              "allocating 4 MiB of page-locked host memory", device);
      }
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream", device);
      check(cudaEventCreateWithFlags(&earlier, cudaEventDisableTiming), "making an event", device);
      for (auto& event : done) {
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event", device);
      }
    } catch (const Error&) {
      free();
      throw;
    }
  }
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;
  ~CopyLane() { free(); }

  void free() noexcept {  // after a CUDA error each of these may fail as well, and nothing is lost
    for (auto event : done) {
      if (event) static_cast<void>(cudaEventDestroy(event));
    }
    if (earlier) static_cast<void>(cudaEventDestroy(earlier));
    if (stream) static_cast<void>(cudaStreamDestroy(stream));
    for (auto* buffer : buffers) {
      if (buffer) static_cast<void>(cudaFreeHost(buffer));
    }
    static_cast<void>(cudaGetLastError());
  }

  int device;
  std::array<void*, kDeviceBuffers> buffers = {};
  cudaStream_t stream = nullptr;
  cudaEvent_t earlier = nullptr;                      // the caller's work that comes before
  std::array<cudaEvent_t, kDeviceBuffers> done = {};  // the last copy into each buffer
};

class LanePool {
 public:
  LanePool() { idle_.reserve(kIdleLanes); }

  std::unique_ptr<CopyLane> take(int device) {
    {
      std::lock_guard lock(mutex_);
      const auto found = std::find_if(idle_.begin(), idle_.end(),
                                      [&](auto& kept) { return kept->device == device; });
      if (found != idle_.end()) {
        auto lane = std::move(*found);
        idle_.erase(found);
        return lane;
      }
    }
    return std::make_unique<CopyLane>(device);
  }

  void give(std::unique_ptr<CopyLane> lane) noexcept {  // room for it is there
    std::lock_guard lock(mutex_);
    if (idle_.size() < kIdleLanes) idle_.push_back(std::move(lane));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CopyLane>> idle_;
};

// Never destroyed: at exit the driver may be gone before us, and takes all with it.
LanePool& pool() {
  static auto* const pool = new LanePool;
  return *pool;
}

// Another thread may be capturing a graph, which what we call would otherwise break off.
class BesideCaptures {
 public:
  BesideCaptures() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "standing aside", 0); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one that was before
};

int holder_of(const DeviceBytes& source, int current) {
  cudaPointerAttributes found = {};
  check(cudaPointerGetAttributes(&found, source.data), "looking up an address", current);
  if (found.type == cudaMemoryTypeUnregistered) {
    throw Error(Errc::bad_argument,
                fmt::format("the address {} is not of CUDA memory", source.data),
                "Write host memory with write().");
  }
  return found.device >= 0 ? found.device : current;
}

// Makes the device that holds the source current.
void use_holder_of(const DeviceBytes& source, CurrentDevice& current) {
  if (source.device >= 0) current.use(source.device);
  current.use(holder_of(source, current.device()));
}

void refuse_capture(cudaStream_t stream, int device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking the stream for its state", device);
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error(Errc::unsupported, "the stream is capturing a CUDA graph, which runs nothing yet",
              "Assign to the shelf after the capture, and after each replay.");
}

class CudaMark final : public DeviceMark {
 public:
  explicit CudaMark(const DeviceBytes& source) : stream_(source.stream) {
    const BesideCaptures aside;
    CurrentDevice current;
    use_holder_of(source, current);
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
    return holder_of(source, current.device()) == device_;
  }
  cudaEvent_t event() const { return event_; }

 private:
  // Of what waits for it already, nothing is lost.
  void destroy() noexcept {
    if (cudaEventDestroy(event_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

  cudaStream_t stream_;
  int device_ = 0;
  cudaEvent_t event_ = nullptr;
};

class CudaCopy final : public DeviceCopy {
 public:
  CudaCopy(const DeviceBytes& source, const CudaMark* after)
      : data_(static_cast<const std::byte*>(source.data)) {
    use_holder_of(source, current_);
    if (after == nullptr) refuse_capture(source.stream, device());
    lane_ = pool().take(device());
    if (after == nullptr) {
      check(cudaEventRecord(lane_->earlier, source.stream), "recording an event on the stream",
            device());
    }
    check(cudaStreamWaitEvent(lane_->stream, after ? after->event() : lane_->earlier, 0),
          "ordering two streams", device());
  }

  ~CudaCopy() override {
    if (sound_) pool().give(std::move(lane_));
  }

  std::uint64_t buffer_bytes() const override { return kBufferBytes; }

  void begin(unsigned buffer, std::uint64_t from, std::uint64_t size_bytes) override {
    guarded([&] {
      // Which way is found from the addresses: managed and page-locked memory are sources, too.
      check(cudaMemcpyAsync(lane_->buffers[buffer], data_ + from, size_bytes, cudaMemcpyDefault,
                            lane_->stream),
            "copying to the host", device());
      check(cudaEventRecord(lane_->done[buffer], lane_->stream), "recording an event", device());
    });
    sizes_[buffer] = size_bytes;
  }

  std::span<const std::byte> wait(unsigned buffer) override {
    guarded(
        [&] { check(cudaEventSynchronize(lane_->done[buffer]), "copying to the host", device()); });
    return {static_cast<const std::byte*>(lane_->buffers[buffer]), sizes_[buffer]};
  }

  void settle() noexcept override {
    if (cudaStreamSynchronize(lane_->stream) == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    sound_ = false;
  }

 private:
  int device() const { return current_.device(); }

  template <typename Body>
  void guarded(Body body) {
    sound_ = false;
    body();
    sound_ = true;
  }

  const std::byte* data_;
  BesideCaptures aside_;
  CurrentDevice current_;
  std::unique_ptr<CopyLane> lane_;  // before current_ is what it was
  std::array<std::uint64_t, kDeviceBuffers> sizes_ = {};
  bool sound_ = true;  // no CUDA call has failed: the lane may serve again
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

namespace {

void require_device() {
  const CudaSupport support = cuda_support();
  if (support.devices > 0) return;
  throw Error(Errc::unsupported, support.lacks,
              "Check nvidia-smi and CUDA_VISIBLE_DEVICES; or copy the values to host memory and "
              "assign those.");
}

}  // namespace

std::shared_ptr<const DeviceMark> make_cuda_mark(const DeviceBytes& source) {
  require_device();
  return std::make_shared<CudaMark>(source);
}

std::unique_ptr<DeviceCopy> make_cuda_copy(const DeviceBytes& source, const DeviceMark* after) {
  require_device();
  return std::make_unique<CudaCopy>(source, dynamic_cast<const CudaMark*>(after));
}

}  // namespace tensorshelf
