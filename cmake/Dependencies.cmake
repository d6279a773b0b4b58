# Finds every dependency with find_package or pkg-config; nothing is downloaded. What is required
# and missing is named with its Debian package. PMDK, liburing, hwloc and CUDA are AUTO (used where found),
# ON (an error where missing) or OFF; a build without one says so here, in build_info() and, where a
# shelf would be the better for it, in Promises::notes.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

macro(tensorshelf_require prefix module package)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
  if(NOT ${prefix}_FOUND)
    message(FATAL_ERROR "${module} not found. Debian: apt-get install ${package}")
  endif()
endmacro()

macro(tensorshelf_optional option prefix module package without)
  set(${option} AUTO CACHE STRING "Use ${module}: AUTO, ON or OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  set(${prefix}_FOUND FALSE)
  if(NOT ${option} STREQUAL "OFF")
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
    if(NOT ${prefix}_FOUND AND ${option} STREQUAL "ON")
      message(FATAL_ERROR "${option}=ON but ${module} not found. Debian: apt-get install ${package}")
    endif()
  endif()
  if(${prefix}_FOUND)
    message(STATUS "tensorshelf: with ${module} ${${prefix}_VERSION}")
  else()
    message(STATUS "tensorshelf: WITHOUT ${module} (${package}): ${without}")
  endif()
endmacro()

option(TENSORSHELF_HEADERS_ALONE "Take xxHash and fmt from their headers, as a cross build must" OFF)
if(TENSORSHELF_HEADERS_ALONE)
  add_library(PkgConfig::XXHASH INTERFACE IMPORTED)
  target_compile_definitions(PkgConfig::XXHASH INTERFACE XXH_INLINE_ALL)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
else()
  tensorshelf_require(XXHASH libxxhash libxxhash-dev)
  find_package(fmt QUIET)
  if(NOT fmt_FOUND)
    message(FATAL_ERROR "fmt not found. Debian: apt-get install libfmt-dev")
  endif()
endif()

tensorshelf_optional(TENSORSHELF_PMDK PMEM2 libpmem2 libpmem2-dev
  "no FS-DAX or DevDAX; tmpfs files go through the block medium")
tensorshelf_optional(TENSORSHELF_POOL PMEMOBJ libpmemobj libpmemobj-dev
  "no pools and pool sets")
tensorshelf_optional(TENSORSHELF_URING URING liburing liburing-dev
  "the block medium writes with pwrite")
tensorshelf_optional(TENSORSHELF_HWLOC HWLOC hwloc libhwloc-dev
  "all ranks of a node count as being on one socket")

# Debian has a toolkit in non-free alone, and an older one. The runtime is linked statically, so that
# a wheel also runs where there is no CUDA; it loads the driver where there is one.
set(TENSORSHELF_CUDA AUTO CACHE STRING "Use CUDA: AUTO, ON or OFF")
set_property(CACHE TENSORSHELF_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TENSORSHELF_CUDA_FOUND FALSE)
if(NOT TENSORSHELF_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.0 QUIET)
  if(TARGET CUDA::cudart_static)
    set(TENSORSHELF_CUDA_FOUND TRUE)
  elseif(TENSORSHELF_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TENSORSHELF_CUDA=ON but no CUDA toolkit found (12.0 or later). "
      "Name one: -DCUDAToolkit_ROOT=/usr/local/cuda")
  endif()
endif()
if(TENSORSHELF_CUDA_FOUND)
  message(STATUS "tensorshelf: with CUDA ${CUDAToolkit_VERSION}")
else()
  message(STATUS "tensorshelf: WITHOUT CUDA (-DCUDAToolkit_ROOT=<toolkit>): "
    "tensors on a GPU are copied through pageable host memory")
endif()
