#include "feed/cuda/lanes.hpp"

#include <cuda.h>  // types only: the driver is reached through the runtime, and may be absent
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/huge_pages.hpp"

namespace tensorshelf::cuda {
namespace {

// How many bytes of unused buffers are kept: those of 16 threads that save to a drive at once.
constexpr std::uint64_t kIdleBytes = std::uint64_t{512} << 20;

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

}  // namespace

void require_device() {
  const CudaSupport support = cuda_support();
  if (support.devices > 0) return;
  throw Error(Errc::unsupported, support.lacks,
              "Check nvidia-smi and CUDA_VISIBLE_DEVICES; or copy the values to host memory and "
              "assign those.");
}

CurrentDevice::CurrentDevice() {
  check(cudaGetDevice(&before_), "finding the current device", 0);
  now_ = before_;
}

CurrentDevice::~CurrentDevice() {
  if (now_ != before_ && in_use(before_)) static_cast<void>(cudaSetDevice(before_));
}

void CurrentDevice::use(int device) {
  if (device == now_) return;
  check(cudaSetDevice(device), "making it current", device);
  now_ = device;
}

BesideCaptures::BesideCaptures() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

BesideCaptures::~BesideCaptures() {
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
}

Held holder_of(const Given& memory, int current) {
  cudaPointerAttributes found = {};
  check(cudaPointerGetAttributes(&found, memory.data), "looking up an address", current);
  if (found.type == cudaMemoryTypeUnregistered) {
    throw Error(Errc::bad_argument,
                fmt::format("the address {} is not of CUDA memory", memory.data), memory.remedy);
  }
  return {.device = found.device >= 0 ? found.device : current,
          .by_device_alone = found.type == cudaMemoryTypeDevice};
}

Held use_holder_of(const Given& memory, CurrentDevice& current) {
  if (memory.device >= 0) current.use(memory.device);
  const Held held = holder_of(memory, current.device());
  current.use(held.device);
  return held;
}

void refuse_capture(cudaStream_t stream, int device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking the stream for its state", device);
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error(Errc::unsupported, "the stream is capturing a CUDA graph, which runs nothing yet",
              "Assign to the shelf, or read from it, after the capture, and after each replay.");
}

CopyLane::CopyLane(int of_device, const PieceRing& with)
    : device(of_device),
      ring(with),
      memory(
          (with.pieces * with.piece_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes,
          of_device),
      done(with.pieces) {
  try {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream", device);
    check(cudaEventCreateWithFlags(&earlier, cudaEventDisableTiming), "making an event", device);
    for (auto& event : done) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event", device);
    }
  } catch (...) {
    free();
    throw;
  }
}

void CopyLane::free() noexcept {  // after a CUDA error each may fail as well, and nothing is lost
  for (auto event : done) {
    if (event) static_cast<void>(cudaEventDestroy(event));
  }
  if (earlier) static_cast<void>(cudaEventDestroy(earlier));
  if (stream) static_cast<void>(cudaStreamDestroy(stream));
  static_cast<void>(cudaGetLastError());
}

void CopyLane::begin_behind(cudaEvent_t event, cudaStream_t theirs) {
  if (event == nullptr) {
    check(cudaEventRecord(earlier, theirs), "recording an event on the stream", device);
  }
  // I9: copies see all that came before the event, and nothing that the caller does later.
  check(cudaStreamWaitEvent(stream, event ? event : earlier, 0), "ordering two streams", device);
}

LanePool::LanePool() { idle_.reserve(kIdleBytes / kHugePageBytes); }

std::unique_ptr<CopyLane> LanePool::take(int device, const PieceRing& ring) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        idle_, [&](const auto& kept) { return kept->device == device && kept->ring == ring; });
    if (found != idle_.end()) {
      auto lane = std::move(*found);
      idle_.erase(found);
      idle_bytes_ -= lane->memory.size_bytes();
      return lane;
    }
  }
  return std::make_unique<CopyLane>(device, ring);
}

void LanePool::give(std::unique_ptr<CopyLane> lane) noexcept {  // room for it is there
  const std::lock_guard lock(mutex_);
  const std::uint64_t bytes = lane->memory.size_bytes();
  if (bytes > kIdleBytes) return;
  while (idle_bytes_ + bytes > kIdleBytes) {  // those of another kind make way, the oldest first
    const auto other = std::ranges::find_if(idle_, [&](const auto& kept) {
      return kept->device != lane->device || kept->ring != lane->ring;
    });
    if (other == idle_.end()) return;
    idle_bytes_ -= (*other)->memory.size_bytes();
    idle_.erase(other);
  }
  idle_bytes_ += bytes;
  idle_.push_back(std::move(lane));
}

// Never destroyed: at exit the driver may be gone before us, and takes all with it.
LanePool& pool() {
  static auto* const pool = new LanePool;
  return *pool;
}

TakenLane::~TakenLane() {
  if (lane_ == nullptr) return;
  const BesideCaptures aside;
  if (!sound_) settle();
  if (sound_) {
    pool().give(std::move(lane_));
  } else {
    lane_.reset();
  }
}

void TakenLane::take(int device, const PieceRing& ring) { lane_ = pool().take(device, ring); }

void TakenLane::settle() noexcept {
  const BesideCaptures aside;
  if (cudaStreamSynchronize(lane_->stream) == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  sound_ = false;
}

LaneUse::LaneUse(const Of& of, const PieceRing& ring) {
  static_cast<void>(use_holder_of(of.memory, current_));
  if (of.after == nullptr) refuse_capture(of.theirs, device());
  lane_.take(device(), ring);
  guarded([&] { lane_->begin_behind(of.after, of.theirs); });
}

}  // namespace tensorshelf::cuda
