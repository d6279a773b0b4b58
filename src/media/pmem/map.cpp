// Every call into libpmem2. Its objects are plain pointers with delete functions; this file alone
// owns them, and turns its codes into errors.
#include "media/pmem/map.hpp"

#include <fmt/format.h>
#include <libpmem2.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include <tensorshelf/error.hpp>
#include <tensorshelf/extent.hpp>

#include "base/check.hpp"
#include "base/fault_guard.hpp"
#include "base/side_by_side.hpp"
#include "base/size_text.hpp"
#include "media/own_directory.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kGiantPageBytes = 1024 * 1024 * 1024;
constexpr std::uint64_t kFaultedBytes = std::uint64_t{32} << 20;  // by a thread at a time

struct Deleter {
  void operator()(pmem2_source* source) const { pmem2_source_delete(&source); }
  void operator()(pmem2_config* config) const { pmem2_config_delete(&config); }
};
using Source = std::unique_ptr<pmem2_source, Deleter>;
using Config = std::unique_ptr<pmem2_config, Deleter>;

void check(int code, const std::filesystem::path& path, const char* verb) {
  if (code == 0) return;
  throw Error(Errc::io, fmt::format("{} cannot be {}: {}", path.native(), verb, pmem2_errormsg()),
              "check the device (ndctl list, dmesg) and the limits on mappings (ulimit -v, "
              "vm.max_map_count)",
              code > PMEM2_E_UNKNOWN ? -code : 0);  // -errno, or a code of its own
}

Source source_of(int fd, const std::filesystem::path& path) {
  pmem2_source* source = nullptr;
  check(pmem2_source_from_fd(&source, fd), path, "mapped");
  return Source(source);
}

// Addresses at a multiple of the largest page that can serve, or null; two huge pages at least.
// libpmem2 1.12 pads a reservation to align it and forgets the padding when deleting, so that every
// open would leak up to 2 GiB of addresses. One of a huge page, put at an aligned place, is padded
// by another, and extending it takes that in before anything can fail. Another thread may take the
// rest of the place in between, hence the attempts.
pmem2_vm_reservation* reserve(std::uint64_t size_bytes, std::uint64_t alignment) {
  if (size_bytes >= 2 * kGiantPageBytes) alignment = std::max(alignment, kGiantPageBytes);
  for (int attempt = 0; attempt < 8; ++attempt) {
    void* const probe = ::mmap(nullptr, size_bytes + alignment, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED) return nullptr;
    ::munmap(probe, size_bytes + alignment);
    auto* const place =
        reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(probe), alignment));
    pmem2_vm_reservation* reservation = nullptr;
    if (pmem2_vm_reservation_new(&reservation, place, kHugePageBytes) != 0) continue;
    const std::uint64_t rest = size_bytes - 2 * kHugePageBytes;
    if (pmem2_vm_reservation_extend(reservation, kHugePageBytes) == 0 &&
        (rest == 0 || pmem2_vm_reservation_extend(reservation, rest) == 0)) {
      return reservation;
    }
    pmem2_vm_reservation_delete(&reservation);
  }
  return nullptr;
}

Granularity granularity_of(pmem2_map* map) {
  switch (pmem2_map_get_store_granularity(map)) {
    case PMEM2_GRANULARITY_BYTE:
      return Granularity::byte;
    case PMEM2_GRANULARITY_CACHE_LINE:
      return Granularity::cache_line;
    case PMEM2_GRANULARITY_PAGE:
      break;
  }
  return Granularity::page;
}

}  // namespace

PmemMap::PmemMap(std::filesystem::path path, Access access, const AddressWish& wish)
    : path_(std::move(path)), access_(access) {
  arm_fault_guard();
  const std::uint64_t least =
      std::max(round_up(wish.least_bytes, kHugePageBytes), 2 * kHugePageBytes);
  const std::uint64_t alignment = std::max(wish.alignment, kHugePageBytes);
  address_bytes_ = std::max(round_up(wish.size_bytes, kHugePageBytes), least);
  while ((reservation_ = reserve(address_bytes_, alignment)) == nullptr && address_bytes_ > least) {
    address_bytes_ = std::max(round_up(address_bytes_ / 2, kHugePageBytes), least);
  }
  if (reservation_ == nullptr) {
    throw Error(Errc::io,
                fmt::format("{} cannot be mapped: no {} of address space", path_.native(),
                            size_text(least)),
                "raise the limit (ulimit -v), or close other shelves", ENOMEM);
  }
  base_ = static_cast<std::byte*>(pmem2_vm_reservation_get_address(reservation_));
}

PmemMap::~PmemMap() {
  while (!segments_.empty()) drop_last();
  const int code = pmem2_vm_reservation_delete(&reservation_);
  TENSORSHELF_ASSERT(code == 0);
}

void PmemMap::append(int fd, std::uint64_t size_bytes) {
  TENSORSHELF_ASSERT(size_bytes > 0 && size_bytes_ + size_bytes <= address_bytes_);
  segments_.reserve(segments_.size() + 1);
  const Source source = source_of(fd, path_);
  pmem2_config* made = nullptr;
  check(pmem2_config_new(&made), path_, "mapped");
  const Config config(made);
  // Page granularity is what every file has at least; the medium looks at what it got.
  check(pmem2_config_set_required_store_granularity(config.get(), PMEM2_GRANULARITY_PAGE), path_,
        "mapped");
  check(pmem2_config_set_offset(config.get(), size_bytes_), path_, "mapped");
  check(pmem2_config_set_length(config.get(), size_bytes), path_, "mapped");
  check(pmem2_config_set_protection(config.get(), access_ == Access::write
                                                      ? PMEM2_PROT_READ | PMEM2_PROT_WRITE
                                                      : PMEM2_PROT_READ),
        path_, "mapped");
  check(pmem2_config_set_vm_reservation(config.get(), reservation_, size_bytes_), path_, "mapped");
  pmem2_map* map = nullptr;
  in_own_directory(
      [&] { check(pmem2_map_new(&map, config.get(), source.get()), path_, "mapped"); });
  TENSORSHELF_ASSERT(pmem2_map_get_address(map) == base_ + size_bytes_);
  segments_.push_back(map);
  granularity_ = granularity_of(map);
  flush_ = pmem2_get_flush_fn(map);
  size_bytes_ += size_bytes;
}

void PmemMap::drop_last() {
  size_bytes_ -= pmem2_map_get_size(segments_.back());
  const int code = pmem2_map_delete(&segments_.back());
  TENSORSHELF_ASSERT(code == 0);
  segments_.pop_back();
}

void PmemMap::fault_in(const Extent& mapped) const {
#if defined(MADV_POPULATE_WRITE)
  auto fault_part = [&](std::size_t part) {
    const std::uint64_t begin = mapped.at + part * kFaultedBytes;
    const std::uint64_t end = std::min(begin + kFaultedBytes, mapped.end());
    ::madvise(base_ + begin, end - begin, MADV_POPULATE_WRITE);
  };
  const std::uint64_t parts = round_up(mapped.size_bytes, kFaultedBytes) / kFaultedBytes;
  sharing.share(default_threads(), parts, PartJob(fault_part));
#else
  static_cast<void>(mapped);
#endif
}

DaxGeometry dax_geometry(int fd, const std::filesystem::path& path) {
  const Source source = source_of(fd, path);
  std::size_t size_bytes = 0;
  std::size_t alignment = 0;
  check(pmem2_source_size(source.get(), &size_bytes), path, "measured");
  check(pmem2_source_alignment(source.get(), &alignment), path, "measured");
  return {size_bytes / alignment * alignment, alignment};
}

}  // namespace tensorshelf
