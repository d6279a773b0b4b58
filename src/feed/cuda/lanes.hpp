// What copies from CUDA memory and to it share: the current device, streams, page-locked buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <tensorshelf/cuda.hpp>
#include <tensorshelf/extent.hpp>

#include "feed/cuda/check.hpp"
#include "feed/cuda/page_locked.hpp"
#include "feed/device_copy.hpp"
#include "feed/strided.hpp"

namespace tensorshelf::cuda {

void require_device();  // Errc::unsupported where there is none

// Makes a device current for the calling thread, and the one that was current again at the end, if
// this process uses that.
class CurrentDevice {
 public:
  CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

  void use(int device);
  int device() const { return now_; }

 private:
  int before_ = 0;
  int now_ = 0;
};

// Another thread may be capturing a graph, which what we call would otherwise break off.
class BesideCaptures {
 public:
  BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures();

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one that was before
};

// Memory that a caller gave, to be read or to be written.
struct Given {
  explicit Given(const DeviceBytes& source)
      : data(source.data), device(source.device), remedy("Write host memory with write().") {}
  explicit Given(const DeviceTarget& target)
      : data(target.data), device(target.device), remedy("Read into host memory with read().") {}

  const void* data;
  int device;          // -1: as CUDA says
  const char* remedy;  // where it is none of CUDA's
};

// Where it lies, as far as CUDA tells: Errc::bad_argument for what is not its memory.
struct Held {
  int device = 0;
  bool by_device_alone = false;  // no managed or page-locked memory, which the host may change
};
Held holder_of(const Given& memory, int current);
Held use_holder_of(const Given& memory, CurrentDevice& current);  // makes it current
void refuse_capture(cudaStream_t stream, int device);  // Errc::unsupported where it captures

// A ring of buffers, stream and events of one device, used by one call at a time. Making them takes
// milliseconds, so a few are kept.
struct CopyLane {
  CopyLane(int of_device, const PieceRing& with);
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;
  ~CopyLane() { free(); }
  // What is copied on the lane's stream comes behind the event; else behind all that the caller's
  // stream was given so far.
  void begin_behind(cudaEvent_t event, cudaStream_t theirs);
  void free() noexcept;
  std::byte* buffer(unsigned number) const { return memory.data() + number * ring.piece_bytes; }

  int device;
  PieceRing ring;
  PageLocked memory;
  cudaStream_t stream = nullptr;
  cudaEvent_t earlier = nullptr;  // the caller's work that comes before
  std::vector<cudaEvent_t> done;  // the last copy into, or out of, each buffer
};

// Bytes [from, from + size_bytes) of a value with this layout.
struct Stretch {
  const Strided& layout;
  std::uint64_t from = 0;
  std::uint64_t size_bytes = 0;
};
// Copies that stretch of the value at `data` to consecutive host memory, or from there. CUDA finds
// by the addresses which way it goes: managed and page-locked memory have devices, too.
void queue_to_host(CopyLane& lane, void* host, const void* data, const Stretch& stretch);
void queue_to_device(CopyLane& lane, void* data, const void* host, const Stretch& stretch);

class LanePool {
 public:
  LanePool();
  std::unique_ptr<CopyLane> take(int device, const PieceRing& ring);
  void give(std::unique_ptr<CopyLane> lane) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CopyLane>> idle_;
  std::uint64_t idle_bytes_ = 0;
};

LanePool& pool();

// A lane from the pool. It goes back there where no call of CUDA failed, and else to nobody, when
// no copy is under way any more.
class TakenLane {
 public:
  TakenLane() = default;  // none yet
  ~TakenLane();
  TakenLane(const TakenLane&) = delete;
  TakenLane& operator=(const TakenLane&) = delete;

  void take(int device, const PieceRing& ring);  // which is the current one; once
  CopyLane& operator*() { return *lane_; }
  CopyLane* operator->() { return lane_.get(); }
  const CopyLane* operator->() const { return lane_.get(); }

  template <typename Body>
  void guarded(Body body) {  // around calls of CUDA, which throw where they fail
    sound_ = false;
    body();
    sound_ = true;
  }
  void settle() noexcept;  // returns when no copy is under way

 private:
  std::unique_ptr<CopyLane> lane_;
  bool sound_ = true;  // no CUDA call has failed: the lane may serve again
};

// A lane in use, on its device: from here on that is the current one, and captures of other threads
// go on.
class LaneUse {
 public:
  // Behind `after`; else behind all that `theirs`, which must not be capturing, was given so far.
  struct Of {
    Given memory;
    cudaStream_t theirs;
    cudaEvent_t after = nullptr;
  };
  LaneUse(const Of& of, const PieceRing& ring);

  CopyLane& lane() { return *lane_; }
  const PieceRing& ring() const { return lane_->ring; }
  int device() const { return current_.device(); }

  template <typename Body>
  void guarded(Body body) {
    lane_.guarded(body);
  }
  void settle() noexcept { lane_.settle(); }

 private:
  BesideCaptures aside_;
  CurrentDevice current_;
  TakenLane lane_;  // given back before current_ is what it was
};

}  // namespace tensorshelf::cuda
