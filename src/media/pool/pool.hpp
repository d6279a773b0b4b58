// An open pool and the room in it: every call into libpmemobj, and its codes as errors.
#pragma once

#include <libpmemobj.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "media/file.hpp"
#include "media/pool/parts.hpp"
#include "media/pool/table.hpp"

namespace tensorshelf {

// A stretch of the shelf's bytes in the memory that the pool is mapped to.
struct PoolStretch {
  std::uint64_t at;
  std::byte* base;
  std::uint64_t size_bytes;

  std::uint64_t end() const { return at + size_bytes; }
};

class Pool {
 public:
  enum class Access { write, read };  // read: nothing that is stored reaches the medium

  // Both take the library's lock on every part, which is the one on the shelf from then on: it is
  // flock(LOCK_EX) too, of another descriptor, on a pool set's own file as well while that is read.
  // So the lock that `file` holds is given up first, and who came in between is Errc::busy.
  static std::unique_ptr<Pool> open(const ShelfFile& file, const PoolParts& parts, Access access);
  static std::unique_ptr<Pool> create(const ShelfFile& file, const PoolParts& parts,
                                      std::uint64_t largest_object_bytes);

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  const std::vector<PoolStretch>& stretches() const { return stretches_; }

  // Makes what was stored durable in every replica, which follow what lies there by then.
  void persist(const void* at, std::size_t size_bytes) const {
    ::pmemobj_persist(pool_, at, size_bytes);
  }
  // Copies around the cache into every replica, durably.
  void copy(void* target, const void* source, std::size_t size_bytes) const {
    ::pmemobj_memcpy(pool_, target, source, size_bytes, PMEMOBJ_F_MEM_NONTEMPORAL);
  }
  void drain() const { ::pmemobj_drain(pool_); }

  bool was_in_use() const { return table().in_use != 0; }
  void set_in_use(bool in_use) const;

 private:
  explicit Pool(PMEMobjpool* pool) : pool_(pool) {}
  PoolTable& table() const;  // as it lies in the pool, for who writes it
  // A copy, of which nothing is used before it is checked.
  std::unique_ptr<const PoolTable> read_table(const ShelfFile& file);
  std::vector<PMEMoid> objects(const ShelfFile& file, const PoolParts& parts) const;
  void check_table(const PoolTable& found, const ShelfFile& file, const PoolParts& parts) const;
  void take_all_room(const ShelfFile& file, std::uint64_t largest_object_bytes);
  std::uint64_t largest_free(std::uint64_t most_bytes) const;
  void add_segment(std::uint64_t size_bytes) const;
  void set(std::uint64_t& field, std::uint64_t value) const;
  void map_stretches(const PoolTable& checked);

  PMEMobjpool* pool_;
  PMEMoid root_{};
  std::vector<PoolStretch> stretches_;
};

}  // namespace tensorshelf
