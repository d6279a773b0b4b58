// What is asked of a tensor, and what is said of its chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "format/format.hpp"

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

struct Record : format::ChunkRecord {
  std::uint64_t seen_in = 0;  // the version that says so, which a reader's writer may overtake
};
class Records {  // of some chunks of a tensor, as they were at one moment
 public:
  explicit Records(std::uint64_t first) : first_(first) {}
  const Record& operator[](std::uint64_t chunk) const {
    return chunk == first_ ? one_ : more_[chunk - first_ - 1];
  }

 private:
  friend class Reader;
  std::uint64_t first_;
  Record one_ = {};
  std::vector<Record> more_;
};

}  // namespace tensorshelf
