// What a pool stores beside the shelf's own bytes (format/layout.hpp): its root object, a table of
// the objects ("segments") that these lie in, one after the other. Together they take all room of
// the pool, from its making on. They are allocated one by one, each in one step, and the last step
// says that the table is whole:
//
//   0   magic       "TSPOOL01"
//   8   whole       1: all segments are there. Until then there is no shelf
//   16  in_use      1: a writer has it open, or died so: replicas may differ
//   24  segments    how many
//   32  segment[n]  pool id 8, place of the object 8, bytes left out before the first whole page 8,
//                   bytes 8
#pragma once

#include <libpmemobj.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensorshelf {

struct PoolSegment {
  PMEMoid object;
  std::uint64_t skipped_bytes;
  std::uint64_t size_bytes;
};
static_assert(sizeof(PoolSegment) == 32);
static_assert(std::has_unique_object_representations_v<PoolSegment>);

struct PoolTable {
  static constexpr std::uint64_t kMagic = 0x31304C4F4F505354;  // "TSPOOL01"
  static constexpr std::uint64_t kMostSegments = 1023;         // 16 TiB of whole ones

  std::uint64_t magic;
  std::uint64_t whole;
  std::uint64_t in_use;
  std::uint64_t segments;
  PoolSegment segment[kMostSegments];
};
static_assert(sizeof(PoolTable) == 32768);
static_assert(offsetof(PoolTable, whole) == 8);
static_assert(offsetof(PoolTable, in_use) == 16);
static_assert(offsetof(PoolTable, segments) == 24);
static_assert(offsetof(PoolTable, segment) == 32);
static_assert(std::has_unique_object_representations_v<PoolTable>);

}  // namespace tensorshelf
