// The options of cmake/Dependencies.cmake, as a value.
#include <tensorshelf/build.hpp>

namespace tensorshelf {

BuildInfo build_info() {
  BuildInfo info;
#if TENSORSHELF_HAS_PMEM2
  info.libpmem2 = true;
#else
  info.lacks.emplace_back(
      "no libpmem2: no FS-DAX or DevDAX; tmpfs files go through the block "
      "medium");
#endif
#if TENSORSHELF_HAS_URING
  info.liburing = true;
#else
  info.lacks.emplace_back("no liburing: the block medium writes with pwrite");
#endif
#if TENSORSHELF_HAS_CUDA
  info.cuda = true;
#else
  info.lacks.emplace_back("no CUDA: tensors on a GPU are copied through pageable host memory");
#endif
  return info;
}

}  // namespace tensorshelf
