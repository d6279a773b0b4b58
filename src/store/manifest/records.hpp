// What is asked of a tensor, and what is said of its chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tensorshelf/extent.hpp>

#include "base/copy_hash.hpp"
#include "format/format.hpp"
#include "store/manifest/tensor.hpp"

namespace tensorshelf {

// Whose value is asked for: with all that was assigned, the newest committed one's, or that of a
// version that is retained.
class Of {
 public:
  enum class Kind { staged, committed, version };

  static Of staged() { return Of(Kind::staged, 0); }
  static Of committed() { return Of(Kind::committed, 0); }
  static Of version(std::uint64_t number) { return Of(Kind::version, number); }

  Kind kind() const { return kind_; }
  std::uint64_t number() const { return number_; }  // of a version

 private:
  Of(Kind kind, std::uint64_t number) : kind_(kind), number_(number) {}
  Kind kind_;
  std::uint64_t number_;
};

// A chunk of a tensor as a version has it, which says in what slot it lies and what its bytes hash
// to; or as the open attempt has it.
struct RecordedChunk {
  StoredTensor& tensor;
  std::uint64_t chunk;
  format::ChunkRecord record;
  std::uint64_t seen_in = 0;  // the version that says so, which a reader's writer may overtake
  const Holding* holding = nullptr;  // of the version, where the tensor may lie elsewhere by now

  format::ChunkKind kind() const { return format::chunk_kind(record); }
  bool is_stored() const { return kind() == format::ChunkKind::stored; }
  unsigned slot() const { return format::chunk_slot(record); }
  std::uint64_t version() const { return format::chunk_version(record); }  // that wrote it
  std::uint64_t at() const {
    if (holding == nullptr) return tensor.chunk_at(slot(), chunk);
    return holding->slot_at()[tensor.place_index(slot(), chunk)] +
           tensor.layout.within_place(chunk);
  }
  std::uint64_t size_bytes() const { return tensor.chunk_bytes(chunk); }
  Extent extent() const { return {at(), size_bytes()}; }
  std::uint64_t seed(const format::Seeds& seeds) const { return tensor.chunk_seed(seeds, chunk); }
  bool matches(std::span<const std::byte> bytes, const format::Seeds& seeds) const {
    return hash_bytes(bytes, seed(seeds)) == record.checksum;
  }
  bool verified() const { return tensor.verified(slot(), chunk); }
};

// Some chunks of a tensor, side by side, as they were at one moment.
class RecordedChunks {
 public:
  // Has memory for so many: they are added with a lock held.
  RecordedChunks(StoredTensor& tensor, std::uint64_t first, std::uint64_t count)
      : tensor_(tensor), first_(first) {
    if (count > 1) more_.reserve(count - 1);
  }

  StoredTensor& tensor() const { return tensor_; }
  void are_of(std::uint64_t version) { seen_in_ = version; }
  void add(const format::ChunkRecord& record) {
    if (count_++ == 0) {
      one_ = record;
    } else {
      more_.push_back(record);
    }
  }
  RecordedChunk operator[](std::uint64_t chunk) const {
    return {tensor_, chunk, chunk == first_ ? one_ : more_[chunk - first_ - 1], seen_in_};
  }

 private:
  StoredTensor& tensor_;
  std::uint64_t first_;
  std::uint64_t seen_in_ = 0;
  std::uint64_t count_ = 0;
  format::ChunkRecord one_ = {};  // most reads are of one chunk, and need no memory for it
  std::vector<format::ChunkRecord> more_;
};

}  // namespace tensorshelf
