#include "feed/cuda/page_locked.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/huge_pages.hpp"
#include "feed/cuda/check.hpp"

namespace tensorshelf::cuda {
namespace {

std::byte* address(std::uintptr_t at) { return reinterpret_cast<std::byte*>(at); }

void give_back(std::uintptr_t begin, std::uintptr_t end) {
  if (begin < end) ::munmap(address(begin), end - begin);
}

// At a multiple of 2 MiB, as huge pages lie. nullptr where there is no memory.
std::byte* map(std::uint64_t size_bytes) {
  const std::uint64_t mapped = size_bytes + kHugePageBytes;
  void* const found =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  const auto first = reinterpret_cast<std::uintptr_t>(found);
  const std::uintptr_t begin = (first + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  give_back(first, begin);
  give_back(begin + size_bytes, first + mapped);
  return address(begin);
}

cudaError_t lock(std::byte* data, std::uint64_t size_bytes) {
  if (data == nullptr || ::madvise(data, size_bytes, MADV_DONTFORK) != 0) {
    return cudaErrorMemoryAllocation;
  }
  prefer_huge_pages({data, size_bytes});
  std::memset(data, 0, size_bytes);
  return cudaHostRegister(data, size_bytes, cudaHostRegisterPortable);
}

}  // namespace

PageLocked::PageLocked(std::uint64_t size_bytes, int device)
    : size_bytes_(size_bytes), data_(map(size_bytes)), process_(::getpid()) {
  cudaError_t result = lock(data_, size_bytes);
  if (result != cudaSuccess) unmap();
  if (result == cudaErrorNotSupported) {
    static_cast<void>(cudaGetLastError());
    void* theirs = nullptr;
    result = cudaHostAlloc(&theirs, size_bytes, cudaHostAllocPortable);
    data_ = static_cast<std::byte*>(theirs);
    drivers_ = true;
  }
  if (result == cudaSuccess) return;
  check(result, fmt::format("page-locking {} MiB of host memory", size_bytes >> 20).c_str(),
        device);
}

// After an error of CUDA its calls may fail, too, and then it holds nothing any more. In a child
// there may be something else at that address.
PageLocked::~PageLocked() {
  if (::getpid() != process_) return;
  static_cast<void>(drivers_ ? cudaFreeHost(data_) : cudaHostUnregister(data_));
  static_cast<void>(cudaGetLastError());
  if (!drivers_) unmap();
}

void PageLocked::unmap() noexcept {
  if (data_) ::munmap(data_, size_bytes_);
  data_ = nullptr;
}

}  // namespace tensorshelf::cuda
