// Room in a file on persistent memory or tmpfs: blocks behind every byte before anything is stored
// there, because a store into a hole of a full file system is a SIGBUS and not an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tensorshelf/extent.hpp>

#include "media/file.hpp"
#include "media/file_system.hpp"

namespace tensorshelf {

// How far a mapped file may grow, and in what steps.
struct GrowthBounds {
  std::uint64_t cap_bytes = 0;      // of the file; 0: there is none
  std::uint64_t address_bytes = 0;  // reserved to map it at
  std::uint64_t step_bytes = kPageBytes;
};

// What to grow to: whole steps, as far as the cap and the reserved addresses allow. Errc::full
// where they allow less than is wanted.
std::uint64_t grown_size(const ShelfFile& file, std::uint64_t wanted, const GrowthBounds& bounds);

// Whether it can grow to that from what it is `now`, as far as is known before: Errc::read_only,
// and Errc::full of a device, at those bounds, and where the file system has no such room.
void check_may_grow(const ShelfFile& file, std::uint64_t now, std::uint64_t wanted,
                    const GrowthBounds& bounds);

// Grows the file so that [extent.at, extent.end()) is allocated, reads as zero and is durable. The
// extent begins at or before the file's end; what it covers of the old file is zeroed. Throws
// Errc::full, with the old size restored, where the file system or a quota ends.
void add_room(const ShelfFile& file, const FileSystem& system, const Extent& extent);

// Makes durable what length and blocks the file has: a barrier of the mapped medium is a fence,
// which covers neither. A length as found may be what a growth left that was never synced.
void sync_room(const ShelfFile& file);

// Shortens the file again. Where that fails it stays longer, which harms nothing: no root names the
// room, and the next open maps it.
void remove_room(const ShelfFile& file, std::uint64_t old_size_bytes);

// Whether a store into the file's size_bytes can need a new block: it has holes, or (on XFS) shares
// blocks with a reflinked copy.
bool has_gaps(const ShelfFile& file, const FileSystem& system, std::uint64_t size_bytes);

// Puts blocks behind every hole of the file's first size_bytes, keeping its bytes, and makes them
// durable. Errc::full where there are none.
void allocate_holes(const ShelfFile& file, std::uint64_t size_bytes);

// Writes by the kernel, into the pages that the mapping shows. Errc::io.
void write_bytes(const ShelfFile& file, std::uint64_t at, std::span<const std::byte> bytes);

// Puts blocks of its own behind the extent, keeping its bytes. Errc::io where there are none.
void fill_gaps(const ShelfFile& file, const Extent& extent);

}  // namespace tensorshelf
