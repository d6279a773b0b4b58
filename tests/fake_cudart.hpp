// A CUDA runtime made of host memory, linked in place of the real one, so that the calls of
// src/feed/cuda are tested where there is no device. As lazy as a device may be: what is
// queued on a stream runs when somebody waits for it, or when it is ordered before what runs. Or
// `early`: then copies, and what they are ordered behind, run in the call that queues them. Any
// thread may call it; what a test looks at in cuda() must be settled by then.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fake {

struct Cuda {
  int devices = 2;
  int current = 0;
  std::set<int> in_use = {0};        // devices with a context
  std::vector<int> made_current;     // every cudaSetDevice
  std::map<std::string, int> calls;  // by function
  std::string fail;                  // the function that fails, from its fail_at-th call on
  int fail_at = 1;
  cudaError_t error = cudaErrorIllegalAddress;
  cudaError_t last = cudaSuccess;
  bool early = false;
  bool capturing = false;
  bool managed = false;                        // all memory: the host may change it, too
  std::set<const std::byte*> managed_at = {};  // or that which begins here
  int disturbed = 0;  // calls that would break off a capture in another thread
  int abandoned = 0;  // streams that were destroyed with work on them
  int buffers = 0;    // page-locked now
  int streams = 0;
  int events = 0;
  std::size_t bytes = 0;                                           // that were asked to be copied
  std::map<const std::byte*, std::pair<std::size_t, int>> memory;  // address: size and device
};
Cuda& cuda();

// Says that these bytes are a device's.
void add_memory(const void* at, std::size_t size, int device);

// Queues work on a stream; it runs no earlier than it has to.
void queue(cudaStream_t stream, std::function<void()> work);

// Whether the library had that memory of its own page-locked.
bool is_page_locked(const void* at);

// Runs what is queued on the streams that the library made.
void run_all();

}  // namespace fake

struct CUstream_st {
  int device = 0;
  std::deque<std::function<void()>> work;
  std::size_t done = 0;  // pieces of work that have run
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
  std::size_t after = 0;  // pieces of work
};
