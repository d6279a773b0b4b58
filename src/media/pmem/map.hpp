// One run of addresses in which a growing file is mapped through libpmem2, segment after segment,
// so that what was mapped never moves. Only medium.cpp uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <tensorshelf/extent.hpp>

#include "base/huge_pages.hpp"

struct pmem2_map;
struct pmem2_vm_reservation;

namespace tensorshelf {

enum class Access { read, write };

// What a store through the mapping takes to be durable.
enum class Granularity {
  byte,        // nothing but a fence (eADR)
  cache_line,  // a flush of the line and a fence (ADR)
  page,        // msync: not persistent memory, or not mapped with MAP_SYNC
};

struct AddressWish {
  std::uint64_t size_bytes = 0;              // reserved where it can be had, halved until it can
  std::uint64_t least_bytes = 0;             // but never below this
  std::uint64_t alignment = kHugePageBytes;  // of the first address; a power of two
};

class PmemMap {
 public:
  // Reserves addresses and maps nothing yet. The path is for error texts.
  PmemMap(std::filesystem::path path, Access access, const AddressWish& wish);
  PmemMap(PmemMap&&) = delete;
  ~PmemMap();

  // Maps the file's next size_bytes behind what is mapped. Strong guarantee.
  void append(int fd, std::uint64_t size_bytes);
  void drop_last();  // undoes the last append()

  // Page faults now rather than inside the first write, by as many threads as copy by default.
  // Advice: where the kernel refuses it, they come then.
  void fault_in(const Extent& mapped) const;

  std::byte* base() const { return base_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t address_bytes() const { return address_bytes_; }
  Granularity granularity() const { return granularity_; }  // cache_line before the first append()

  // Starts writing the bytes back from the CPU cache; drain_stores() completes it.
  void flush(const std::byte* at, std::size_t size_bytes) const { flush_(at, size_bytes); }

 private:
  std::filesystem::path path_;
  Access access_;
  pmem2_vm_reservation* reservation_ = nullptr;
  std::vector<pmem2_map*> segments_;
  std::byte* base_ = nullptr;
  std::atomic<std::uint64_t> size_bytes_ = 0;  // grows while others look at what was there
  std::uint64_t address_bytes_ = 0;
  std::atomic<Granularity> granularity_ = Granularity::cache_line;
  void (*flush_)(const void*, std::size_t) = nullptr;
};

// Size and mapping unit of a DevDAX device, in bytes; the size is a multiple of the unit.
struct DaxGeometry {
  std::uint64_t size_bytes = 0;
  std::uint64_t alignment = 0;
};
DaxGeometry dax_geometry(int fd, const std::filesystem::path& path);

}  // namespace tensorshelf
