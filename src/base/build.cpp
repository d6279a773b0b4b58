// The options of cmake/Dependencies.cmake, as values.
#include <tensorshelf/build.hpp>

namespace tensorshelf {

std::vector<BuildPart> build_parts() {
  return {
      {"libpmem2", TENSORSHELF_HAS_PMEM2 != 0,
       "no libpmem2: no FS-DAX or DevDAX; tmpfs files go through the block medium"},
      {"libpmemobj", TENSORSHELF_HAS_PMEMOBJ != 0, "no libpmemobj: no pools and pool sets"},
      {"liburing", TENSORSHELF_HAS_URING != 0, "no liburing: the block medium writes with pwrite"},
      {"hwloc", TENSORSHELF_HAS_HWLOC != 0,
       "no hwloc: all ranks of a node count as being on one socket, where Group(socket=) says "
       "nothing"},
      {"cuda", TENSORSHELF_HAS_CUDA != 0,
       "no CUDA: tensors on a GPU are copied through pageable host memory"},
  };
}

}  // namespace tensorshelf
