// Assigning from CUDA memory: device -> page-locked host memory -> the shelf, the next piece on its
// way over the bus while the last one is copied and hashed into the medium. Reading into it the
// same way back, the next piece read and verified while the last one is on its way.
//
//     auto w = shelf.create("w", DType::float32, shape);
//     write_from_device(w, {.data = weights, .size_bytes = bytes, .stream = stream});
//     shelf.persist(step);
//     read_to_device(w, {.data = weights, .size_bytes = bytes, .stream = stream});
//
// These functions exist in every build. In one without CUDA, and where there is no device or no
// driver, they throw Errc::unsupported, saying which; cuda_support() asks beforehand.
//
// Order: work that was queued on `stream` before the call is seen; the copy runs on a stream of its
// own. When the call returns, every byte has left the device, or is there: the memory may be
// changed, freed, or used on any stream.
// Thread-safety: any thread; calls at once use buffers of their own. The calling thread's current
// device is the same afterwards, unless this process does not use that one: to make it current
// would begin to.
// Memory: 16 MiB of page-locked host memory for each call under way, 32 MiB for one that writes to
// block media. At most 512 MiB of it are kept idle in a process, for later calls. A forked child
// has none of it.
// Errors: Errc::unsupported; Errc::bad_argument for an address that is not CUDA's; Errc::io where
// CUDA fails; and all that TensorRef::write or read throws. No copy is under way then; the memory
// that was to be filled holds some of the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/handles.hpp>

struct CUstream_st;  // what cudaStream_t points to

namespace tensorshelf {

struct CudaSupport {
  bool built = false;       // this build can copy CUDA memory
  int runtime_version = 0;  // of the CUDA runtime in it, as CUDART_VERSION: 13000 is 13.0
  int devices = 0;          // that this process can use
  std::string lacks = {};   // a sentence: why there is no device to use; empty where there is
};

// Asks the driver, and so initialises it: children forked later cannot use CUDA.
CudaSupport cuda_support();

// `count` equal parts, each `step_bytes` behind the one before; in front of it where negative.
struct DeviceAxis {
  std::uint64_t count = 0;
  std::int64_t step_bytes = 0;
};

struct DeviceBytes {
  const void* data = nullptr;  // device, managed or page-locked memory
  std::uint64_t size_bytes = 0;
  CUstream_st* stream = nullptr;  // that fills it, of the same device; nullptr: the legacy default
  int device = -1;                // that holds it; -1: as CUDA says of the address
  // The axes, the outermost first, of bytes with gaps between them, as the columns w[:, :10] have;
  // `data` is the first byte. Empty: all bytes are consecutive. The parts of the innermost axis are
  // rows of consecutive bytes, each of size_bytes divided by all the counts (else
  // Errc::bad_argument). They go over the bus as they lie: no memory of the device is taken, and no
  // kernel runs.
  std::vector<DeviceAxis> axes = {};
};

// Stages all bytes of the source at byte `offset` of the tensor, as TensorRef::write does, in
// pieces of at most 8 MiB that end where chunks end. It is one assignment: whole or not at all.
void write_from_device(TensorRef& tensor, const DeviceBytes& source, std::uint64_t offset = 0);
// The same as a part of an assignment.
void write_from_device(Assignment& assignment, const DeviceBytes& source, std::uint64_t offset = 0);

struct DeviceTarget {
  void* data = nullptr;  // device, managed or page-locked memory
  std::uint64_t size_bytes = 0;
  CUstream_st* stream = nullptr;      // whose work on it comes first; as in DeviceBytes
  int device = -1;                    // likewise
  std::vector<DeviceAxis> axes = {};  // likewise; no two parts in one place
};

// Fills the target from byte `offset` of the tensor, as TensorRef::read does: verified, and all of
// one moment, so that assigning that tensor waits meanwhile. In pieces of at most 4 MiB.
//
// The call returns when the last piece has arrived; no stream is made to wait. So a failure of CUDA
// is an error of this call, and whoever uses the memory next need not wait for a stream of ours.
void read_to_device(const TensorRef& tensor, const DeviceTarget& target, std::uint64_t offset = 0);
void read_to_device(const RetainedTensor& tensor, const DeviceTarget& target,
                    std::uint64_t offset = 0);
// As TensorRef::read_committed does.
void read_committed_to_device(const TensorRef& tensor, const DeviceTarget& target,
                              std::uint64_t offset = 0);

// Copies the source, source.size_bytes of it, to host memory of that size.
void copy_from_device(std::span<std::byte> target, const DeviceBytes& source);

}  // namespace tensorshelf
